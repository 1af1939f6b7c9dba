"""Transcripts obey their laws, refuse what does not belong to them, and mean the same compiled, scanned and mapped."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import ChoiceError, DtypeError, ShapeError
from purestep.core.language.types import Transcript
from purestep.core.record import check as check_record
from purestep.core.record import from_tensordict, replace, select, to_tensordict
from purestep.core.scan import scan
from purestep.core.transcript.calls import begin_call, end_call, mark_end, next_turn, per_token
from purestep.core.transcript.forks import fork, prefix_of
from purestep.core.transcript.log_probs import loss_mask, token_log_probs, with_proximal
from purestep.core.transcript.record import (
    ABORT,
    ABSENT,
    ENV,
    LENGTH,
    MAX_SEQ_LEN,
    NONE,
    OTHER,
    SAMPLED,
    STOP,
    SYSTEM,
    TOOL,
    USER,
    append_context,
    append_sampled,
    empty,
    in_call,
)
from purestep.properties import check, step_laws, token_log_prob_laws
from purestep.properties.framework.compare import EXACT, ROUNDING, same
from purestep.properties.strategies.transcripts import own_transcripts
from purestep.properties.strategies.values import dyadic, from_record, integers

from ...conftest import Compiled
from ...laws.core.transcript import transcript_laws
from ...laws.core.transcript_fork import transcript_fork_laws

test_writing = check(transcript_laws(), own_transcripts())
test_forks = check(transcript_fork_laws(), own_transcripts())
test_scores = check(token_log_prob_laws(), token_log_probs)

ROOM, WORDS = 12, 5


def a_turn(transcript: Transcript, tokens: Tensor, count: Tensor, log_probs: Tensor, version: Tensor) -> Transcript:
    """All operations once: a call in two chunks, what a tool says, the next step, a fork, an end."""
    said = append_sampled(begin_call(transcript, 0.5, 0.75), tokens, count, log_probs, version)
    said = append_sampled(said, tokens, count, log_probs, version + 1)
    told = append_context(end_call(said, LENGTH, reward=log_probs.sum(-1)), tokens, count, TOOL)
    other = fork(next_turn(told), told.length - 1, told.id + 100)
    other = append_sampled(begin_call(other, 1.0, 1.0), tokens, count, log_probs, version)
    return mark_end(other, count > 2, other.overflow > 0, MAX_SEQ_LEN)


def begun(rows: int, room: int = ROOM) -> Transcript:
    """A question each, of one token and of two."""
    blank = empty(room, 3, id=torch.arange(rows), group=torch.zeros(rows, dtype=torch.int64))
    questions = torch.arange(2 * rows).reshape(rows, 2) % WORDS
    return append_context(blank, questions, 1 + torch.arange(rows) % 2, torch.tensor([SYSTEM, USER]).expand(rows, 2))


any_transcript = from_record(Transcript, L=6, C=2, length=integers((), 0, 7), calls=integers((), 0, 3))
turns = st.tuples(any_transcript, integers((3,), 0, WORDS), integers((), 0, 5), dyadic((3,)), integers((), 0, 9))
test_a_turn_is_a_step = check(
    step_laws(turns, carry=0), lambda transcript, *given: (a_turn(transcript, *given), loss_mask(transcript))
)


# --- compiled, scanned, saved ---


def generate(transcript: Transcript, tokens: Tensor, log_probs: Tensor, logits: Tensor) -> tuple[Transcript, Tensor]:
    """A call whose tokens come one by one, in the rows that still speak; then what a learner reads off."""

    def say(state: tuple[Transcript, Tensor], said: tuple[Tensor, Tensor]) -> tuple[tuple[Transcript, Tensor], Tensor]:
        (written, going), (token, log_prob) = state, said
        written = append_sampled(written, token[:, None], going.to(torch.int64), log_prob[:, None], 0)
        return (written, going & (token != 0)), written.length

    going = torch.ones_like(transcript.terminated)
    start = begin_call(transcript, 0.5, 1.0)
    (written, going), _ = scan(say, (start, going), (tokens.mT, log_probs.mT))
    written = end_call(written, torch.where(going, LENGTH, STOP))
    heat = per_token(written, written.temperature, 1.0)
    return written, torch.where(loss_mask(written), token_log_probs(logits, written.token, temperature=heat), 0.0)


def generated() -> tuple[Transcript, Tensor, Tensor, Tensor]:
    tokens = torch.tensor([[3, 0, 4, 4], [1, 2, 3, 4], [0, 1, 1, 1]])
    logits = torch.linspace(-1, 1, 3 * ROOM * WORDS).sin().reshape(3, ROOM, WORDS)
    return begun(3), tokens, -torch.arange(12.0).reshape(3, 4) / 4, logits


@pytest.mark.slow
def test_compiled_is_eager_and_token_by_token_is_at_once(compiled: Compiled) -> None:
    given = generated()
    found, scores = compiled(generate)(*given)
    wanted, wanted_scores = generate(*given)
    same("what was written", found, wanted, EXACT)
    same("what it scored", scores, wanted_scores, ROUNDING)
    counts = torch.tensor([2, 4, 1])
    at_once = append_sampled(begin_call(given[0], 0.5, 1.0), given[1], counts, given[2], 0)
    at_once = end_call(at_once, torch.tensor([STOP, LENGTH, STOP]))
    same("at once", wanted, at_once, EXACT)
    assert wanted.finish_reason[:, 0].tolist() == [STOP, LENGTH, STOP]
    assert not wanted.truncated.any()


@pytest.mark.slow
def test_a_turn_compiles_to_one_graph_that_means_the_same(compiled: Compiled) -> None:
    given = (
        begun(3, 11),
        torch.tensor([[1, 2, 3]] * 3),
        torch.tensor([3, 1, 0]),
        -torch.ones(3, 3),
        torch.tensor([0, 1, 2]),
    )
    found = compiled(a_turn)(*given)
    same("a turn", found, a_turn(*given), EXACT)
    assert found.overflow.tolist() == [1, 0, 0]
    assert found.terminated.tolist() == [True, False, False]
    assert found.reason.tolist() == [MAX_SEQ_LEN, NONE, NONE]


def test_a_transcript_is_a_checked_record_that_survives_a_tensordict() -> None:
    transcript, _ = generate(*generated())
    assert check_record(transcript, (3,)) is transcript
    same("after a TensorDict", from_tensordict(transcript, to_tensordict(transcript, [3])), transcript, EXACT)


def test_rows_are_left_out_by_select() -> None:
    transcript = begun(2)
    chosen = select(torch.tensor([True, False]), begin_call(transcript, 1.0, 1.0), transcript)
    assert in_call(chosen).tolist() == [True, False]


# --- by hand ---


def test_a_conversation_by_hand() -> None:
    asked = append_context(empty(8, 2, id=7, group=3), torch.tensor([5, 6]), 2, USER)
    said = append_sampled(begin_call(asked, 0.5, 0.75), torch.tensor([1]), 1, torch.tensor([-0.5]), 0)
    said = append_sampled(said, torch.tensor([2, 9]), 1, torch.tensor([-0.25, 0.0]), torch.tensor([1, 1]))
    told = append_context(next_turn(end_call(said, STOP, True, -1.0)), torch.tensor([4]), 1, TOOL)
    assert told.token.tolist() == [5, 6, 1, 2, 4, 0, 0, 0]
    assert told.source.tolist() == [USER, USER, SAMPLED, SAMPLED, TOOL, ABSENT, ABSENT, ABSENT]
    assert told.version.tolist() == [ABSENT, ABSENT, 0, 1, ABSENT, ABSENT, ABSENT, ABSENT]
    assert told.behaviour_log_prob.tolist() == [0, 0, -0.5, -0.25, 0, 0, 0, 0]
    assert told.turn.tolist() == [0, 0, 0, 0, 1, ABSENT, ABSENT, ABSENT]
    assert (told.parse_error.tolist(), told.reward.tolist()) == ([True, False], [-1.0, 0.0])
    assert loss_mask(told).tolist() == [False, False, True, True, False, False, False, False]


def test_a_fork_within_a_call_ends_it_there() -> None:
    said = append_sampled(begin_call(empty(4, 2, id=1), 0.5, 1.0), torch.tensor([1, 2]), 2, -torch.ones(2), 0)
    said = end_call(said, STOP, reward=1.0)
    other = fork(replace(said, credit=torch.tensor([2.0, 0.0])), 1, 2)
    assert other.finish_reason.tolist() == [ABORT, NONE]
    assert (other.reward.tolist(), other.credit.tolist(), other.temperature.tolist()) == ([0, 0], [0, 0], [0.5, 1.0])
    again = append_sampled(begin_call(other, 1.0, 1.0), torch.tensor([3]), 1, -torch.ones(1), 5)
    assert (int(again.overflow), again.call.tolist()) == (0, [0, 1, ABSENT, ABSENT])
    assert loss_mask(again).tolist() == [False, True, False, False]
    assert fork(said, 2, 3).finish_reason[0] == STOP
    assert fork(said, 9, 3).length == 2


def test_what_has_no_call_finds_no_room() -> None:
    transcript = empty(4, 1, id=0)
    lost = append_sampled(transcript, torch.tensor([1]), 1, -torch.ones(1), 0)
    assert (int(lost.overflow), int(lost.length)) == (1, 0)
    assert end_call(transcript, STOP).overflow == 1
    assert begin_call(end_call(begin_call(transcript, 1.0, 1.0), STOP), 1.0, 1.0).overflow == 1


def test_a_truncation_without_a_reason_has_another() -> None:
    yes = torch.tensor(True)
    assert mark_end(empty(1, 1, id=0), False, yes).reason == OTHER
    assert mark_end(empty(1, 1, id=0), True, False, ENV).reason == NONE


def test_gradients_of_scores_are_those_of_a_softmax() -> None:
    torch_logits = torch.linspace(-2, 2, 3 * WORDS, dtype=torch.float64).cos().reshape(3, WORDS).requires_grad_()
    tokens, heat = torch.tensor([1, 4, 0]), torch.tensor([9.0, 0.5, 2.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(token_log_probs(torch_logits, tokens, temperature=heat).sum(), torch_logits)
    chosen = torch.nn.functional.one_hot(tokens[1:], WORDS)
    wanted = (chosen - torch.softmax(torch_logits[:-1] / heat[1:, None], -1)) / heat[1:, None]
    same("the gradient", gradient, torch.cat([wanted, torch.zeros(1, WORDS)]), ROUNDING)


def test_scores_of_small_floats_are_computed_in_large_ones() -> None:
    logits = torch.linspace(0, 30, 4 * WORDS).reshape(4, WORDS).to(torch.bfloat16)
    tokens = torch.tensor([0, 1, 2, 3])
    same("bfloat16", token_log_probs(logits, tokens), token_log_probs(logits.float(), tokens), EXACT)


def test_tokens_of_32_bits_are_kept_in_64() -> None:
    told = append_context(empty(2, 1, id=0), torch.tensor([4], dtype=torch.int32), 1, USER)
    assert (told.token.dtype, told.token.tolist()) == (torch.int64, [4, 0])


# --- what is refused ---

T2, F2 = torch.tensor([[1, 2], [3, 4]]), torch.zeros(2, 2)
REFUSED: dict[str, tuple[type[Exception], Callable[[Transcript], Any]]] = {
    "empty: room is (0, 1)": (ChoiceError, lambda _: empty(0, 1, id=0)),
    "empty: id is torch.float32": (DtypeError, lambda _: empty(1, 1, id=torch.zeros(()))),
    "empty: group is [3], wanted [2]": (ShapeError, lambda t: empty(1, 1, id=t.id, group=torch.arange(3))),
    "append_context: source is 4": (ChoiceError, lambda t: append_context(t, T2, 2, SAMPLED)),
    "append_context: tokens is torch.float32": (DtypeError, lambda t: append_context(t, F2, 2, USER)),
    "append_context: tokens is [2], wanted [2, K]": (ShapeError, lambda t: append_context(t, T2[0], 2, USER)),
    "append_context: count is [3], wanted [2]": (ShapeError, lambda t: append_context(t, T2, torch.arange(3), USER)),
    "append_context: source is [2, 3], wanted [2] or [2, 2]": (
        ShapeError,
        lambda t: append_context(t, T2, 2, torch.zeros(2, 3, dtype=torch.int64)),
    ),
    "append_sampled: log_probs is torch.int64": (DtypeError, lambda t: append_sampled(t, T2, 2, T2, 0)),
    "append_sampled: log_probs is [2], wanted [2, 2]": (ShapeError, lambda t: append_sampled(t, T2, 2, F2[0], 0)),
    "append_sampled: version is torch.float32": (DtypeError, lambda t: append_sampled(t, T2, 2, F2, F2)),
    "begin_call: top_p is [3], wanted [2]": (ShapeError, lambda t: begin_call(t, 1.0, torch.ones(3))),
    "end_call: finish_reason is 0, wanted STOP": (ChoiceError, lambda t: end_call(t, NONE)),
    "end_call: parse_error is torch.float32": (DtypeError, lambda t: end_call(t, STOP, torch.zeros(2))),
    "ended: reason is 0, wanted ENV": (ChoiceError, lambda t: mark_end(t, False, True)),
    "ended: truncated is torch.int64": (DtypeError, lambda t: mark_end(t, False, t.id, ENV)),
    "fork: at is [3], wanted [2]": (ShapeError, lambda t: fork(t, torch.arange(3), 9)),
    "prefix_of: leading axes of `other` is []": (ShapeError, lambda t: prefix_of(t, empty(4, 1, id=0))),
    "per_token: values is [2, 3], wanted [2, 1]": (ShapeError, lambda t: per_token(t, torch.ones(2, 3))),
    "with_proximal: log_probs is [2, 2], wanted [2, 4]": (ShapeError, lambda t: with_proximal(t, F2)),
    "with_proximal: mask is torch.int64": (DtypeError, lambda t: with_proximal(t, F2, t.token)),
    "token_log_probs: logits is torch.int64": (DtypeError, lambda t: token_log_probs(T2, T2[0])),
    "token_log_probs: logits is [2, 2], wanted [2, 4, V]": (ShapeError, lambda t: token_log_probs(F2, t.token)),
    "token_log_probs: temperature is 0.0": (ChoiceError, lambda _: token_log_probs(F2, T2[0], temperature=0.0)),
    "token_log_probs: temperature is [3], wanted [2] or []": (
        ShapeError,
        lambda _: token_log_probs(F2, T2[0], temperature=torch.ones(3)),
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_does_not_belong_is_refused_in_one_line(said: str) -> None:
    error, call = REFUSED[said]
    with pytest.raises(error) as caught:
        call(empty(4, 1, id=torch.arange(2)))
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)

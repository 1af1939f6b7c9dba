"""Attempts where a user's value is wrong, and a whole episode worked out by hand."""

import pytest
from attrs import evolve

from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.language.codec import END, MODEL, byte_codec
from purestep.core.language.protocol import protocol
from purestep.core.language.requests import Request, rollouts
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.text_env import Terminated, Truncated
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import ModelOutput, Rollout
from purestep.core.language.zorplex.env import ZorplexState, zorplex, zorplex_parser
from purestep.core.transcript.record import LENGTH, MAX_SEQ_LEN, STOP, TOOL, USER

RULES = protocol(zorplex("simple"), zorplex_parser(), max_steps=4)
CODEC = byte_codec()
ROLLOUT = rollouts(Request(id=3, group=1, task=(8, 0), sampling=(1, 1)))[0]


def begun(capacity: int = 200, max_new_tokens: int = 40) -> Rollout[ZorplexState]:
    return begin_rollout(RULES, CODEC, ROLLOUT, capacity=capacity, max_new_tokens=max_new_tokens)


def said(text: str, *, stop: bool = True, finish_reason: str = "stop") -> ModelOutput:
    ids = (*text.encode(), *((END,) if stop else ()))
    return ModelOutput(ids=ids, log_probs=(-0.5,) * len(ids), versions=(7,) * len(ids), finish_reason=finish_reason)


def test_an_episode_is_told_token_by_token() -> None:
    task = begun().episode.world.task
    word, value = task.asked[0], str(task.answer)
    looked = add_output(RULES, CODEC, begun(), said(f"LOOKUP[{word}]"))
    assert CODEC.decode(looked.pending) == value
    assert looked.pending[-2:] == (END, MODEL)
    over = add_output(RULES, CODEC, looked, said(f"[ANSWER] {value}"))
    assert over.end == Terminated()
    assert over.ids == (*begun().ids, *said(f"LOOKUP[{word}]").ids, *looked.pending, *said(f"[ANSWER] {value}").ids)
    columns = transcripts((over,), capacity=200, calls=4)
    assert columns.reward[0].tolist() == pytest.approx([0.0, 1.1, 0.0, 0.0])
    assert columns.finish_reason[0].tolist() == [STOP, STOP, 0, 0]
    assert columns.source[0, 0] == USER
    assert (columns.source == TOOL).sum() == len(looked.pending)
    assert columns.is_action.sum() == len(f"LOOKUP[{word}]") + len(f"[ANSWER] {value}") + 2
    assert (columns.version[columns.is_action] == 7).all()
    assert (int(columns.id), int(columns.group), int(columns.turns), bool(columns.terminated)) == (3, 1, 2, True)


def test_no_room_for_another_call_is_a_truncation() -> None:
    short = begun(capacity=len(begun().ids) + 20, max_new_tokens=20)
    full = add_output(RULES, CODEC, short, said("hm" * 10, stop=False, finish_reason="length"))
    assert full.end == Truncated("max_seq_len")
    assert (full.room, full.pending) == (0, ())
    columns = transcripts((full,), capacity=short.capacity, calls=2)
    assert (int(columns.reason), bool(columns.terminated), int(columns.overflow)) == (MAX_SEQ_LEN, False, 0)
    assert columns.finish_reason[0, 0] == LENGTH
    assert columns.parse_error[0, 0]


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (evolve(said("5"), log_probs=()), ShapeError, "add_output: ids, log_probs, versions is of lengths"),
        (
            ModelOutput(ids=(262,), log_probs=(0.0,), versions=(0,)),
            ChoiceError,
            "add_output: ids is 262, wanted 0 to 261",
        ),
        (said("5" * 50), ChoiceError, "add_output: number of ids is 51, wanted at most 40"),
        (said("5", finish_reason="eos"), ChoiceError, "add_output: finish_reason is 'eos'"),
    ],
)
def test_what_no_sampler_could_have_given_is_refused(wrong: ModelOutput, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        add_output(RULES, CODEC, begun(), wrong)


def test_a_prompt_without_room_to_answer_is_refused() -> None:
    with pytest.raises(
        ChoiceError, match=r"begin_rollout: prompt is \d+ tokens long, wanted less than the capacity 10"
    ):
        begun(capacity=10)
    with pytest.raises(ChoiceError, match="begin_rollout: max_new_tokens is 0"):
        begun(max_new_tokens=0)


def test_a_call_given_up_may_be_made_again() -> None:
    given_up = add_output(RULES, CODEC, begun(), said("LOOK", finish_reason="abort"))
    assert given_up == begun()
    assert given_up.call == 0

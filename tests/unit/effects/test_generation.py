"""Generation in this process: whatever the slots and chunks, a call's tokens are its key's, and its log-probs the learner's."""

import os
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from purestep.core import keys
from purestep.core.bigram import bigram
from purestep.core.causal import CausalModel
from purestep.core.decoding.decode import drawing
from purestep.core.errors import ChoiceError
from purestep.core.language import parsers
from purestep.core.language.codec import Codec, byte_codec
from purestep.core.language.events import LENGTH, STOP, TOOL_CALL
from purestep.core.language.protocol import Protocol, protocol
from purestep.core.language.requests import Request, call_key, requests, rollouts, task_keys
from purestep.core.language.rollout import begin_rollout
from purestep.core.language.text_env import Outcome, TextEnv, Truncated
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import ModelTurn, Rollout
from purestep.core.tree import leaves
from purestep.properties import check
from purestep.runtime.effects.generation import engine
from purestep.runtime.effects.generation.engine import complete, generator
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama

from ...laws.core.decode import decode_laws
from ...laws.core.families import own_sampling, own_slots
from ...laws.core.sampling import sampling_laws

os.environ["HF_HUB_OFFLINE"] = "1"

test_decoding = check(decode_laws(), own_slots())
test_drawing = check(sampling_laws(), own_sampling())

CODEC = byte_codec()
BIGRAM = bigram(CODEC.vocabulary)
TABLE = BIGRAM.init(keys.key(0))
ROOM: dict[str, Any] = {"capacity": 72, "max_new_tokens": 9}
AnyAttempt = Rollout[Any]


def echo() -> Protocol[Any, Any]:
    """A world that shows as many letters as the last text had, three times."""

    def reset(params: Any, key: Tensor) -> tuple[int, str]:
        return 0, "abc"[: int(keys.randint(key, (), 1, 4))]

    def step(params: Any, state: int, action: str, key: Tensor) -> tuple[int, Outcome]:
        return state + 1, Outcome("x" * (len(action) % 5), 0.25, terminated=state == 2)

    return protocol(TextEnv((), reset, step), parsers.Parsed, max_steps=4, incomplete="accept")


WORLD = echo()


def asked(count: int = 7) -> tuple[Request, ...]:
    return requests(task_keys(keys.key(1), "training", count), keys.key(2))


def sampled(**changes: Any) -> tuple[AnyAttempt, ...]:
    options = {**ROOM, "slots": 3, **changes}
    return engine.rollouts(BIGRAM, TABLE, WORLD, CODEC, options.pop("asked", asked()), **options)


def heard(attempts: tuple[AnyAttempt, ...]) -> list[ModelTurn]:
    return [piece for one in attempts for piece in one.pieces if isinstance(piece, ModelTurn)]


def calls(attempt: AnyAttempt) -> list[tuple[tuple[int, ...], ModelTurn]]:
    """Each call with the ids before it."""
    found: list[tuple[tuple[int, ...], ModelTurn]] = []
    ids: tuple[int, ...] = ()
    for piece in attempt.pieces:
        if isinstance(piece, ModelTurn):
            found.append((ids, piece))
            ids = (*ids, *piece.said.ids)
        else:
            ids = (*ids, *piece.ids)
    return found


# --- what is sampled ---


def test_every_attempt_ends_and_tells_how() -> None:
    attempts = sampled()
    assert [one.rollout.request for one in attempts] == list(asked())
    assert all(not isinstance(one.end, tuple) for one in attempts)
    reasons = {piece.said.finish_reason for piece in heard(attempts)}
    assert reasons == {STOP, LENGTH}
    for piece in heard(attempts):
        assert (piece.said.ids[-1] in CODEC.stop) == (piece.said.finish_reason == STOP)
        assert not set(piece.said.ids[:-1]) & set(CODEC.stop)


@pytest.mark.parametrize(
    "changes",
    [{"slots": 1}, {"slots": 7}, {"slots": 50}, {"chunk_length": 4}, {"slots": 2, "chunk_length": 7}],
    ids=str,
)
def test_slots_and_chunks_change_nothing(changes: dict[str, Any]) -> None:
    assert sampled(**changes) == sampled()


def test_the_other_requests_and_their_order_change_nothing() -> None:
    order = (4, 2, 0, 6)
    alone = sampled(asked=[asked()[i] for i in order])
    assert alone == tuple(sampled()[i] for i in order)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (0.0, 1.0)])
def test_every_token_is_drawn_with_its_own_number(temperature: float, top_p: float) -> None:
    draw = drawing(temperature=temperature, top_p=top_p)
    for attempt in sampled(temperature=temperature, top_p=top_p, version=3):
        for call, (before, piece) in enumerate(calls(attempt)):
            last, said = before[-1], piece.said
            assert (said.temperature, said.top_p, set(said.versions)) == (temperature, top_p, {3})
            for i, (token, log_prob) in enumerate(zip(said.ids, said.log_probs, strict=True)):
                uniform = keys.uniform(keys.fold_in(call_key(attempt.rollout, call), i))
                wanted, score = draw(uniform, TABLE[last])
                assert token == int(wanted)
                assert log_prob == pytest.approx(float(score), abs=1e-6)
                last = token


def test_a_rollout_of_several_participants_has_keys_of_its_own() -> None:
    two = requests(task_keys(keys.key(1), "training", 2), keys.key(2), participants=("a", "b"))
    attempts = sampled(asked=two)
    assert [one.rollout for one in attempts] == [rollout for request in two for rollout in rollouts(request)]
    assert sampled(asked=[rollouts(two[1])[0]]) == (attempts[2],)
    assert len({one.ids for one in attempts}) == 4


# --- endings of texts ---


def until_capital(text: str) -> str:
    """Ends at the first capital letter."""
    return TOOL_CALL if any("A" <= letter <= "Z" for letter in text) else ""


def test_a_text_ends_where_it_is_over_and_what_lies_beyond_is_dropped() -> None:
    free, cut = sampled(max_new_tokens=30, capacity=200), sampled(max_new_tokens=30, capacity=200, ending=until_capital)
    reasons = {piece.said.finish_reason for piece in heard(cut)}
    assert TOOL_CALL in reasons
    for piece in heard(cut):
        text = CODEC.decode(piece.said.ids)
        assert until_capital(text) == (TOOL_CALL if piece.said.finish_reason == TOOL_CALL else "")
        assert not until_capital(CODEC.decode(piece.said.ids[:-1]))
    for one, other in zip(free, cut, strict=True):
        whole, shorter = calls(one)[0][1].said, calls(other)[0][1].said
        assert whole.ids[: len(shorter.ids)] == shorter.ids
        assert whole.log_probs[: len(shorter.ids)] == shorter.log_probs
    for length in (3, 8):
        again = sampled(max_new_tokens=30, capacity=200, ending=until_capital, chunk_length=length, slots=2)
        assert again == cut


# --- a model with more rows than its codec has ids ---


def test_ids_that_the_codec_has_not_say_nothing_and_stay_what_was_sampled() -> None:
    wider = bigram(CODEC.vocabulary + 60)
    table, options = wider.init(keys.key(0)), {**ROOM, "slots": 3, "ending": until_capital}
    attempts = engine.rollouts(wider, table, WORLD, CODEC, asked(), **options)
    beyond = [piece for piece in heard(attempts) if max(piece.said.ids) >= CODEC.vocabulary]
    assert beyond
    assert all(not isinstance(one.end, tuple) for one in attempts)
    for attempt in attempts:
        for before, piece in calls(attempt):
            whole, ids = (*before, *piece.said.ids), piece.said.ids
            wanted = [table[a].log_softmax(-1)[b] for a, b in zip(whole[len(before) - 1 :], ids, strict=False)]
            assert piece.said.log_probs == pytest.approx([float(value) for value in wanted], abs=1e-5)


# --- a model that reads what stands before ---


@pytest.fixture(scope="module")
def llama() -> tuple[CausalModel, Any, Any]:
    model = from_config(tiny_llama(CODEC.vocabulary, width=32, layers=2, inner=48, window=96))
    return model, model.init(keys.key(0)), model.init(keys.key(1))


def scores(model: CausalModel, params: Any, attempt: AnyAttempt, temperature: float = 1.0) -> Tensor:
    """The log-prob of each id given those before it: [L], 0 first."""
    ids = torch.tensor([attempt.ids])
    logits = model.head(params, model.apply(params, ids, (), ()))[0, :-1] / temperature
    found = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
    return torch.nn.functional.pad(found, (1, 0))


@pytest.mark.parametrize(("slots", "temperature"), [(2, 1.0), (5, 0.5)])
def test_the_learner_s_log_probs_are_the_sampler_s(llama: Any, slots: int, temperature: float) -> None:
    model, params, _ = llama
    options = {**ROOM, "slots": slots, "temperature": temperature}
    attempts = engine.rollouts(model, params, WORLD, CODEC, asked(5), **options)
    written = transcripts(attempts, capacity=72, calls=8)
    assert int(written.is_action.sum()) > 60
    for row, attempt in enumerate(attempts):
        wanted = scores(model, params, attempt, temperature)
        said = written.is_action[row, : len(attempt.ids)]
        got = written.behaviour_log_prob[row, : len(attempt.ids)]
        torch.testing.assert_close(got[said], wanted[said], rtol=1e-5, atol=1e-5)


def test_other_weights_may_take_over_between_chunks(llama: Any) -> None:
    """Each token is scored by the weights whose version it carries, over all that stands before it."""
    model, *weights = llama
    made = generator(model, WORLD, CODEC, slots=3, chunk_length=1, **ROOM)
    attempts = [begin_rollout(WORLD, CODEC, rollout, **ROOM) for one in asked(5) for rollout in rollouts(one)]
    generation, number = made.begin(weights[0], 0, attempts), 0
    while not generation.over:
        version = number // 4 % 5
        generation = made.advance(weights[version % 2], version, generation)
        number += 1
    mixed = [piece for piece in heard(generation.attempts) if len(set(piece.said.versions)) > 1]
    assert mixed
    for attempt in generation.attempts:
        each = [scores(model, params, attempt) for params in weights]
        for before, piece in calls(attempt):
            for i, (log_prob, version) in enumerate(zip(piece.said.log_probs, piece.said.versions, strict=True)):
                assert log_prob == pytest.approx(float(each[version % 2][len(before) + i]), abs=1e-5)


def test_weights_and_what_was_begun_stay_as_they_were(llama: Any) -> None:
    model, params, _ = llama
    before = [value.clone() for value in leaves(params)]
    made = generator(model, WORLD, CODEC, slots=2, **ROOM)
    attempts = [begin_rollout(WORLD, CODEC, rollouts(one)[0], **ROOM) for one in asked(3)]
    begun = made.begin(params, 0, attempts)
    once = made.advance(params, 0, begun)
    assert complete(made, params, 0, attempts) == complete(made, params, 0, attempts)
    again = made.advance(params, 0, begun)
    assert all(torch.equal(a, b) for a, b in zip(leaves(once.decoding), leaves(again.decoding), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(leaves(params), before, strict=True))


def test_an_attempt_half_way_goes_on_where_it_is(llama: Any) -> None:
    model, params, _ = llama
    made = generator(model, WORLD, CODEC, slots=2, chunk_length=1, **ROOM)
    attempts = [begin_rollout(WORLD, CODEC, rollouts(one)[0], **ROOM) for one in asked(3)]
    generation = made.begin(params, 0, attempts)
    for _ in range(14):
        generation = made.advance(params, 0, generation)
    halfway = generation.attempts
    assert any(one.call for one in halfway)
    finished = complete(made, params, 0, halfway)
    assert [one.ids for one in finished] == [one.ids for one in complete(made, params, 0, attempts)]
    assert complete(made, params, 0, finished) == finished


# --- edges and refusals ---


def test_no_requests_no_attempts() -> None:
    assert sampled(asked=[]) == ()


def test_an_attempt_that_finds_no_more_room_is_truncated() -> None:
    attempts = sampled(capacity=20)
    assert Truncated("max_seq_len") in {one.end for one in attempts}
    assert all(len(one.ids) <= 20 for one in attempts)


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    sampled(progress=lambda ended, whole: told.append((ended, whole)))
    assert told[-1] == (7, 7)
    assert told == sorted(told)


def without_prompts(codec: Codec) -> Codec:
    return evolve(codec, encode=lambda events, closed: tuple(() for _ in events))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"capacity": 3}, "begin_rollout: prompt is . tokens long, wanted less than the capacity 3"),
        ({"temperature": -1.0}, "sampled: temperature is -1.0"),
        ({"top_p": 0.0}, "sampled: top_p is 0.0"),
        ({"chunk_length": 0}, r"slots, chunk_length is \(3, 0\)"),
    ],
)
def test_options_that_mean_nothing_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ChoiceError, match=says):
        sampled(**changes)


def test_models_and_attempts_that_do_not_fit_are_refused(llama: Any) -> None:
    model, params, _ = llama
    with pytest.raises(ChoiceError, match=r"codec.vocabulary is 262, wanted at most the model's 200"):
        generator(bigram(200), WORLD, CODEC, **ROOM)
    with pytest.raises(ChoiceError, match="begin: capacity is 97, wanted at most the window 96"):
        engine.rollouts(model, params, WORLD, CODEC, asked(1), capacity=97, max_new_tokens=4)
    long = begin_rollout(WORLD, CODEC, rollouts(asked(1)[0])[0], capacity=90, max_new_tokens=4)
    with pytest.raises(ChoiceError, match=r"max_new_tokens is \(90, 4\), wanted at most the slots' \(72, 9\)"):
        generator(model, WORLD, CODEC, **ROOM).begin(params, 0, [long])
    with pytest.raises(ChoiceError, match="begin: prompt is without a token"):
        engine.rollouts(model, params, WORLD, without_prompts(CODEC), asked(1), **ROOM)


@pytest.mark.slow
def test_compiled_chunks_score_as_a_full_pass_does(llama: Any) -> None:
    """Once sampled, tokens differ where one rounding does; the log-probs of what was sampled do not."""
    model, params, _ = llama
    made = generator(model, WORLD, CODEC, slots=3, chunk_length=2, compiled=True, **ROOM)
    attempts = [begin_rollout(WORLD, CODEC, rollouts(one)[0], **ROOM) for one in asked(5)]
    for attempt in complete(made, params, 4, attempts):
        wanted = scores(model, params, attempt)
        for before, piece in calls(attempt):
            assert set(piece.said.versions) == {4}
            got = torch.tensor(piece.said.log_probs)
            torch.testing.assert_close(got, wanted[len(before) : len(before) + len(got)], rtol=1e-5, atol=1e-5)

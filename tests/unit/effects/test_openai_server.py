"""Servers as samplers, the client and all of its faults included, without a network: what comes back is what was sampled."""

import ast
import asyncio
import json
import os
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from attrs import field, frozen

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.codec import byte_codec
from purestep.core.language.events import STOP
from purestep.core.language.protocol import Protocol, protocol
from purestep.core.language.requests import RolloutSpec, expand, requests, rollouts, task_keys
from purestep.core.language.rollout import begin_rollout
from purestep.core.language.text_env import Outcome, Raised, Terminated, TextEnv
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import ModelTurn, Rollout
from purestep.core.language.zorplex.env import zorplex, zorplex_parser
from purestep.core.transcript.log_probs import token_log_probs
from purestep.runtime.effects.openai_server import client, parse_response, sample
from purestep.runtime.effects.openai_server.client import Server, wait_for
from purestep.runtime.effects.openai_server.sample import ServerError, sample_from_server, server

httpx2 = pytest.importorskip("httpx2")
pytest.importorskip("openai")

CODEC = byte_codec()
RULES = protocol(zorplex(), zorplex_parser(), max_steps=5)
Answer = Callable[[dict[str, Any]], Any]  # the body of a request -> a JSON value, a response, or an exception to raise


@frozen
class Fake:
    """A server in this process: how it answers, and what it was asked."""

    answer: Callable[[dict[str, Any]], Awaitable[Any]]
    bodies: list[dict[str, Any]] = field(factory=list)

    def server(self, **options: Any) -> Server:
        async def respond(request: Any) -> Any:
            body = json.loads(request.content)
            self.bodies.append(body)
            made = await self.answer(body)
            return made if isinstance(made, httpx2.Response) else httpx2.Response(200, json=made)

        def carrier() -> Any:
            return httpx2.AsyncClient(transport=httpx2.MockTransport(respond))

        return server("http://fake/v1", "tiny", http_client=carrier, **{"timeout": 5.0, "retries": 0, **options})


def fake(answer: Answer) -> Fake:
    async def soon(body: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return answer(body)

    return Fake(soon)


def all_rollouts(n: int, stream: str = "training") -> tuple[RolloutSpec, ...]:
    asked = requests(task_keys(keys.key(3), stream, n), keys.key(4))
    return tuple(rollout for request in asked for rollout in rollouts(request))


def begun(n: int, rules: Protocol[Any, Any] = RULES, *, capacity: int = 256) -> list[Rollout[Any]]:
    return [begin_rollout(rules, CODEC, one, capacity=capacity, max_new_tokens=32) for one in all_rollouts(n)]


def reply(body: dict[str, Any], ids: list[int], finish: str = "stop", **changes: Any) -> dict[str, Any]:
    """What a vLLM server answers, these ids sampled."""
    choice = {
        "index": 0,
        "text": CODEC.decode(ids),
        "token_ids": ids,
        "prompt_token_ids": body["prompt"],
        "logprobs": {"token_logprobs": [-0.5 - 0.001 * place for place in range(len(ids))]},
        "finish_reason": finish,
        **changes,
    }
    return {"id": "x", "object": "text_completion", "created": 0, "model": "tiny", "choices": [choice]}


def expert(prompt: bytes) -> str:
    """Looks up what was not looked up yet, and adds."""
    words = re.findall(rb"zorplex\[(\w+)\]", prompt)
    found = re.findall(rb"LOOKUP\[\w+\].(?:.)(\d+)", prompt, re.DOTALL)
    if len(found) < len(words):
        return f"LOOKUP[{words[len(found)].decode()}]"
    return f"[ANSWER] {sum(map(int, found))}"


def ideal(body: dict[str, Any]) -> Any:
    prompt = bytes(min(token, 255) for token in body["prompt"])
    return reply(body, [*expert(prompt).encode(), CODEC.stop[0]])


# --- what is sampled comes back as it is ---


def test_attempts_come_back_ended_in_order_with_the_servers_own_ids() -> None:
    one = fake(ideal)
    before = begun(6)
    after = sample_from_server(one.server(concurrency=3), RULES, CODEC, before, version=7)
    assert [attempt.rollout for attempt in after] == [attempt.rollout for attempt in before]
    for first, last in zip(before, after, strict=True):
        assert last.end == Terminated()
        assert last.episode.world.answer == last.episode.world.task.answer
        heard = [piece.said for piece in last.pieces if isinstance(piece, ModelTurn)]
        assert [said.versions for said in heard] == [(7,) * len(said.ids) for said in heard]
        assert [said.log_probs[1] for said in heard] == [-0.501] * 3
        assert {said.finish_reason for said in heard} == {STOP}
        asked = [body for body in one.bodies if body["prompt"][: len(first.ids)] == list(first.ids)]
        assert len(asked) == 3
        for body, said, following in zip(asked, heard, [*asked[1:], {"prompt": list(last.ids)}], strict=True):
            told = [*body["prompt"], *said.ids]
            assert following["prompt"][: len(told)] == told  # each prompt extends what stands
    assert transcripts(after, capacity=256, calls=3).overflow.sum() == 0


def test_a_request_asks_for_the_plain_distribution_and_for_what_learning_needs() -> None:
    one = fake(ideal)
    attempt = begun(1)[0]
    sample_from_server(one.server(), RULES, CODEC, [attempt], version=0)
    body = one.bodies[0]
    assert (body["model"], body["prompt"], body["max_tokens"]) == ("tiny", list(attempt.ids), 32)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, -1, 0.0)
    assert (body["repetition_penalty"], body["presence_penalty"], body["frequency_penalty"]) == (1.0, 0.0, 0.0)
    assert (body["logprobs"], body["return_token_ids"], body["ignore_eos"]) == (0, True, True)
    assert body["stop_token_ids"] == list(CODEC.stop)


def test_seeds_are_of_the_call_and_the_sampling_key_alone() -> None:
    group = expand(requests(task_keys(keys.key(3), "training", 1), keys.key(4))[0], 4, keys.key(5))
    attempts = [
        begin_rollout(RULES, CODEC, rollout, capacity=256, max_new_tokens=32)
        for request in group
        for rollout in rollouts(request)
    ]
    seeds = []
    for order in (attempts, attempts[::-1], attempts[:1]):
        one = fake(ideal)
        sample_from_server(one.server(concurrency=1), RULES, CODEC, order, version=0)
        seeds.append({body["seed"] for body in one.bodies})
    assert seeds[0] == seeds[1]
    assert seeds[2] < seeds[0]
    assert len(seeds[0]) == 12  # four attempts at one task, three calls each
    assert all(0 <= seed < 2**53 for seed in seeds[0])


def test_a_real_models_log_probs_are_those_a_learner_finds() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=CODEC.vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval()

    def scores(ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = model(input_ids=torch.tensor([ids])).logits[0]
        return logits

    def sampled(body: dict[str, Any]) -> Any:
        generator, ids, log_probs = torch.Generator().manual_seed(body["seed"]), list(body["prompt"]), list[float]()
        while len(log_probs) < body["max_tokens"] and ids[-1] not in body["stop_token_ids"][: len(log_probs)]:
            row = torch.log_softmax(scores(ids)[-1], -1)
            ids.append(int(torch.multinomial(row.exp(), 1, generator=generator)))
            log_probs.append(float(row[ids[-1]]))
        new = ids[len(body["prompt"]) :]
        finish = "stop" if new[-1] in body["stop_token_ids"] else "length"
        return reply(body, new, finish, logprobs={"token_logprobs": log_probs})

    rules = protocol(zorplex(), zorplex_parser(), max_steps=2)
    attempts = [
        begin_rollout(rules, CODEC, one, capacity=160, max_new_tokens=12) for one in all_rollouts(3, "evaluation")
    ]
    after = sample_from_server(fake(sampled).server(), rules, CODEC, attempts, version=1)
    assert sample_from_server(fake(sampled).server(), rules, CODEC, attempts, version=1) == after
    written = transcripts(after, capacity=160, calls=2)
    assert written.is_action.sum() > 20
    for row, attempt in enumerate(after):
        found = token_log_probs(scores(list(attempt.ids)), torch.tensor(attempt.ids))
        acted = written.is_action[row, : len(attempt.ids)]
        ours = written.behaviour_log_prob[row, : len(attempt.ids)]
        torch.testing.assert_close(found[acted], ours[acted], atol=1e-5, rtol=0)


# --- what cannot be learned from is refused ---

HELLO = [*b"LOOKUP[hello]", 256]
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"token_ids": None}, "token_ids is absent, wanted one for each token sampled; train with a server that"),
    "no log-probs": ({"logprobs": None}, "token_logprobs is absent"),
    "null log-probs": ({"logprobs": {"token_logprobs": None}}, "token_logprobs is absent"),
    "a log-prob of null": ({"logprobs": {"token_logprobs": [None] * 14}}, "token_logprobs is .None"),
    "too few log-probs": ({"logprobs": {"token_logprobs": [-1.0]}}, "token_logprobs is 1 for 14 tokens"),
    "a log-prob of NaN": (
        {"logprobs": {"token_logprobs": [float("nan")] * 14}},
        "token_logprobs is nan, wanted finite and at most 0",
    ),
    "a positive log-prob": ({"logprobs": {"token_logprobs": [0.5] * 14}}, "token_logprobs is 0.5"),
    "ids of a larger vocabulary": ({"token_ids": [*HELLO[:-1], 262]}, "token_ids is 262 among others, wanted 0 to 261"),
    "ids of another model": ({"token_ids": [*b"HELLO[lookup]", 256]}, "text is 'LOOKUP.hello.', wanted what its ids"),
    "ids that are none": ({"token_ids": ["L"] * 14}, "token_ids is .'L'"),
    "a prompt with a token before it": ({"prompt_token_ids": [1, 2]}, "prompt is read as .1, 2., wanted the ids sent"),
    "a prompt of unknown ids": ({"prompt_token_ids": None}, "prompt is None tokens"),
    "more than was asked for": (
        {"token_ids": [72] * 33, "logprobs": {"token_logprobs": [-1.0] * 33}},
        "number of tokens is 33, wanted at most 32",
    ),
    "a stop without its token": (
        {"token_ids": HELLO[:-1], "logprobs": {"token_logprobs": [-1.0] * 13}},
        "token_ids is ended by 93 at a finish of 'stop', wanted one of .256,",
    ),
    "a stop after nothing": (
        {"token_ids": [], "text": "", "logprobs": {"token_logprobs": []}},
        "token_ids is ended by nothing at a finish of 'stop', wanted one of .256,",
    ),
    "another reason to end": ({"finish_reason": "content_filter"}, "finish_reason is 'content_filter'"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_an_answer_that_cannot_be_learned_from_is_refused_with_the_reason(case: str) -> None:
    changes, reason = UNFIT[case]

    def as_text(body: dict[str, Any]) -> Any:
        text = json.dumps(reply(body, HELLO, **changes))
        return httpx2.Response(200, text=text, headers={"content-type": "application/json"})

    with pytest.raises(ServerError, match=f"^http://fake/v1: {reason}") as caught:
        sample_from_server(fake(as_text).server(), RULES, CODEC, begun(1), version=0)
    assert "\n" not in str(caught.value)


def test_a_server_that_only_counts_the_prompt_is_believed_where_the_number_fits() -> None:
    def counted(body: dict[str, Any]) -> Any:
        made = ideal(body)
        made["choices"][0]["prompt_token_ids"] = None
        return {**made, "usage": {"prompt_tokens": len(body["prompt"])}}

    assert sample_from_server(fake(counted).server(), RULES, CODEC, begun(1), version=0)[0].end == Terminated()


def test_broken_letters_are_a_matter_of_taste_and_a_stop_token_is_a_stop() -> None:
    def broken(body: dict[str, Any]) -> Any:
        return reply(body, [0xFF, 0xFE, 256], "length", text="\ufffd")

    (attempt,) = sample_from_server(fake(broken).server(), RULES, CODEC, begun(1), version=0)
    assert {step.finish_reason for step in attempt.episode.steps} == {STOP}


@pytest.mark.parametrize(
    ("temperature", "top_p", "log_probs", "reason"),
    [
        (0.7, 1.0, "raw", "start vLLM with --logprobs-mode processed_logprobs"),
        (1.0, 0.9, "raw", "start vLLM with --logprobs-mode processed_logprobs"),
        (-1.0, 1.0, "processed", "temperature >= 0"),
        (1.0, 0.0, "processed", "0 < top_p <= 1"),
        (1.0, 1.0, "Raw", "did you mean 'raw'"),
    ],
)
def test_log_probs_of_another_distribution_are_refused(
    temperature: float, top_p: float, log_probs: str, reason: str
) -> None:
    one = fake(ideal)
    with pytest.raises(ChoiceError, match=reason):
        sample_from_server(
            one.server(), RULES, CODEC, begun(1), version=0, temperature=temperature, top_p=top_p, log_probs=log_probs
        )
    assert not one.bodies


def test_processed_log_probs_serve_any_temperature_and_certainty_needs_none() -> None:
    def said(**sampling: Any) -> Any:
        one = fake(ideal)
        (attempt,) = sample_from_server(one.server(), RULES, CODEC, begun(1), version=0, **sampling)
        return next(piece.said for piece in attempt.pieces if isinstance(piece, ModelTurn)), one.bodies[0]

    warm, body = said(temperature=0.7, top_p=0.9, log_probs="processed")
    assert (warm.temperature, warm.top_p, body["temperature"], body["top_p"]) == (0.7, 0.9, 0.7, 0.9)
    assert warm.log_probs[0] == -0.5
    greedy, body = said(temperature=0.0)
    assert (greedy.temperature, body["temperature"], set(greedy.log_probs)) == (0.0, 0.0, {0.0})


def test_a_version_below_zero_is_refused() -> None:
    with pytest.raises(ChoiceError, match="served: version is -1"):
        sample_from_server(fake(ideal).server(), RULES, CODEC, begun(1), version=-1)


# --- faults on the way ---


def failing(error: Exception) -> Answer:
    def answer(body: dict[str, Any]) -> Any:
        raise error

    return answer


FAULTS: dict[str, tuple[Any, str]] = {
    "malformed JSON": (
        lambda body: httpx2.Response(200, text="{", headers={"content-type": "application/json"}),
        "not JSON",
    ),
    "a web page": (lambda body: httpx2.Response(200, text="<html>", headers={"content-type": "text/html"}), "not JSON"),
    "another API": (lambda body: {"outputs": []}, "answer is .*outputs.*, wanted one choice"),
    "a list": (lambda body: [1], "answer is .1., wanted one choice"),
    "no choice": (lambda body: {"choices": []}, "wanted one choice"),
    "a refusal": (
        lambda body: httpx2.Response(400, json={"error": {"message": "prompt too long\nby far"}}),
        "answer is status 400: .*prompt too long",
    ),
    "out of order": (lambda body: httpx2.Response(503, text="busy"), "answer is status 503"),
    "a lost connection": (failing(httpx2.ReadError("gone")), r"answer is none \(gone\).*see whether the server runs"),
    "a slow server": (failing(httpx2.ReadTimeout("slow")), "silent until the time-out"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_one_error_that_names_the_server(case: str) -> None:
    answer, reason = FAULTS[case]
    with pytest.raises(ServerError, match=f"^http://fake/v1: .*{reason}") as caught:
        sample_from_server(fake(answer).server(), RULES, CODEC, begun(2), version=0)
    assert "\n" not in str(caught.value)


def test_what_passes_by_itself_is_tried_again() -> None:
    tries: dict[int, int] = {}

    def at_first_busy(body: dict[str, Any]) -> Any:
        tries[body["seed"]] = tries.get(body["seed"], 0) + 1
        if tries[body["seed"]] == 1:
            return httpx2.Response(503, headers={"retry-after-ms": "1"})
        return ideal(body)

    after = sample_from_server(fake(at_first_busy).server(retries=1), RULES, CODEC, begun(2), version=0)
    assert [attempt.end for attempt in after] == [Terminated()] * 2
    assert set(tries.values()) == {2}


def test_a_server_that_answers_nothing_is_given_up() -> None:
    async def silent(body: dict[str, Any]) -> Any:
        await asyncio.sleep(30)

    with pytest.raises(ServerError, match="silent until the time-out"):
        sample_from_server(Fake(silent).server(timeout=0.05), RULES, CODEC, begun(1), version=0)


def waiting(cancelled: list[int], then: Callable[[], Any]) -> Fake:
    """A server that answers none but the last of three requests, with `then`, and notes whose connection was closed."""
    number = 0

    async def answer(body: dict[str, Any]) -> Any:
        nonlocal number
        number += 1
        mine = number
        if mine == 3:
            then()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(mine)
            raise

    return Fake(answer)


def test_where_one_attempt_fails_the_others_are_cancelled() -> None:
    def fail() -> None:
        raise httpx2.ReadError("gone")

    cancelled: list[int] = []
    with pytest.raises(ServerError, match="gone"):
        sample_from_server(waiting(cancelled, fail).server(), RULES, CODEC, begun(3), version=0)
    assert sorted(cancelled) == [1, 2]


def test_ctrl_c_cancels_all_of_them() -> None:
    cancelled: list[int] = []
    one = waiting(cancelled, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        sample_from_server(one.server(), RULES, CODEC, begun(3), version=0)
    assert sorted(cancelled) == [1, 2, 3]


def test_no_more_requests_are_under_way_than_allowed() -> None:
    running, most = 0, 0

    async def slow(body: dict[str, Any]) -> Any:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.001)
        running -= 1
        return ideal(body)

    sample_from_server(Fake(slow).server(concurrency=3), RULES, CODEC, begun(8), version=0)
    assert most == 3


def test_a_call_that_the_server_gave_up_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "PAUSE", 0.0)
    given_up: list[int] = []

    def at_first_paused(body: dict[str, Any]) -> Any:
        if body["seed"] not in given_up:
            given_up.append(body["seed"])
            return reply(body, [72], "abort")
        return ideal(body)

    after = sample_from_server(fake(at_first_paused).server(), RULES, CODEC, begun(2), version=0)
    assert after == sample_from_server(fake(ideal).server(), RULES, CODEC, begun(2), version=0)
    with pytest.raises(ServerError, match="abort is 51 times in a row"):
        sample_from_server(fake(lambda body: reply(body, [], "abort")).server(), RULES, CODEC, begun(1), version=0)


def test_a_world_that_takes_its_time_keeps_no_other_request_waiting() -> None:
    together = threading.Barrier(3, timeout=5.0)  # three steps of the world must run at once to pass it

    def slow(params: Any, state: Any, action: Any, key: Any) -> tuple[Any, Outcome]:
        together.wait()
        return state, Outcome(terminated=True)

    rules = protocol(TextEnv((), lambda _, key: ((), "What is zorplex[a]?"), slow), zorplex_parser(), max_steps=1)
    after = sample_from_server(fake(ideal).server(), rules, CODEC, begun(3, rules), version=0)
    assert [attempt.end for attempt in after] == [Terminated()] * 3


def test_a_world_that_hangs_keeps_no_process_from_ending() -> None:
    left_behind: list[bool] = []  # at its end a process waits for all threads but those that are daemons

    def reset(params: Any, key: Any) -> tuple[Any, str]:
        left_behind.append(threading.current_thread().daemon)
        return (), "What is zorplex[a]?"

    def once(params: Any, state: Any, action: Any, key: Any) -> tuple[Any, Outcome]:
        left_behind.append(threading.current_thread().daemon)
        return state, Outcome(terminated=True)

    rules = protocol(TextEnv((), reset, once), zorplex_parser(), max_steps=1)
    attempts = begun(2, rules)
    left_behind.clear()
    sample_from_server(fake(ideal).server(), rules, CODEC, attempts, version=0)
    assert left_behind == [True, True]


def test_what_a_world_raises_ends_its_episode() -> None:
    def broken(params: Any, state: Any, action: Any, key: Any) -> tuple[Any, Outcome]:
        raise LookupError("no such world")

    rules = protocol(TextEnv((), lambda _, key: ((), "What is zorplex[a]?"), broken), zorplex_parser(), max_steps=1)
    (rollout,) = sample_from_server(fake(ideal).server(), rules, CODEC, begun(1, rules), version=0)
    assert rollout.end == Raised("LookupError: no such world")


def test_no_more_worlds_step_at_once_than_requests_are_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def busy(params: Any, state: Any, action: Any, key: Any) -> tuple[Any, Outcome]:
        nonlocal running, most
        with lock:
            running, most = running + 1, max(most, running + 1)
        time.sleep(0.01)
        with lock:
            running -= 1
        return state, Outcome(terminated=True)

    rules = protocol(TextEnv((), lambda _, key: ((), "What is zorplex[a]?"), busy), zorplex_parser(), max_steps=1)
    sample_from_server(fake(ideal).server(concurrency=2), rules, CODEC, begun(6, rules), version=0)
    assert most == 2


def test_it_also_runs_where_an_event_loop_runs_already() -> None:
    async def notebook() -> Any:
        return sample_from_server(fake(ideal).server(), RULES, CODEC, begun(1), version=0)

    assert asyncio.run(notebook())[0].end == Terminated()


def test_ctrl_c_in_a_notebook_cancels_all_of_them() -> None:
    cancelled: list[int] = []
    one = waiting(cancelled, lambda: os.kill(os.getpid(), signal.SIGINT))

    async def notebook() -> Any:
        return sample_from_server(one.server(), RULES, CODEC, begun(3), version=0)

    loop = asyncio.new_event_loop()  # it leaves Ctrl-C as it is, as a notebook does
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(notebook())
    finally:
        loop.close()
    assert sorted(cancelled) == [1, 2, 3]


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("fake/v1", {}),
        ("http://fake", {"timeout": 0.0}),
        ("http://fake", {"retries": -1}),
        ("http://fake", {"concurrency": 0}),
    ],
)
def test_settings_that_cannot_be_are_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ChoiceError, match=r"^server: (url|timeout|retries|concurrency) is "):
        server(url, "tiny", **options)


def listing(*names: str, busy: int = 0) -> tuple[Callable[[], Any], list[str]]:
    """What carries requests to a server with these models, that is busy at first; and what was asked for."""
    asked: list[str] = []

    async def respond(request: Any) -> Any:
        await asyncio.sleep(0)
        asked.append(request.url.path)
        data = [{"id": name, "object": "model"} for name in names]
        return httpx2.Response(503) if len(asked) <= busy else httpx2.Response(200, json={"data": data})

    return lambda: httpx2.AsyncClient(transport=httpx2.MockTransport(respond)), asked


def test_a_server_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.001)
    carrier, asked = listing("tiny", busy=2)
    wait_for(server("http://fake/v1", "tiny", retries=0, http_client=carrier), 5.0)
    assert asked == ["/v1/models"] * 3
    wait_for(server("http://fake/v1", "b", http_client=listing("a", "b")[0]), 5.0)
    busy = server("http://fake/v1", "tiny", retries=0, http_client=listing("tiny", busy=10**6)[0])
    with pytest.raises(ServerError, match="status 503"):
        wait_for(busy, 0.01)


def test_a_server_that_is_silent_is_waited_for_no_longer_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOOK", 0.1)

    async def silent(request: Any) -> Any:
        await asyncio.sleep(30)

    def carrier() -> Any:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(silent))

    start = time.monotonic()
    with pytest.raises(ServerError, match="silent until the time-out"):
        wait_for(server("http://fake/v1", "tiny", timeout=20.0, http_client=carrier), 0.2)
    assert time.monotonic() - start < 10.0


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_does_not_let_us_in_is_asked_once(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE", 0.001)
    asked: list[str] = []

    async def respond(request: Any) -> Any:
        await asyncio.sleep(0)
        asked.append(request.url.path)
        return httpx2.Response(status, json={"error": {"message": "wrong key"}})

    def carrier() -> Any:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(respond))

    with pytest.raises(ServerError, match=f"status {status}: .*wrong key"):
        wait_for(server("http://fake/v1", "tiny", http_client=carrier), 0.3)
    assert asked == ["/v1/models"]


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_a_server_without_the_model_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ServerError, match=r"models is .*, wanted 'c'; name the one to ask"):
        wait_for(server("http://fake/v1", "c", http_client=listing(*names)[0]), 5.0)


@pytest.mark.parametrize("module", [sample, client, parse_response])
def test_importing_brings_no_client(module: ModuleType) -> None:
    """Only functions import it: it is an extra."""
    top = ast.parse(Path(str(module.__file__)).read_text()).body
    modules = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in top if isinstance(node, ast.ImportFrom) and not node.level}
    assert modules
    assert not {name.partition(".")[0] for name in modules} & {"openai", "httpx2", "httpx"}

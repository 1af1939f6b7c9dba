"""Environments whose step, reward, tools or parser raise: the episode is marked and left out, and the run goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

pytest.importorskip("transformers")

from purestep.algorithms.language.batch import Handling, Reading, count_tokens, learned_from
from purestep.algorithms.language.objectives import grpo, reinforce, rloo
from purestep.core import keys
from purestep.core.errors import ChoiceError, PurestepError, WorldError
from purestep.core.language.codec import byte_codec
from purestep.core.language.episode import Completion
from purestep.core.language.parsers import Call, Parsed
from purestep.core.language.protocol import Protocol, begin_episode, protocol, turn_after
from purestep.core.language.reasoning_cache.events import CacheState, Fetched, PublishGroup, Replied
from purestep.core.language.reasoning_cache.machine import reasoning_cache
from purestep.core.language.reasoning_cache.rollouts import summarization_rollout
from purestep.core.language.reasoning_cache.schedule import reasoning_machine
from purestep.core.language.reasoning_cache.settings import CacheSettings
from purestep.core.language.reasoning_cache.state import Problem, Reply
from purestep.core.language.requests import Request, expand
from purestep.core.language.requests import rollouts as rollouts_of
from purestep.core.language.rollout import add_output, begin_rollout
from purestep.core.language.text_env import Outcome, Raised, TextEnv
from purestep.core.language.to_transcript import transcripts
from purestep.core.language.types import ModelOutput, Transcript
from purestep.core.machine import Started
from purestep.core.record import take
from purestep.core.transcript.log_probs import loss_mask
from purestep.core.transcript.record import FAILED
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.recipes.zorplex import Zorplex, zorplex_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text import components, run

KEY = keys.key(0)
ERROR = "ValueError: no number in this text"


def raising(*given: Any) -> Any:
    raise ValueError("no number\nin this text")


def rules(**changes: Any) -> Protocol[Any, Any]:
    parts: dict[str, Any] = {"step": lambda params, state, action, key: (state, Outcome(reward=1.0, terminated=True))}
    given = {name: value for name, value in changes.items() if name != "parser"}
    env = TextEnv((), lambda params, key: ((), "2?"), **{**parts, **given})
    return protocol(env, changes.get("parser", Parsed), max_steps=3)


WAYS: dict[str, Protocol[Any, Any]] = {
    "step": rules(step=raising),
    "tool": rules(tools={"ASK": raising}, parser=lambda text: Parsed(Call("ASK", text))),
    "parser": rules(parser=raising),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_raises_ends_its_episode(way: str) -> None:
    begun, _ = begin_episode(WAYS[way], KEY)
    episode, end = turn_after(WAYS[way], begun, Completion("5"), KEY)
    assert end == episode.end == Raised(ERROR)
    assert episode.steps == ()
    assert episode.calls == 1
    assert episode.events[-1].text == "5"
    again, end = turn_after(WAYS[way], episode, Completion("6"), KEY)
    assert again is episode
    assert end == Raised(ERROR)


@pytest.mark.parametrize("way", ["step", "tool", "parser"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ChoiceError("world: a is 1, wanted 2; say 2")])
def test_an_interruption_and_a_broken_contract_are_raised(way: str, error: BaseException) -> None:
    def raises(*given: Any) -> Any:
        raise error

    changes: dict[str, Any] = {way: raises} if way != "tool" else {"tools": {"ASK": raises}}
    made = rules(**changes, **({"parser": lambda text: Parsed(Call("ASK", text))} if way == "tool" else {}))
    with pytest.raises(type(error)):
        turn_after(made, begin_episode(made, KEY)[0], Completion("5"), KEY)


def test_a_reset_that_raises_is_one_line() -> None:
    env = TextEnv((), raising, lambda *given: ((), Outcome()))
    with pytest.raises(WorldError, match="world: reset is ValueError: no number in this text, wanted a state and"):
        begin_episode(protocol(env, Parsed, max_steps=1), KEY)


def batch(worth: list[float | str]) -> Transcript:
    """Attempts of one group, with these rewards; a text is a raised error."""

    def act(params: Any, state: Any, action: str, key: Tensor) -> tuple[Any, Outcome]:
        value = worth[int(action)]
        return (state, Outcome(reward=value, terminated=True)) if isinstance(value, float) else raising()

    made, codec = rules(step=act), byte_codec()
    asked = expand(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)), len(worth), KEY)
    ended = []
    for place, request in enumerate(asked):
        begun = begin_rollout(made, codec, rollouts_of(request)[0], capacity=16, max_new_tokens=4)
        said = ModelOutput(ids=(*str(place).encode(), 256), log_probs=(-0.5, -0.25), versions=(0, 0))
        ended.append(add_output(made, codec, begun, said))
    return transcripts(ended, capacity=16, calls=3)


@pytest.mark.parametrize("objective", [grpo(), rloo(), reinforce()], ids=["grpo", "rloo", "reinforce"])
@pytest.mark.parametrize("truncated", ["keep", "mask", "down_weight", "drop"])
@pytest.mark.parametrize("of", ["counted", "sampled"])
def test_a_failed_sample_is_learned_from_as_if_it_had_never_been_sampled(
    objective: Any, truncated: str, of: str
) -> None:
    whole = batch([1.0, "raises", 0.0, 0.5, "raises"])
    assert whole.reason.tolist() == [0, FAILED, 0, 0, FAILED]
    assert whole.truncated.tolist() == [False, True, False, False, True]
    assert loss_mask(whole).any(-1).tolist() == [True, False, True, True, False]
    rest = take(whole, torch.tensor([0, 2, 3]))
    handling = Handling(truncated=truncated)
    start = () if isinstance(objective.memory, tuple) else torch.zeros(1)
    given = Reading(), start, torch.tensor(0)
    found, memory, figures = learned_from(objective, handling, whole, *given)
    wanted, other, others = learned_from(objective, handling, rest, *given)
    assert memory == other
    assert torch.equal(found.advantage[[0, 2, 3]], wanted.advantage)
    assert bool(wanted.advantage.any())
    assert not bool(found.advantage[[1, 4]].any())
    assert torch.equal(found.mask[[0, 2, 3]], wanted.mask)
    assert count_tokens(found, of=of).tokens == count_tokens(wanted, of=of).tokens
    assert count_tokens(found, of=of).sequences == count_tokens(wanted, of=of).sequences
    assert float(figures["failed"]) == pytest.approx(0.4)
    assert {name: float(value) for name, value in figures.items() if name != "failed"} == {
        name: float(value) for name, value in others.items() if name != "failed"
    }


def test_a_rollout_policy_that_raises_ends_its_attempt() -> None:
    def policy(state: Any, asked: Any, reply: Reply) -> Any:
        return raising()

    cache = reasoning_cache(policy, summarization_rollout)
    settings = CacheSettings(output_dir="runs/rc", problem_queue_size=1, attempts=1, num_samples_per_problem=1)
    machine = reasoning_machine(cache, settings)
    asking, _ = machine.step(CacheState(), Started())
    problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    running, (call,) = machine.step(asking, Fetched(first=0, problems=(problem,), last=True))
    reply = Reply(cycle_step=0, text="5")
    _, commands = machine.step(running, Replied(attempt=call.attempt, asked=call.asked, reply=reply))
    published = next(one for one in commands if isinstance(one, PublishGroup))
    assert [one.failed for one in published.result.attempts] == [ERROR]


TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warm_steps": 20,
    "demonstrations": 8,
    "warm_batch": 4,
    "steps": 2,
    "minibatches": 1,
    "groups": 2,
    "samples": 4,
    "held_out": 2,
    "max_turns": 3,
    "max_new_tokens": 8,
    "capacity": 64,
}
BESIDE: dict[str, Any] = {"generator_engine": "thread", "generator_slots": 4, "mode": "async"}
Breaks = Callable[[str, Tensor], bool]


def tiny(**changes: Any) -> Zorplex:
    return changed(zorplex_defaults(), {**TINY, **changes})


def breaking(monkeypatch: pytest.MonkeyPatch, way: str, fails: Breaks) -> None:
    """Has texts that no zorplex parser can read act on a world, or call a tool, that raises for some of them."""
    own = components.protocol_rules

    def rules_of(*given: Any, **named: Any) -> Protocol[Any, Any]:
        made = own(*given, **named)

        def parser(text: str) -> Parsed:
            parsed = made.parser(text)
            asks = way == "tool" and fails(text, KEY)
            return Parsed(Call("ASK", text) if asks else text) if parsed.failed else parsed

        def act(params: Any, state: Any, action: Any, key: Tensor) -> tuple[Any, Outcome]:
            if not isinstance(action, str):
                return made.env.step(params, state, action, key)
            if way == "step" and fails(action, key):
                raising()
            return state, Outcome(reward=float(len(action) % 2), terminated=True)

        tools = {"ASK": raising} if way == "tool" else {}
        env = evolve(made.env, step=act, tools={**made.env.tools, **tools})
        return evolve(made, env=env, parser=parser, incomplete="accept")

    monkeypatch.setattr(components, "protocol_rules", rules_of)


SOME: dict[str, Breaks] = {
    "step": lambda text, key: int(key[-1]) % 3 == 0,
    "tool": lambda text, key: sum(text.encode()) % 3 == 0,
}


@pytest.mark.parametrize("way", SOME)
def test_a_run_in_turns_goes_on_and_reports(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, way, SOME[way])
    notices: list[str] = []
    run.start(tmp_path / "run", tiny(), overwrite=False, notice=notices.append)
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")[-2:]
    failed = [row["failed"] for row in rows]
    assert all(0.0 <= share < 1.0 for share in failed)
    number = round(8 * sum(failed))
    assert number > 0
    assert [f"{number} of 16 episodes failed in all, the first with {ERROR}"] == [
        text for text in notices if "in all" in text
    ]
    assert sum("left out of the update" in text for text in notices) == sum(share > 0 for share in failed)


SEGMENTS = {"loss": "decoupled", "proximal": "segment_wise"}


@pytest.mark.parametrize("changes", [{}, pytest.param(SEGMENTS, marks=pytest.mark.slow)], ids=["plain", "segments"])
@pytest.mark.parametrize("way", ["step", pytest.param("tool", marks=pytest.mark.slow)])
def test_a_run_with_generators_goes_on_and_reports(
    way: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, way, SOME[way])
    notices: list[str] = []
    arguments = tiny(**BESIDE, **changes)
    run.start(tmp_path / "run", arguments, overwrite=False, notice=notices.append)
    failed = [
        row["failed"] for phase in ("sync", "async") for row in read_metrics(tmp_path / "run" / phase / "metrics.jsonl")
    ]
    assert len(failed) == 4
    assert 0.0 < sum(failed) < 4.0
    assert sum("left out of the update" in text for text in notices) == sum(share > 0 for share in failed)
    assert any("episodes failed in all, the first with " + ERROR in text for text in notices)


@pytest.mark.parametrize("beside", [False, True], ids=["turns", "async"])
@pytest.mark.slow
def test_a_batch_of_which_all_fail_ends_the_run_in_one_line(
    beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, "step", lambda text, key: True)
    more = BESIDE if beside else {}
    with pytest.raises(PurestepError) as caught:
        run.start(tmp_path / "run", tiny(**more), overwrite=False, notice=lambda text: None)
    said = str(caught.value)
    assert f"each of 8 episodes is failed, the first with {ERROR}, wanted at least one without an error" in said
    assert "\n" not in said

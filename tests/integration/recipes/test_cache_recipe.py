"""The recipe that teaches a language model to reason in cycles: its parts, and whole runs of a very small one."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import asdict, evolve

pytest.importorskip("transformers")

from purestep.core import keys
from purestep.core.errors import CheckpointError, ChoiceError, PurestepError, StructureError, TrustError
from purestep.core.intervals import student
from purestep.core.language.evaluation import Axis, Curve
from purestep.core.language.events import Sampled, User
from purestep.core.language.list_reduction.lists import Lists
from purestep.core.language.list_reduction.problems import list_source, problem_source
from purestep.core.language.list_reduction.tasks import read_list, right_reasoning, step_correct
from purestep.core.language.parsers import strict_answer
from purestep.core.language.prompting import Prompting, Query, Response, prompted
from purestep.core.language.reasoning_cache.cycles import Cycles, attempt_request, cycling
from purestep.core.language.reasoning_cache.evaluation import CyclesResult, cycles_result
from purestep.core.language.reasoning_cache.events import GroupResult
from purestep.core.language.reasoning_cache.rollouts import answers_problem
from purestep.core.language.reasoning_cache.settings import CacheSettings
from purestep.core.language.reasoning_cache.state import Problem
from purestep.core.language.reasoning_cache.templates import thought
from purestep.core.language.task import TextTask
from purestep.core.language.types import ModelOutput, ModelTurn
from purestep.properties import check as check_laws
from purestep.properties import preparation_laws
from purestep.properties.framework.families import own_prepared
from purestep.runtime.cli import main
from purestep.runtime.effects.jsonl_stream import read_entries as read_stream
from purestep.runtime.effects.reporting.curves_picture import banded, curves_picture
from purestep.runtime.effects.reporting.metrics import read_metrics
from purestep.runtime.recipes.cache import Cache, cache_defaults, cache_settings, cache_with, lists_of
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed, flag, flatten
from purestep.runtime.runs.training_machine import TrainChunk
from purestep.runtime.runs.trusting import Trust
from purestep.runtime.text import prompting, report
from purestep.runtime.text import run as session
from purestep.runtime.text.components import check_room, text_components
from purestep.runtime.text.config import CHANGES
from purestep.runtime.text.prompting import ask_prompts, completing_here, prompt_fits
from purestep.runtime.text.report import evaluation
from purestep.runtime.text.sampling import run_sampler
from purestep.runtime.text.training_loop import (
    TextTrainingLoop,
    demonstrated,
    held_at,
    learning_components,
    phases,
    policy_of,
)

from ...laws.reasoning_cache.families import own_cycling
from ...laws.reasoning_cache.reasoning_rollout import cycling_laws
from ...support.programs import until
from ...support.run_folders import begun, restored
from ...support.stand_in_server import stood_in

Said_ = pytest.CaptureFixture[str]
TINY: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warm_steps": 30,
    "demonstrations": 24,
    "warm_batch": 4,
    "steps": 2,
    "problems": 2,
    "states": 2,
    "samples": 3,
    "minibatches": 1,
    "held_out": 4,
    "cycles": 4,
    "longest": 6,
    "test_longest": 6,
    "num_reasoning_steps": 2,
    "num_samples_per_problem": 2,
    "max_retries": 0,
}
WORDS = [word for name, value in TINY.items() for word in (flag(name), str(value))]


def tiny(algorithm: str = "grpo", **changes: Any) -> Cache:
    return changed(cache_defaults(algorithm), {**TINY, **changes})


def silent(text: str) -> None:
    """Nobody listens."""


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """What the newest checkpoint holds."""
    import safetensors.torch

    return safetensors.torch.load_file(runs.newest_checkpoint(run) / "state.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "one"
    assert main.main(["train", "cache", "--run", str(run), *WORDS]) == 0
    return run


# --- arguments ---


def test_settings_are_those_of_the_rollouts_and_every_name_is_there() -> None:
    given = cache_settings(
        tiny(attempts=2, llm_top_p=0.9, test_llm_max_tokens=17, retry_base_delay=0.5, seed=5), "here"
    )
    plain = asdict(given)
    assert plain["llm"] == {"temperature": 1.0, "max_tokens": 20, "top_p": 0.9}
    assert plain["test_llm"] == {"temperature": 1.0, "max_tokens": 17, "top_p": 1.0}
    assert (given.output_dir, given.seed, given.attempts, given.retry_base_delay) == ("here", 5, 2, 0.5)
    assert given.streams.backend == "files"
    own = {*flatten(tiny()), "output_dir", "llm", "test_llm", "streams"}
    assert [name for name in plain if name not in own] == []
    held = {"recipe": "cache", **flatten(tiny())}
    assert runs.arguments_of(held)[1] == tiny()
    with pytest.raises(CheckpointError, match="with other names"):
        runs.arguments_of({"recipe": "cache", "width": 1})[1]


@pytest.mark.parametrize("algorithm", CHANGES)
def test_every_algorithm_learns_from_next_steps(algorithm: str) -> None:
    arguments = cache_defaults(algorithm)
    arguments.check()
    assert arguments.learning.algorithm == algorithm


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "--steps is 0, wanted at least 1; change it"),
        ({"states": 0}, "--states is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"numbers": 0}, "--numbers is 0"),
        ({"summary_skill": 1.5}, "--summary-skill is 1.5"),
        ({"llm_temperature": 0.0}, "--llm-temperature is 0.0"),
        ({"attempts": 0}, "settings: attempts is 0, wanted at least 1"),
        ({"max_retries": -1}, "settings: max_retries is -1"),
        ({"reasoning_prompt_template": "{problem}"}, r"is without \{curr_summary\}"),
        ({"solution_rollout_policy": "mine"}, "solution_rollout_policy is 'mine', wanted module.function"),
        ({"streams_backend": "redis"}, "streams.backend is 'redis'"),
        ({"shortest": 9}, r"lists: shortest and longest is \(9, 6\)"),
        ({"test_shortest": 9}, r"lists: shortest and longest is \(9, 6\)"),
        ({"heads": 3}, r"--width and --heads is \(16, 3\)"),
        ({"samples": 1}, "--samples is 1, wanted at least 2 for grpo"),
        ({"budget": 90}, "--budget is 90, wanted at least --capacity 128"),
        ({"lora": 2}, "--lora is without --model"),
        ({"truncated": "bootstrap"}, "--truncated is 'bootstrap' with grpo"),
        ({"max_gradient_norm": 0.0}, "--max-gradient-norm is 0.0, wanted more than 0"),
    ],
)
def test_a_wrong_number_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said) as caught:
        tiny(**changes).check()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"capacity": 40}, "--capacity is 40, wanted at least"),
        ({"llm_max_tokens": 9}, "--llm-max-tokens is 9, wanted at least"),
        ({"test_llm_max_tokens": 9}, "--test-llm-max-tokens is 9"),
        ({"summary_tokens": 2}, "--summary-tokens is 2"),
    ],
)
def test_what_a_right_run_needs_room_for_is_asked_for(changes: dict[str, Any], said: str) -> None:
    arguments = tiny(**changes)
    arguments.check()
    with pytest.raises(ChoiceError, match=said):
        check_room(text_components(arguments))


def test_help_explains_every_flag(capsys: Said_) -> None:
    assert main.main(["train", "cache", "--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in flatten(cache_defaults()) if flag(name) not in text] == []
    assert "--output-dir" in text
    assert main.main(["train"]) == 0
    assert "\n  cache " in capsys.readouterr().out


# --- cycles ---

test_cycles = check_laws(cycling_laws(), own_cycling())
test_preparation = check_laws(preparation_laws("a0=0; b1=1;", "b 1", "[ANSWER] 3"), own_prepared())


class Scripted:
    """A model of a text for each kind of prompt; its first batches fail, and it notes how many came at once to whom."""

    def __init__(self, failing: int = 0) -> None:
        self.failing = failing
        self.calls: list[tuple[int, int]] = []
        self.keys: list[tuple[int, int]] = []
        self.limits: set[int] = set()

    def __call__(self, queries: tuple[Query, ...]) -> list[Response]:
        found = dict[int, Response]()
        for worker in sorted({one.worker for one in queries}):
            own = {place: one for place, one in enumerate(queries) if one.worker == worker}
            self.calls.append((worker, len(own)))
            if self.failing:
                self.failing -= 1
                found |= {place: Response(error="busy") for place in own}
                continue
            self.keys += [one.sampling for one in own.values()]
            self.limits |= {one.max_new_tokens for one in own.values()}
            said = {
                place: ModelOutput(ids=(len(one.prompt),), log_probs=(-0.5,), versions=(4,))
                for place, one in own.items()
            }
            found |= {place: Response(text="hm", said=one, version=4) for place, one in said.items()}
        return [found[place] for place in range(len(queries))]


def problems_of(lists: Lists, stream: str, seed: int, number: int) -> tuple[Problem, ...]:
    return list_source(lists, lists).drawn(stream)(keys.key(seed), 0, number)


def _found(key: Any, cycles: Cycles) -> tuple[GroupResult, ...]:
    return cycles.found


def cycles_of(
    cache: Any, settings: CacheSettings, problems: Sequence[Problem], limits: tuple[int, int], stream: str = "training"
) -> Prompting[tuple[Any, Cycles], tuple[GroupResult, ...]]:
    """The runs of these problems."""
    return cycling(
        cache,
        settings,
        lambda key, first, count: tuple(problems),
        lambda key, cycles: cycles.found,
        limits=limits,
        stream=stream,
    )


def scripted(model: Scripted, problems: int = 3, **changes: Any) -> tuple[GroupResult, ...]:
    settings: CacheSettings = evolve(cache_settings(tiny(), "here"), retry_base_delay=0.0, **changes)
    given = problems_of(Lists(longest=6), "training", 0, problems)
    made = cycles_of(cache_with(tiny(), settings), settings, given, (9, 5))
    return prompted(made, keys.key(1), 0, problems, model)


def test_groups_are_whole_and_calls_go_together() -> None:
    model = Scripted()
    found = scripted(model, attempts=2)
    assert [[one.state.rollout_index for one in result.attempts] for result in found] == [[0, 1]] * 6
    assert sorted(
        (one.attempts[0].state.problem.problem_id, one.attempts[0].state.sample_id) for one in found
    ) == sorted(
        (problem.problem_id, sample) for problem in problems_of(Lists(longest=6), "training", 0, 3) for sample in (0, 1)
    )
    assert model.calls == [(0, 12)] * 4
    assert model.limits == {9, 5}
    assert len(set(model.keys)) == 48
    again = Scripted()
    assert scripted(again, attempts=2) == found
    assert again.keys == model.keys


def test_places_workers_and_queues_bound_what_is_under_way() -> None:
    model = Scripted()
    scripted(model, llm_max_rollouts=4, rollout_workers=2)
    assert {worker for worker, _ in model.calls} == {0, 1}
    assert max(count for _, count in model.calls) <= 4
    assert sum(count for _, count in model.calls) == 3 * 2 * 4
    narrow = Scripted()
    assert len(scripted(narrow, problem_queue_size=1, result_queue_size=1, llm_max_rollouts=1)) == 6
    assert {count for _, count in narrow.calls} == {1}


def test_two_workers_say_what_one_says() -> None:
    """A call's key is its own, whoever makes the call, and beside which others."""
    found = []
    for workers in (1, 2):
        arguments = tiny(rollout_workers=workers, llm_max_rollouts=3)
        parts, settings = text_components(arguments), cache_settings(arguments, "here")
        assert len((parts.speaker, *parts.speakers)) == workers
        given = problems_of(Lists(longest=6), "training", 0, 3)
        made = cycles_of(cache_with(arguments, settings), settings, given, (6, 4))
        ended = completing_here(parts, parts.begin(), 0, temperature=1.0, top_p=1.0)
        results = ask_prompts(parts, ended, made, keys.key(1), 0, 3, 0)
        found.append({result.number: result.attempts[0].state.reasoning_string_complete_store for result in results})
    assert found[0] == found[1]


def test_an_evaluation_whose_calls_fail_for_good_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*given: Any, **named: Any) -> Any:
        raise TimeoutError("no answer")

    parts = text_components(tiny(retry_base_delay=0.0, cycles=1))
    monkeypatch.setattr(prompting, "complete", lost)
    with pytest.raises(PurestepError, match=r"2 of 2 given up \(TimeoutError.*try again"):
        evaluation(parts, parts.begin(), tasks=2, draw=0)


def test_what_may_pass_is_tried_again_and_changes_nothing() -> None:
    model = Scripted(failing=3)
    assert scripted(model, max_retries=1) == scripted(Scripted())
    assert len(model.calls) == 4 + 3


def test_a_prompt_without_room_gets_an_empty_reply() -> None:
    arguments = tiny()
    parts, settings = text_components(arguments), evolve(cache_settings(arguments, "here"), num_samples_per_problem=1)
    wide = "x1 " * 60
    assert not prompt_fits(parts, wide)
    ended = completing_here(parts, parts.begin(), 0, temperature=1.0, top_p=1.0)
    request = attempt_request(keys.key(0), 0, "training")
    queries = tuple(Query(prompt=text, sampling=request.sampling, max_new_tokens=4) for text in (wide, "a1"))
    once: Prompting[Any, Any] = Prompting(
        begin=lambda key, number, count: ((), queries), step=lambda state, said: (said, ()), result=lambda said: said
    )
    first, second = ask_prompts(parts, ended, once, keys.key(0), 0, 1, 0)
    assert (first.text, first.finish_reason, first.said) == ("", "length", ())
    assert isinstance(second.said, ModelOutput)
    assert len(second.said.ids) <= 4
    (problem,) = problems_of(Lists(), "training", 0, 1)
    made = cycles_of(cache_with(arguments, settings), settings, [problem], (4, 4))
    (result,) = prompted(made, keys.key(0), 0, 1, lambda queries: [Response(finish_reason="length")] * len(queries))
    (one,) = result.attempts
    assert one.state.reasoning_string_store == ("", "")
    assert one.state.summarization_turn_number == 2


ONE = (0.5,)
STOOD = CyclesResult(problems=1, accuracy=ONE, accuracy_low=ONE, accuracy_high=ONE, carried=ONE, tokens=ONE)
POLICIES = """
from purestep.core.language.reasoning_cache.rollouts import rollout_policy

def paid(state, asked, reply, *, numbers, seed):
    return rollout_policy(lambda state, text: numbers + seed / 8)(state, asked, reply)

def odd(state, asked, reply):
    return rollout_policy(lambda state, text: float(len(text) % 2))(state, asked, reply)

def greedy(state, asked, reply, *, money):
    raise NotImplementedError
"""


@pytest.fixture
def own_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of somebody else's policies."""
    (tmp_path / "own_policies.py").write_text(POLICIES)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_policies"


def test_a_policy_is_found_by_its_name_and_told_the_runs_numbers(own_policies: str) -> None:
    arguments = tiny(solution_rollout_policy=f"{own_policies}.paid", numbers=3, seed=4)
    settings = evolve(cache_settings(arguments, "here"), num_samples_per_problem=1)
    (problem,) = problems_of(Lists(), "training", 0, 1)
    cache = cache_with(arguments, settings)
    (result,) = prompted(cycles_of(cache, settings, [problem], (4, 4)), keys.key(0), 0, 1, Scripted())
    made = result.attempts[0].state.reasoning_rollout_store
    assert [one.training_texts[0].reward for one in made] == [3.5, 3.5]
    for function, said in (("greedy", "argument is 'money'"), ("none", "is AttributeError")):
        with pytest.raises(ChoiceError, match=said):
            cache_with(arguments, evolve(settings, solution_rollout_policy=f"{own_policies}.{function}"))


def test_a_name_of_no_function_or_of_a_module_that_fails_is_refused(own_policies: str, tmp_path: Path) -> None:
    (tmp_path / "broken_policies.py").write_text("def f(:\n")
    settings = cache_settings(tiny(), "here")
    for name in ("math.pi", "broken_policies.f", ".f", f".{own_policies}.paid", "absent.f"):
        with pytest.raises(ChoiceError, match=r"rollout policy: .*, wanted a function"):
            cache_with(tiny(), evolve(settings, solution_rollout_policy=name))


ZORPLEX = TextTask(name="none", env=lambda stream: None, parser=())  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("cycles", "held"),
    [
        (False, {}),
        (False, {"sampled": {"attempts": 1}, "greedy": 3}),
        (True, {"problems": "a"}),
        (True, {**asdict(STOOD), "accuracy": [0.5, 0.5]}),
        (True, {**asdict(STOOD), "accuracy": [0.5, "a"]}),
        (True, {**asdict(STOOD), **{name: [] for name in ("accuracy", "accuracy_low")}}),
    ],
)
def test_a_damaged_standing_is_told_by_its_file(cycles: bool, held: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "before.json").write_text(json.dumps(held))
    with pytest.raises(StructureError, match=r"before\.json.* wanted"):
        report.read_before(tmp_path, tiny().task() if cycles else ZORPLEX)


# --- demonstrations ---


def told(number: int = 60, **changes: Any) -> list[tuple[str, str]]:
    """Prompts and texts of demonstrations."""
    arguments = tiny(demonstrations=number, **changes)
    pairs = []
    for one in demonstrated(arguments, text_components(arguments), keys.key(3)):
        prompt, said = (next(e.text for e in one.episode.events if isinstance(e, kind)) for kind in (User, Sampled))
        pairs.append((prompt, said))
    return pairs


def test_demonstrations_are_of_both_kinds_and_of_the_skill_they_are_told() -> None:
    every = told(skill=1.0, summary_skill=1.0, summaries=0.5)
    reasoning = [(prompt, said) for prompt, said in every if prompt.endswith("Go on:")]
    summaries = [(prompt, said) for prompt, said in every if prompt.endswith("Sum up:")]
    assert len(reasoning) + len(summaries) == 60
    assert min(len(reasoning), len(summaries)) > 15
    for prompt, said in reasoning:
        problem, summary = prompt.splitlines()[0], prompt.splitlines()[1].removeprefix("So far: ")
        assert step_correct(read_list(problem), summary, said, numbers=2)
    assert {said == prompt.splitlines()[1].removeprefix("So far: ") for prompt, said in summaries} == {True, False}
    none = told(skill=0.0, summaries=0.0)
    wrong = [
        not step_correct(read_list(lines[0]), lines[1].removeprefix("So far: "), said, numbers=2)
        for lines, said in ((prompt.splitlines(), said) for prompt, said in none)
    ]
    assert sum(wrong) > 50


def test_with_think_tags_only_the_thinking_is_summed_up() -> None:
    every = told(30, use_think_tags=True, skill=1.0, summaries=0.0)
    assert all(prompt.endswith("<think>\n") and "</think>" in said for prompt, said in every)
    finished = [said for _, said in every if strict_answer(said) != ()]
    assert finished
    assert all(strict_answer(thought(said)) == () for said in finished)
    check_room(text_components(tiny(use_think_tags=True)))


def test_demonstrations_that_are_all_too_long_are_refused() -> None:
    arguments, parts = tiny(), text_components(tiny())
    long = evolve(parts, task=evolve(parts.task, conversations=lambda key, number, skill: [("?", "a3=3; " * 9)]))
    with pytest.raises(ChoiceError, match="--demonstrations is all too long"):
        demonstrated(arguments, long, keys.key(3))


# --- one step of training ---


def world_of(tmp_path: Path, **changes: Any) -> TextTrainingLoop:
    arguments = tiny(warm_steps=0, **changes)
    parts = text_components(arguments)
    algorithm, trainer = learning_components(arguments, parts)
    samples = run_sampler(tmp_path, arguments, parts, silent)

    def evaluate(state: Any) -> Any:
        whole = parts.whole(state.params.policy)
        return report.on_the_way(parts, whole, tasks=2, draw=1, version=int(state.step))[1]

    return TextTrainingLoop(
        run=tmp_path,
        arguments=arguments,
        parts=parts,
        algorithm=algorithm,
        trainer=trainer,
        ask=samples.ask,
        complete=samples.complete,
        publish=lambda number, rows: None,
        before=lambda state: None,
        evaluate=evaluate,
        notice=silent,
        held=held_at(arguments, parts, algorithm, 0),
    )


def test_next_steps_of_states_are_trained_and_summaries_are_not(tmp_path: Path) -> None:
    world, seen = world_of(tmp_path), []
    trainer, made = world.trainer, TextTrainingLoop._sampled

    def noted(self: TextTrainingLoop, *given: Any) -> Any:
        step = made(self, *given)
        seen.append((step.batch, step.figures["states"]))
        return step

    batches = []
    world.trainer = lambda state, batch, key: (batches.append(batch), trainer(state, batch, key))[1]  # type: ignore[func-returns-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTrainingLoop, "_sampled", noted)
        for _ in range(2):
            world.train(TrainChunk(1))
    for (attempts, states), batch in zip(seen, batches, strict=True):
        assert len(attempts) == 3 * states
        assert batch.group.tolist() == [place for place in range(int(states)) for _ in range(3)]
        points = [one.episode.world.state for one in attempts]
        assert len({(point.problem, point.curr_summary) for point in points}) == states
        for one, point in zip(attempts, points, strict=True):
            prompt, said = (next(e.text for e in one.episode.events if isinstance(e, kind)) for kind in (User, Sampled))
            assert prompt == f"{point.problem.problem_text}\nSo far: {point.curr_summary}\nGo on:"
            right = step_correct(read_list(point.problem.problem_text), point.curr_summary, said, numbers=2)
            assert one.episode.steps[0].reward == float(right)
            (heard,) = (piece for piece in one.pieces if isinstance(piece, ModelTurn))
            assert set(heard.said.versions) <= {0, 1}


def test_a_model_that_is_right_is_paid_and_evaluated_as_such() -> None:
    """Runs of a demonstrator that is never wrong, in the place of a model."""
    arguments = tiny()
    problems = problems_of(lists_of(arguments.problems, "evaluation"), "evaluation", 3, 6)

    def complete(queries: tuple[Query, ...]) -> list[Response]:
        texts = [reply(one.prompt) for one in queries]
        said = [ModelOutput(ids=tuple(map(ord, text)), log_probs=(), versions=()) for text in texts]
        return [Response(text=text, said=one) for text, one in zip(texts, said, strict=True)]

    def reply(prompt: str) -> str:
        problem, so_far, *rest = prompt.splitlines()
        summary = so_far.removeprefix("So far: ")
        task = read_list(problem)
        if rest[0] == "Go on:":
            count = "abcdef".index(summary[0]) + 1 if summary else 0
            return right_reasoning(task, count, numbers=2)
        items = [item for item in rest[0].removeprefix("New: ").split(" ") if item.endswith(";")]
        return f"{items[-1][0]} {items[-1].rpartition('=')[2][:-1]}" if items else summary

    settings = evolve(cache_settings(arguments, "here"), num_reasoning_steps=4, num_samples_per_problem=1)
    made = cycles_of(cache_with(arguments, settings), settings, problems, (20, 8), "evaluation")
    found = prompted(made, keys.key(0), 0, 6, complete)
    states = [one.state for result in found for one in result.attempts]
    lengths = [len(read_list(state.problem.problem_text).numbers) for state in states]
    told_ = cycles_result(states)
    wanted = [sum(-(-length // 2) <= cycle for length in lengths) / 6 for cycle in range(1, 5)]
    assert list(told_.accuracy) == wanted
    assert 0 < wanted[1] < wanted[2] == 1.0
    assert told_.carried[-1] == 1.0
    assert told_.carried[0] == pytest.approx(sum(min(1.0, 2 / length) for length in lengths) / 6)
    assert all(result.success for state in states for result in state.reasoning_rollout_store)
    assert answers_problem(states[0], states[0].reasoning_string_store[-1]) == 1.0
    assert told_.accuracy_low[-1] < 1.0 == told_.accuracy_high[-1]
    assert told_.tokens == tuple(sorted(told_.tokens))


def test_evaluation_on_the_way_comes_after_so_many_versions(tmp_path: Path, own_policies: str) -> None:
    world = world_of(tmp_path, eval_every_n_versions=2, solution_rollout_policy=f"{own_policies}.odd")
    rows = [world.train(TrainChunk(1)).rows[0] for _ in range(4)]
    assert [row["updates"] for row in rows] == [1.0] * 4
    assert [math.isfinite(row["evaluation_last"]) for row in rows] == [False, True, False, True]


# --- whole runs ---


def test_train_evaluates_draws_publishes_and_leaves_a_model(trained: Path) -> None:
    told_ = json.loads((trained / "evaluation.json").read_text())
    assert told_["iteration"] == phases(tiny()).warm + 2
    for when in ("before", "after"):
        assert told_[when]["problems"] == 4
        assert len(told_[when]["accuracy"]) == len(told_[when]["carried"]) == 4
        bounds = zip(*(told_[when][name] for name in ("accuracy_low", "accuracy", "accuracy_high")), strict=True)
        assert all(low <= mean <= high for low, mean, high in bounds)
    assert len((trained / "evaluation.txt").read_text().splitlines()) == 5
    assert (trained / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (trained / "model" / "model.safetensors").exists()
    rows = read_metrics(trained / "metrics.jsonl")
    assert [row["iteration"] for row in rows] == [1.0, 2.0, 3.0, 4.0]
    assert rows[1]["warm_loss"] < rows[0]["warm_loss"]
    assert all(math.isfinite(row["episode_return"]) and math.isfinite(row["reasoning_turn_2"]) for row in rows[2:])


def test_the_stream_has_every_group_once_with_the_documented_metadata(trained: Path) -> None:
    entries = read_stream(trained / "rollouts.jsonl").entries
    assert [entry.number for entry in entries] == list(range(2 * 2 * 2))
    for entry in entries:
        (row,) = entry.rows
        stamps = [tuple(text["metadata"].values())[2:] for text in row["training_texts"]]
        assert stamps == [(0, "reasoning", 1), (1, "summarization", 1), (2, "reasoning", 2), (3, "summarization", 2)]
        assert all(len(text["said"]["ids"]) == len(text["said"]["log_probs"]) for text in row["training_texts"])
        assert {text["reward"] for text in row["training_texts"][1::2]} == {0.0}
    problems = [entry.rows[0]["problem_id"] for entry in entries]
    assert len(set(problems)) == 4
    assert {entry.rows[0]["sample_id"] for entry in entries} == {0, 1}


@pytest.mark.slow
def test_another_run_with_the_same_seed_has_the_same_bits(trained: Path, tmp_path: Path) -> None:
    session.start(tmp_path / "again", tiny(), overwrite=False, notice=silent)
    one, other = tensors(trained), tensors(tmp_path / "again")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (tmp_path / "again" / "rollouts.jsonl").read_bytes() == (trained / "rollouts.jsonl").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 3])
def test_a_run_that_was_cut_goes_on_to_the_same_bits(cut: int, trained: Path, tmp_path: Path) -> None:
    """Cut in the warm start, and in a step of training whose rollouts were published already."""
    run = tmp_path / "run"

    class Cut(Exception):
        pass

    made = TextTrainingLoop._sampled if cut == 3 else TextTrainingLoop._warm

    def stopped(self: Any, *given: Any) -> Any:
        if self.iteration == cut == 1:
            raise Cut
        done = made(self, *given)
        if self.iteration == cut:  # what the preparation gave is published by then
            raise Cut
        return done

    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTrainingLoop, made.__name__, stopped)
        with pytest.raises(Cut):
            session.start(run, tiny(), overwrite=False, notice=silent)
    assert len(read_metrics(run / "metrics.jsonl")) == cut
    session.resume(run, notice=said.append)
    assert [text for text in said if text.startswith("not necessarily")] == []
    one, other = tensors(trained), tensors(run)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (run / "rollouts.jsonl").read_bytes() == (trained / "rollouts.jsonl").read_bytes()


def test_an_entry_that_is_too_large_ends_the_run_in_one_line(tmp_path: Path, capsys: Said_) -> None:
    words = ["--shared-memory-entry-size", "64", "--warm-steps", "0", "--overwrite", "--held-out", "1"]
    assert main.main(["train", "cache", "--output-dir", str(tmp_path), *WORDS, *words]) == 1
    assert "wanted at most 64; raise the bound" in capsys.readouterr().err


@pytest.mark.slow
def test_evaluate_plot_and_resume_know_such_runs(trained: Path, tmp_path: Path, capsys: Said_) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    assert main.main(["evaluate", str(run), "--cycles", "2", "--problems", "3"]) == 0
    assert "of 3 problems" in capsys.readouterr().out
    told_ = json.loads((run / "evaluation.json").read_text())
    assert "before" not in told_
    assert len(told_["after"]["accuracy"]) == 2
    assert main.main(["plot", str(run), "--out", str(tmp_path / "one.png")]) == 0
    assert main.main(["plot", str(run), str(trained), "--out", str(tmp_path / "both.png")]) == 0
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("one.png", "both.png"))
    assert main.main(["plot", "--out", str(run)]) == 1
    assert "purestep plot: RUN is absent" in capsys.readouterr().err
    assert main.main(["evaluate", str(run), "--cycles", "-1"]) == 1
    assert "--cycles is -1" in capsys.readouterr().err
    assert main.main(["resume", str(run)]) == 0
    assert "nothing was left to train" in capsys.readouterr().out
    assert "before" in json.loads((run / "evaluation.json").read_text())
    assert main.main(["train", "cache", "--run", str(run), *WORDS]) == 1
    assert "wanted a new folder; go on with it: purestep resume" in capsys.readouterr().err
    begun(tmp_path / "empty", {"recipe": "cache"})
    assert main.main(["plot", str(tmp_path / "empty")]) == 1


@pytest.mark.parametrize("rank", [0, 2])
def test_a_model_from_a_folder_goes_on_learning(trained: Path, tmp_path: Path, rank: int, own_policies: str) -> None:
    arguments = tiny(
        model=str(trained / "model"),
        lora=rank,
        warm_steps=-1,
        steps=1,
        held_out=2,
        solution_rollout_policy=f"{own_policies}.odd",
    )
    run = tmp_path / "run"
    session.start(run, arguments, overwrite=False, notice=silent)
    with pytest.raises(TrustError, match=f"--solution-rollout-policy {own_policies}.odd"):
        runs.restore_run(run)
    parts, held, loop = restored(run, trust=Trust((f"{own_policies}.odd",)))
    assert loop.iteration == 1
    before, after = parts.whole(parts.begin()), parts.whole(policy_of(held))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert rank == 0 or all("_proj" in name for name in moved)
    assert not (run / "tokenizer").exists()
    with pytest.raises(ChoiceError, match=r"--model is .* which this run would remove"):
        session.start(trained, changed(arguments, {"seed": 1}), overwrite=True, notice=silent)


# --- problems of a file ---


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def sums(path: Path, number: int = 20) -> Path:
    return written(path, *(json.dumps({"problem": f"{n} + 1?", "answer": str(n + 1)}) for n in range(number)))


@pytest.mark.slow
def test_problems_of_a_file_are_trained_on_and_each_fifth_is_held_out(tmp_path: Path, capsys: Said_) -> None:
    run, path = tmp_path / "run", sums(tmp_path / "sums.jsonl")
    words = [word for name, value in TINY.items() if name != "warm_steps" for word in (flag(name), str(value))]
    assert main.main(["train", "cache", "--run", str(run), *words, "--problems-file", str(path)]) == 0
    entries = read_stream(run / "rollouts.jsonl").entries
    seen = {entry.rows[0]["problem_id"] for entry in entries}
    held_out = {f"{n} + 1?" for n in range(4, 20, 5)}
    assert len(seen) == 4
    assert not seen & held_out
    told_ = json.loads((run / "evaluation.json").read_text())
    assert (told_["after"]["problems"], told_["after"]["carried"]) == (4, [])
    capsys.readouterr()
    assert main.main(["evaluate", str(run), "--problems", "5"]) == 1
    assert "held-out problems is 5, wanted at most 4, each fifth of" in capsys.readouterr().err
    path.write_text(path.read_text() + json.dumps({"problem": "?", "answer": "1"}) + "\n")
    for command in ("resume", "evaluate"):
        assert main.main([command, str(run)]) == 1
        assert "the task's data is others than when the run began" in capsys.readouterr().err


def test_given_problems_come_again_in_another_order() -> None:
    given = problem_source(
        [Problem(problem_id=str(n), problem_text=str(n), answer="1") for n in range(10)], where="here"
    )
    drawn = [one.problem_id for one in given.drawn("training")(keys.key(0), 0, 16)]
    assert sorted(drawn[:8]) == sorted(drawn[8:]) == ["0", "1", "2", "3", "5", "6", "7", "8"]
    assert drawn[:8] != drawn[8:]
    assert [one.problem_id for one in given.drawn("training")(keys.key(0), 5, 6)] == drawn[5:11]
    assert {one.problem_id for one in given.drawn("evaluation")(keys.key(3), 0, 2)} == {"4", "9"}
    with pytest.raises(ChoiceError, match="here is 2 held-out problems, wanted at least 3"):
        given.drawn("evaluation")(keys.key(3), 0, 3)
    with pytest.raises(ChoiceError, match="here is 4 problems, wanted at least 5"):
        problem_source([Problem(problem_id=str(n), problem_text=str(n), answer="1") for n in range(4)], where="here")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"line 3 is no JSON \(JSONDecodeError\)"),
        ("[1]", "line 3 is list, no object"),
        ('{"problem": "2?"}', "line 3 is without a text of 'answer'"),
        ('{"problem": " ", "answer": "2"}', "line 3 is without a text of 'problem'"),
        ('{"problem": "2?", "answer": 2}', "line 3 is without a text of 'answer'"),
        ('{"problem": "0 + 1?", "answer": "7"}', "line 3 is the problem of line 1 again"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(line: str, said: str, tmp_path: Path, capsys: Said_) -> None:
    first = '{"problem": "0 + 1?", "answer": "1"}'
    path = written(tmp_path / "sums.jsonl", first, "", line)
    assert main.main(["train", "cache", "--run", str(tmp_path / "run"), "--problems-file", str(path)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(rf"{re.escape(str(path))}: {said}, wanted", last), last


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--problems-file", "nowhere.jsonl"], r"--problems-file nowhere\.jsonl is unreadable"),
        (["--problems-file", "."], r"--problems-file .* is unreadable \(a folder\)"),
        (["--problems-file", "x", "--warm-steps", "4"], "--warm-steps is 4 with --problems-file, wanted 0"),
        (["--mode", "async", "--server", "http://127.0.0.1:9/v1"], "--server is given with generators"),
    ],
)
def test_what_does_not_go_together_is_a_line(words: list[str], said: str, tmp_path: Path, capsys: Said_) -> None:
    assert main.main(["train", "cache", "--run", str(tmp_path / "run"), *words]) == 1
    assert re.search(said, capsys.readouterr().err.splitlines()[-1])


# --- servers, generators, ranks ---


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_a_server_answers_prompts_and_next_steps(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, where = tmp_path / "run", "http://127.0.0.1:9/v1"
    # 0.2 s to publish, so that the other workers come meanwhile
    published = stood_in(monkeypatch, run, capacity=128, max_new_tokens=20, seconds=0.2)
    own = tiny(server=where, algorithm="reinforce", rollout_workers=workers)
    session.start(run, own, overwrite=False, notice=silent)
    assert published == [(where, 0), (where, 1)]
    assert len(read_stream(run / "rollouts.jsonl").entries) == 8
    assert all(math.isfinite(row["episode_return"]) for row in read_metrics(run / "metrics.jsonl")[2:])


ASYNC = ["--mode", "async", "--no-compare", "--generators", "2", "--generator-slots", "6"]


@pytest.mark.slow  # generators import torch
def test_generators_prepare_a_run_that_is_killed_and_goes_on(tmp_path: Path, capsys: Said_) -> None:
    run = tmp_path / "run"
    told_ = ["train", "cache", "--run", str(run), *WORDS, "--steps", "6", *ASYNC]
    words = [sys.executable, "-m", "purestep.runtime.cli.main", *told_]
    going = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    third = run / "async" / "checkpoints" / "step_000003"
    until(third.exists, "it has made three updates", alive=lambda: going.poll() is None, said=lambda: "it ended")
    going.send_signal(signal.SIGKILL)
    going.communicate(timeout=60)
    assert main.main(["resume", str(run)]) == 0
    out = capsys.readouterr().out
    assert "cycles  before" in out
    assert "after async" in out
    assert main.main(["replay", str(run)]) == 0
    assert "each once" in capsys.readouterr().out
    entries = read_stream(run / "async" / "rollouts.jsonl").entries
    assert len({entry.number for entry in entries}) == len(entries) >= 6 * 2
    assert main.main(["evaluate", str(run), "--cycles", "2", "--problems", "3"]) == 0
    assert "of 3 problems" in capsys.readouterr().out
    assert main.main(["plot", str(run)]) == 0


@pytest.mark.slow  # two processes import torch
def test_two_ranks_learn_what_one_process_learns(tmp_path: Path) -> None:
    run = tmp_path / "run"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    words = [*WORDS, "--algorithm", "reinforce"]
    subprocess.run(
        [*launch, "purestep.runtime.cli.main", "train", "cache", "--run", str(run), *words],
        check=True,
        capture_output=True,
    )
    assert main.main(["train", "cache", "--run", str(tmp_path / "one"), *words]) == 0
    import safetensors.torch

    one, other = (safetensors.torch.load_file(path / "model" / "model.safetensors") for path in (tmp_path / "one", run))
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
    assert (run / "rollouts.jsonl").read_bytes()[:2000] == (tmp_path / "one" / "rollouts.jsonl").read_bytes()[:2000]


def test_several_curves_become_a_mean_and_its_interval(tmp_path: Path) -> None:
    several = [Curve(mean=(x, 0.5), low=(0.0, 0.0), high=(1.0, 1.0)) for x in (0.2, 0.4, 0.6)]
    one = banded(several)
    assert one.mean == pytest.approx((0.4, 0.5))
    half = student(3) * 0.2 / math.sqrt(3)
    assert (one.low[0], one.high[0]) == pytest.approx((max(0.0, 0.4 - half), 0.4 + half))
    assert (one.low[1], one.high[1]) == pytest.approx((0.5, 0.5))
    with pytest.raises(ChoiceError, match="nothing to draw"):
        curves_picture([], {}, tmp_path / "none.png", axis=Axis(title="t", heading="h", x="x", mark=3, marked="m"))


@pytest.mark.slow
def test_ctrl_c_saves_the_step_in_flight_and_resume_goes_on(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "purestep.runtime.cli.main", "train", "cache", "--run", str(run), *WORDS]
    going = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    deadline = time.monotonic() + 120
    while not (run / "checkpoints").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    _, err = going.communicate(timeout=120)
    assert going.returncode == 130, err
    assert f"purestep resume {run}" in err
    assert main.main(["resume", str(run)]) == 0
    one, other = tensors(trained), tensors(run)
    assert all(torch.equal(one[name], other[name]) for name in one)

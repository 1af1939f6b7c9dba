"""The reasoning cache as a task: its episodes are single reasoning steps, in states that runs of cycles have reached.

A preparation runs problems through their cycles and publishes the runs; then it draws some of the visited states, and from
each one starts a group of attempts at the next reasoning step. Summaries are not trained.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from ...keys import Key, fold_in
from ..episode import total_reward
from ..evaluation import Axis, TaskEvaluation
from ..list_reduction.lists import Lists
from ..list_reduction.problems import ProblemSource, list_source
from ..parsers import chain
from ..preparation import Preparation, Prepared, Record, Start
from ..requests import key_of
from ..task import EVALUATION, TRAINING, Conversation, Room, TextTask, World
from ..types import Rollout
from .conversations import Shows, draw_conversations
from .corpus import longest_texts, reasoning_texts
from .cycles import Cycles, cycling
from .evaluation import NAMES, CyclesResult, cycle_table, cycles_result, finished_runs, read_cycles_result
from .events import GroupResult
from .machine import ReasoningCache, due
from .report import attempt_texts, published_rows, turn_figures
from .rollouts import Posed, at_turn, starting_points, step_env
from .settings import CacheSettings
from .state import STATE_CLASSES, InferenceProblemState, ModelRequest, Problem

CYCLES, POINTS = 10, 11  # numbers folded into a run's key, one for each draw


@frozen(kw_only=True)
class TrainingSettings:
    """Settings of training and evaluation, in addition to those of rollouts."""

    states: int  # number of a run's states whose next reasoning step is trained
    cycles: int  # of the evaluation
    summary_tokens: int  # maximum of one summary


def turns(settings: CacheSettings) -> tuple[str, ...]:
    """Return the names of the mean rewards of the reasoning turns of a preparation's runs.

    >>> turns(CacheSettings(output_dir="runs/rc"))
    ('reasoning_turn_1', 'reasoning_turn_2', 'reasoning_turn_3')
    """
    return tuple(f"reasoning_turn_{turn}" for turn in range(1, settings.num_reasoning_steps + 1))


def cache_task(
    cache: ReasoningCache,
    settings: CacheSettings,
    source: ProblemSource,
    trained: TrainingSettings,
    *,
    digest: str = "",
) -> TextTask:
    """Return the task of a cache on problems of a source; `digest` identifies the given problems. Raises: ChoiceError.

    >>> from ... import keys
    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> cache = reasoning_cache(solution_rollout, summarization_rollout, reasoning_prompt_template="{problem}|{curr_summary}")
    >>> source = list_source(Lists(shortest=2, longest=2), Lists(shortest=2, longest=2))
    >>> wanted = TrainingSettings(states=1, cycles=4, summary_tokens=8)
    >>> world = cache_task(cache, CacheSettings(output_dir="runs/rc"), source, wanted).env("training")
    >>> world.reset(world.params, keys.key(0))[1]
    'Add: a4 b1|'
    """
    longer = evolve(cache, num_reasoning_steps=cache.num_reasoning_steps + 1)  # the last summary has a next step, too
    acting = step_env(longer, ())

    def env(stream: str) -> World:
        return evolve(acting, reset=lambda params, key: _posed(longer, source.at(stream, key)))

    def ask(world: World, question: str) -> tuple[World, bool]:
        problem = source.typed(question)
        return evolve(world, reset=lambda params, key: _posed(longer, problem)), bool(problem.answer)

    return TextTask(
        name="reasoning cache",
        env=env,
        parser=chain(),
        incomplete="accept",
        figures={"right": _right},
        preparation=_preparation(cache, longer, settings, source, trained),
        evaluation=_evaluation(cache, settings, source, trained),
        ask=ask,
        solution=lambda posed: str(posed.state.problem.answer),
        digest=digest,
    )


def list_cache_task(
    cache: ReasoningCache, settings: CacheSettings, lists: Mapping[str, Lists], trained: TrainingSettings, shows: Shows
) -> TextTask:
    """Return the task of a cache on lists of both streams, with demonstrations and the texts of its tokenizer.

    Raises: ChoiceError.

    >>> from ... import keys
    >>> from .machine import reasoning_cache
    >>> from .rollouts import solution_rollout, summarization_rollout
    >>> wanted = TrainingSettings(states=2, cycles=4, summary_tokens=8)
    >>> cache, settings = reasoning_cache(solution_rollout, summarization_rollout), CacheSettings(output_dir="runs/rc")
    >>> shows = Shows(numbers=2, summaries=0.3, summary_skill=1.0)
    >>> task = list_cache_task(cache, settings, {"training": Lists(), "evaluation": Lists()}, wanted, shows)
    >>> task.preparation.groups, len(task.conversations(keys.key(0), 3, 1.0))
    (2, 3)
    """
    task = cache_task(cache, settings, list_source(lists[TRAINING], lists[EVALUATION]), trained)

    def shown(key: Key, number: int, skill: float) -> Sequence[Conversation]:
        return draw_conversations(cache, shows, lists[TRAINING], key, number, skill=skill)

    return evolve(
        task,
        conversations=shown,
        corpus=lambda: reasoning_texts(cache, lists[TRAINING]),
        rooms=lambda: _rooms(cache, settings, max(lists.values(), key=lambda one: one.longest), trained, shows),
    )


def _posed(cache: ReasoningCache, problem: Problem) -> tuple[Posed, str]:
    world = step_env(cache, (InferenceProblemState(problem=problem),))
    return world.reset(world.params, key_of((0, 0)))


def _right(attempt: Rollout[Any]) -> float:
    return float(total_reward(attempt.episode) > 0)


def _limits(settings: CacheSettings, trained: TrainingSettings, most: int) -> tuple[int, int]:
    return most, trained.summary_tokens


def _preparation(
    cache: ReasoningCache,
    longer: ReasoningCache,
    settings: CacheSettings,
    source: ProblemSource,
    trained: TrainingSettings,
) -> Preparation:
    names = turns(settings)

    def prepared(key: Key, cycles: Cycles) -> Prepared:
        states = [one.state for result in cycles.found for one in result.attempts]
        drawn = fold_in(fold_in(key, POINTS), cycles.number)
        first = cycles.number * cycles.count * settings.num_samples_per_problem
        figures = turn_figures(cycles.found)
        return Prepared(
            starts=_starts(longer, starting_points(states, drawn, number=trained.states)),
            otherwise=_starts(longer, [at_turn(state, 1) for state in states]),
            records=tuple(Record(number=first + result.number, rows=published_rows(result)) for result in cycles.found),
            figures={name: figures.get(f"{name}/reward", math.nan) for name in names},
            texts=texts_of(cycles.found),
        )

    limits = _limits(settings, trained, settings.llm.max_tokens)
    return Preparation(
        prompting=cycling(
            cache,
            settings,
            source.drawn(TRAINING),
            prepared,
            limits=limits,
            folded=lambda key, number: fold_in(fold_in(key, CYCLES), number),
        ),
        max_new_tokens=max(limits),
        groups=trained.states,
        figures=names,
        workers=settings.rollout_workers,
        window=settings.throughput_window_size,
        most=settings.shared_memory_entry_size,
        classes=(Posed, ModelRequest, *STATE_CLASSES),
    )


def _starts(cache: ReasoningCache, states: Sequence[InferenceProblemState]) -> tuple[Start, ...]:
    asked = ((state, due(cache, state)) for state in states)
    return tuple(
        Start(state=Posed(state, ask), observation=ask.prompt_text)
        for state, ask in asked
        if isinstance(ask, ModelRequest)
    )


def texts_of(results: Sequence[GroupResult]) -> int:
    """Return the number of training texts in groups, of both turn types.

    >>> texts_of(())
    0
    """
    return sum(len(attempt_texts(one)) for result in results for one in result.attempts)


def _evaluation(
    cache: ReasoningCache, settings: CacheSettings, source: ProblemSource, trained: TrainingSettings
) -> TaskEvaluation[CyclesResult]:
    own = evolve(settings, num_reasoning_steps=trained.cycles, attempts=1, num_samples_per_problem=1)
    on = settings.num_reasoning_steps

    def stood(key: Key, cycles: Cycles) -> CyclesResult:
        return cycles_result(finished_runs(cycles), correct=source.correct, share=source.share)

    return TaskEvaluation(
        prompting=cycling(
            evolve(cache, num_reasoning_steps=trained.cycles),
            own,
            source.drawn(EVALUATION),
            stood,
            limits=_limits(settings, trained, settings.test_llm.max_tokens),
            stream=EVALUATION,
            folded=lambda key, number: fold_in(key, 1),
        ),
        temperature=settings.test_llm.temperature,
        top_p=settings.test_llm.top_p,
        names=NAMES,
        figures=lambda one: one.figures(on),
        line=lambda one: one.line(on),
        table=cycle_table,
        described=CyclesResult.described,
        read=read_cycles_result,
        curve=CyclesResult.curve,
        axis=Axis(
            title="reasoning cache",
            heading="accuracy on held-out problems",
            x="cycles T",
            mark=on,
            marked="cycles in training",
        ),
    )


def _rooms(
    cache: ReasoningCache, settings: CacheSettings, lists: Lists, trained: TrainingSettings, shows: Shows
) -> tuple[Room, ...]:
    asked, step, handed, summary = longest_texts(cache, lists, numbers=shows.numbers)
    llm, test = settings.llm.max_tokens, settings.test_llm.max_tokens
    about = f"a right step of {shows.numbers} numbers needs them"
    return (
        Room(prompt=asked, reply=step, setting="--llm-max-tokens", limit=llm, about=about),
        Room(prompt=asked, reply=step, setting="--test-llm-max-tokens", limit=test, about="a right step needs them"),
        Room(
            prompt=handed,
            reply=summary,
            setting="--summary-tokens",
            limit=trained.summary_tokens,
            about="a right summary needs them",
        ),
    )

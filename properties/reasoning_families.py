"""The suites about the reasoning cache, each beside a subject that obeys it and edits beyond those its laws name themselves."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core.language import (
    preparation,
    reasoning_cache,
    reasoning_cache_task,
    reasoning_conversations,
    reasoning_cycles,
    reasoning_demonstrations,
    reasoning_evaluation,
    reasoning_lists,
    reasoning_report,
    reasoning_rollouts,
    reasoning_settings,
    reasoning_tasks,
    reasoning_templates,
)
from ..core.language.reasoning_schedule import reasoning_machine
from ..core.language.task import TextTask
from . import cycling_mutants, reasoning_mutants, reasoning_schedule_mutants, reasoning_task_mutants
from .cycling_laws import cycling_laws
from .cycling_mutants import Cycling
from .law import Subject, Suite
from .preparation_laws import preparation_laws
from .reasoning_laws import reasoning_laws
from .reasoning_mutants import Thinking
from .reasoning_schedule_laws import reasoning_schedule_laws
from .reasoning_task_laws import reasoning_task_laws
from .reasoning_task_mutants import Listing

Edits = Mapping[str, Callable[[Any], Any]]


def own_thinking() -> Thinking:
    """Our own cycles of reasoning, and what is made of them."""
    return Thinking(
        fill=reasoning_templates.fill,
        due=reasoning_cache.due,
        step=reasoning_cache.step,
        at_turn=reasoning_rollouts.at_turn,
        starting_points=reasoning_rollouts.starting_points,
        trainable=reasoning_rollouts.trainable,
        start_requests=preparation.start_requests,
        call_request=reasoning_rollouts.call_request,
        step_world=reasoning_rollouts.step_world,
        accuracy_by_cycle=reasoning_rollouts.accuracy_by_cycle,
        published_rows=reasoning_report.published_rows,
    )


def own_listing() -> Listing:
    """Our own lists to be reduced, and demonstrations on them."""
    return Listing(
        list_task=reasoning_tasks.list_task,
        list_problem=reasoning_tasks.list_problem,
        read_list=reasoning_tasks.read_list,
        right_reasoning=reasoning_tasks.right_reasoning,
        right_summary=reasoning_tasks.right_summary,
        carried=reasoning_tasks.carried,
        reached=reasoning_tasks.reached,
        step_correct=reasoning_tasks.step_correct,
        summed_up=reasoning_demonstrations.summed_up,
        show_reasoning=reasoning_demonstrations.show_reasoning,
        show_summary=reasoning_demonstrations.show_summary,
        aloud=reasoning_demonstrations.aloud,
        list_rollout=reasoning_tasks.list_rollout,
    )


def own_cycling() -> Cycling:
    """Our own runs of cycles in the world, and what they come to."""
    return Cycling(cycling=reasoning_cycles.cycling, standing=reasoning_evaluation.standing)


def own_prepared() -> TextTask:
    """Our own task whose episodes are prepared: lists of a few numbers, in two cycles."""
    few = reasoning_lists.Lists(kind="maximum", shortest=2, longest=4, high=3)
    cache = reasoning_cache.reasoning_cache(
        reasoning_tasks.list_rollout, reasoning_rollouts.summarization_rollout, num_reasoning_steps=2
    )
    settings = reasoning_settings.Settings(output_dir="nowhere", num_reasoning_steps=2, num_samples_per_problem=2)
    trained = reasoning_cache_task.Trained(states=2, cycles=3, summary_tokens=8)
    shows = reasoning_conversations.Shows(numbers=2, summaries=0.5, summary_skill=1.0)
    return reasoning_cache_task.list_cache_task(cache, settings, {"training": few, "evaluation": few}, trained, shows)


def reasoning_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites, subjects and more edits."""
    return [
        (reasoning_laws(), own_thinking(), reasoning_mutants.MUTANTS),
        (reasoning_schedule_laws(), reasoning_machine, reasoning_schedule_mutants.MUTANTS),
        (reasoning_task_laws(), own_listing(), reasoning_task_mutants.MUTANTS),
        (cycling_laws(), own_cycling(), cycling_mutants.MUTANTS),
        (preparation_laws("a0=0; b1=1;", "b 1", "[ANSWER] 3"), own_prepared(), {}),
    ]

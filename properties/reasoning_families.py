"""The suites about the reasoning cache, each beside a subject that obeys it and edits beyond those its laws name themselves."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core.language import (
    reasoning_cache,
    reasoning_cycles,
    reasoning_demonstrations,
    reasoning_evaluation,
    reasoning_report,
    reasoning_rollouts,
    reasoning_tasks,
    reasoning_templates,
)
from ..core.language.reasoning_schedule import reasoning_machine
from . import cycling_mutants, reasoning_mutants, reasoning_schedule_mutants, reasoning_task_mutants
from .cycling_laws import cycling_laws
from .cycling_mutants import Cycling
from .law import Subject, Suite
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
        step_requests=reasoning_rollouts.step_requests,
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


def reasoning_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites, subjects and more edits."""
    return [
        (reasoning_laws(), own_thinking(), reasoning_mutants.MUTANTS),
        (reasoning_schedule_laws(), reasoning_machine, reasoning_schedule_mutants.MUTANTS),
        (reasoning_task_laws(), own_listing(), reasoning_task_mutants.MUTANTS),
        (cycling_laws(), own_cycling(), cycling_mutants.MUTANTS),
    ]

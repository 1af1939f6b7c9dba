"""Families of laws of the reasoning cache."""

from purestep.core.language import preparation
from purestep.core.language.list_reduction import tasks
from purestep.core.language.reasoning_cache import (
    cycles,
    demonstrations,
    evaluation,
    machine,
    report,
    rollouts,
    templates,
)
from purestep.core.language.reasoning_cache.schedule import reasoning_machine
from purestep.properties.framework.families import Family, edits

from . import reasoning_mutants
from .reasoning import reasoning_laws
from .reasoning_mutants import Thinking
from .reasoning_rollout import MUTANTS as REASONING_ROLLOUT_MUTANTS
from .reasoning_rollout import Cycling, cycling_laws
from .reasoning_schedule import MUTANTS as REASONING_SCHEDULE_MUTANTS
from .reasoning_schedule import reasoning_schedule_laws
from .reasoning_task import MUTANTS as REASONING_TASK_MUTANTS
from .reasoning_task import Listing, reasoning_task_laws


def own_thinking() -> Thinking:
    """Return the library's cycles of reasoning, and functions of their runs."""
    return Thinking(
        fill=templates.fill_template,
        due=machine.due,
        step=machine.take_reply,
        at_turn=rollouts.at_turn,
        starting_points=rollouts.starting_points,
        start_requests=preparation.start_requests,
        call_request=rollouts.call_request,
        step_world=rollouts.step_env,
        accuracy_by_cycle=rollouts.accuracy_by_cycle,
        published_rows=report.published_rows,
    )


def own_listing() -> Listing:
    """Return the library's lists to reduce, and demonstrations on them."""
    return Listing(
        list_task=tasks.list_task,
        list_problem=tasks.list_problem,
        read_list=tasks.read_list,
        right_reasoning=tasks.right_reasoning,
        right_summary=tasks.right_summary,
        carried=tasks.carried,
        reached=tasks.entries_covered,
        step_correct=tasks.step_correct,
        summed_up=demonstrations.summed_up,
        show_reasoning=demonstrations.show_reasoning,
        show_summary=demonstrations.show_summary,
        aloud=demonstrations.aloud,
        list_rollout=tasks.list_rollout,
    )


def own_cycling() -> Cycling:
    """Return the library's runs of cycles, and their evaluation."""
    return Cycling(cycling=cycles.cycling, standing=evaluation.cycles_result)


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(reasoning_laws(), own_thinking(), edits(reasoning_mutants.MUTANTS)),
        Family(reasoning_schedule_laws(), reasoning_machine, edits(REASONING_SCHEDULE_MUTANTS)),
        Family(reasoning_task_laws(), own_listing(), edits(REASONING_TASK_MUTANTS)),
        Family(cycling_laws(), own_cycling(), edits(REASONING_ROLLOUT_MUTANTS)),
    ]

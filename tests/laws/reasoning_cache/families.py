"""Families of laws of the reasoning cache."""

from purestep.core.language import preparation
from purestep.core.language.list_reduction import tasks as reasoning_tasks
from purestep.core.language.reasoning_cache import cycles as reasoning_cycles
from purestep.core.language.reasoning_cache import demonstrations as reasoning_demonstrations
from purestep.core.language.reasoning_cache import evaluation as reasoning_evaluation
from purestep.core.language.reasoning_cache import machine as reasoning_cache
from purestep.core.language.reasoning_cache import report as reasoning_report
from purestep.core.language.reasoning_cache import rollouts as reasoning_rollouts
from purestep.core.language.reasoning_cache import templates as reasoning_templates
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
    """Return the library's lists to reduce, and demonstrations on them."""
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
    """Return the library's runs of cycles, and their evaluation."""
    return Cycling(cycling=reasoning_cycles.cycling, standing=reasoning_evaluation.standing)


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(reasoning_laws(), own_thinking(), edits(reasoning_mutants.MUTANTS)),
        Family(reasoning_schedule_laws(), reasoning_machine, edits(REASONING_SCHEDULE_MUTANTS)),
        Family(reasoning_task_laws(), own_listing(), edits(REASONING_TASK_MUTANTS)),
        Family(cycling_laws(), own_cycling(), edits(REASONING_ROLLOUT_MUTANTS)),
    ]

"""Columns of a run's metrics: general ones, a task's own figures, and the share of each of its labels."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.errors import (
    ChoiceError,
    NonFiniteError,
    PurestepError,
    StructureError,
    WorldError,
    describe_error,
    message,
)
from ...core.language.task import Figure, TextTask
from ...core.language.types import Rollout
from ..effects.reporting.metrics import Row

FIGURES = (
    "entropy",
    "kl",
    "approximate_kl",
    "clip_fraction",
    "log_prob_difference",
    "gradient_norm",
    "loss",
    "zero_spread",
    "truncated",
    "failed",
    "updates",
)
OUTSIDE_SUPPORT = "outside_support"  # of runs with top_p below 1
LENGTHS = ("turns", "tokens")  # of an attempt, means
SPEEDS = ("tokens_per_second", "rollout_seconds", "update_seconds")
STALENESS = ("staleness_max", "staleness_mean", "staleness_tail_max", "wasted_tokens")  # of runs with generators
ON_THE_WAY = "evaluation_"  # begins the column of a figure of an evaluation on the way
PASS = "pass@"  # begins the name of an estimate of pass@k
LABEL = "label/"  # begins the column with the share of a label; no figure's name has a slash
TAKEN = frozenset(  # names that no figure of a task may have: columns of metrics, and fields of an evaluation
    (
        *("iteration", "steps", "seconds", "finite", "warm_loss", "episode_return"),
        *(*LENGTHS, *FIGURES, OUTSIDE_SUPPORT, *SPEEDS, *STALENESS, "proximal_seconds"),
        *("attempts", "samples", "reward", "modes", "accuracy_low", "accuracy_high"),
        *("reward_low", "reward_high", "tokens_median", "tokens_longest", "resampled_groups", "skipped_prompts"),
    )
)


def learner_columns(top_p: float) -> tuple[str, ...]:
    """Return the names of the columns with figures of the learner, for runs that sample with this top_p.

    >>> set(learner_columns(0.9)) - set(learner_columns(1.0))
    {'outside_support'}
    """
    return (*FIGURES, OUTSIDE_SUPPORT) if top_p < 1.0 else FIGURES


def own_figures(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the names of the columns with a task's own figures.

    >>> own_figures([{"iteration": 1.0, "opened": 0.5, "label/open": 0.5, "loss": 0.1}])
    ('opened',)
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return tuple(name for name in names if name not in TAKEN and not name.startswith((LABEL, ON_THE_WAY)))


def shares(task: TextTask, labels: Sequence[str]) -> dict[str, float]:
    """Return the share of each of the task's labels among those of some attempts.

    >>> shares(TextTask(name="t", env=(), parser=(), labels=("right", "wrong")), ["right", "wrong", "wrong", "wrong"])
    {'right': 0.25, 'wrong': 0.75}
    """
    counted = Counter(labels)
    return {name: counted[name] / max(1, len(labels)) for name in task.labels}


def label_columns(share_of: Mapping[str, float]) -> Row:
    """Return the shares of labels by the names of their columns.

    >>> label_columns({"right": 0.25})
    {'label/right': 0.25}
    """
    return {LABEL + name: share for name, share in share_of.items()}


def label_of(task: TextTask, attempt: Rollout[Any]) -> str:
    """Return the label that a task gives an attempt. Raises: ChoiceError for one that is not among its labels, WorldError."""
    where = f"task {task.name}: label"
    label = call_task(where, "a label for every attempt, also one that an error ended", task.label, attempt)
    if not isinstance(label, str) or label not in task.labels:
        remedy = "add it to `labels`, or return one of these"
        got = repr(label) if isinstance(label, str) else show_value(label)
        raise ChoiceError(message(where, got=got, wanted=f"one of {list(task.labels)}", remedy=remedy))
    return label


def figure_of(task: TextTask, name: str, figure: Figure, attempt: Rollout[Any]) -> float:
    """Return a task's figure of an attempt. Raises: StructureError, NonFiniteError, WorldError."""
    where = f"task {task.name}: figure {name!r}"
    return finite_number(
        where, call_task(where, "a number for every attempt, also one that an error ended", figure, attempt)
    )


def finite_number(where: str, value: Any) -> float:
    """Return a task's number as a finite float. Raises: StructureError, NonFiniteError.

    >>> finite_number("task t: reward", True)
    1.0
    """
    if not isinstance(value, int | float):
        got, remedy = show_value(value), "return a float"
        raise StructureError(message(where, got=got, wanted="a number", remedy=remedy))
    if not math.isfinite(value):
        remedy = "return 0.0 where there is nothing to report"
        raise NonFiniteError(message(where, got=value, wanted="a finite number", remedy=remedy))
    return float(value)


def show_value(value: Any) -> str:
    """Return the type of a value and the beginning of its text, in one line.

    >>> show_value("a\\nb"), show_value(None)
    ("str 'a\\\\nb'", 'NoneType None')
    """
    return " ".join(f"{type(value).__name__} {value!r}".split())[:80]


def call_task(where: str, wanted: str, function: Any, *arguments: Any) -> Any:
    """Call a function of a task and return its result. Raises: WorldError, with the error that it raised, in one line.

    >>> call_task("task t: parser", "a Parsed", int, "x")
    Traceback (most recent call last):
    purestep.core.errors.WorldError: task t: parser is ValueError: invalid literal for int() with base 10: 'x', \
wanted a Parsed; mend it: --debug shows where
    """
    try:
        return function(*arguments)
    except PurestepError:
        raise
    except (Exception, SystemExit) as error:
        raise WorldError(
            message(where, got=describe_error(error), wanted=wanted, remedy="mend it: --debug shows where")
        ) from error

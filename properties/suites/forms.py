"""Conventions that an object's name and parameters declare, for suites of several kinds: metrics, optimizers, value losses."""

import re
from collections.abc import Mapping
from typing import Any

from ...core.errors import StructureError, message
from ..framework.binding import bound
from ..framework.catalogue import rows
from ..framework.matching import marks_of
from .optimizer import RULES

KINDS: Mapping[str, str] = {  # of metrics
    "pass_at_k": r"(?i)pass",
    "explained_variance": r"(?i)explained|variance|r2",
    "token_mean": r"(?i)mean",
    "episode_returns": r"(?i)episode|return",
}


def metric_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a metric and its kind, by its name. Raises: StructureError if the name is of no kind.

    >>> def explained_var(prediction, target): ...
    >>> metric_form(explained_var, {})[1]
    {'kind': 'explained_variance'}
    """
    name = marks_of(value).name
    kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), None)
    if kind is None:
        remedy = "add --declare kind=KIND"
        raise StructureError(message("verify: metric", got=name, wanted=f"one of {sorted(KINDS)}", remedy=remedy))
    return value, {"kind": kind}


def optimizer_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a maker of optimizers and the rule that it is named after, adam if it is named after none.

    >>> class PagedAdamW: ...
    >>> optimizer_form(PagedAdamW, {})[1]
    {'rule': 'adamw'}
    """
    name = marks_of(value).name

    def fit(rule: str) -> tuple[bool, int]:  # PlainAdamW is an AdamW, though nadam is in its letters
        start = name.lower().index(rule)
        return start == 0 or name[start].isupper() or not name[start - 1].isalpha(), len(rule)

    rules = sorted((rule for rule in RULES if rule in name.lower()), key=fit)
    return value, {"rule": rules[-1] if rules else "adam"}


def value_loss_form(value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a loss of values bound to its parameters' names, clipped if it takes old values and a clip.

    >>> def critic_loss(values, returns): ...
    >>> value_loss_form(critic_loss, {})[1]
    {'clipped': False, 'detached': False}
    """
    row = rows()["value_loss"]
    found = bound(row, value, given)
    clipped = {"behaviour_value", "clip"} <= set(found.roles)
    if not clipped:
        found = bound(row, value, given, positional=("value", "target"))
    return found, {"clipped": clipped, "detached": False}

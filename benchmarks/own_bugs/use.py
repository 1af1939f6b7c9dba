"""How a user points a suite at an object."""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen


def same(subject: Any) -> Any:
    """As it is."""
    return subject


@frozen
class Use:
    """A suite by its name without `_laws`, its keywords, and the subject made of a bug or its twin."""

    suite: str
    subject: Callable[[Any], Any] = same
    declared: Mapping[str, Any] = field(factory=dict)
    given: Mapping[str, Any] = field(factory=dict)  # values of further parameters, with the catalogue's binding
    bound: bool = False  # by the names of its parameters, as `purestep verify` does
    only: tuple[str, ...] = ()  # of the suite's laws, where the object claims no more
    leave: tuple[str, ...] = ()  # laws of what the object does not claim

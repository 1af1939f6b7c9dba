"""How hard the laws look: quick at every change, ci at every merge, night when nobody waits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import frozen

from ...core.errors import choose

if TYPE_CHECKING:
    from hypothesis import settings  # not at the top: pytest's option and a line of help need the profiles' names alone

VARIABLE = "PURESTEP_LAWS"


@frozen
class Profile:
    """How many inputs a law draws, how it is compiled, and whether the draws differ from run to run.

    `backends` are the compilers of the law compiled_is_eager: "eager" finds graph breaks, "aot_eager" what functionalises
    wrongly, "inductor" what the code generator changes.
    """

    name: str
    examples: int
    backends: tuple[str, ...]
    fixed: bool  # the same draws each time, and nothing remembered
    seed: int = 0  # of fixed draws; each law has draws of its own


PROFILES = {
    "quick": Profile("quick", 20, ("eager",), True),
    "ci": Profile("ci", 100, ("aot_eager",), True),
    "night": Profile("night", 2000, ("aot_eager", "inductor"), False),
}
ORDER = tuple(PROFILES)


def named_profile(name: str) -> Profile:
    """The profile of that name. Raises: ChoiceError.

    >>> named_profile("quick").examples
    20
    """
    return choose("laws", name, PROFILES)


_chosen: ContextVar[Profile | None] = ContextVar("purestep_laws", default=None)


def current() -> Profile:
    """The profile of the run that is going on; else the one the variable PURESTEP_LAWS names (`--laws` sets it); else quick."""
    return _chosen.get() or named_profile(os.environ.get(VARIABLE, "quick"))


@contextmanager
def using(profile: Profile) -> Iterator[None]:
    """Makes `profile` the current one."""
    token = _chosen.set(profile)
    try:
        yield
    finally:
        _chosen.reset(token)


def includes(profile: Profile, least: str) -> bool:
    """Whether a law whose first profile is `least` runs in this one.

    >>> includes(named_profile("quick"), "night"), includes(named_profile("night"), "ci")
    (False, True)
    """
    named_profile(least)
    return ORDER.index(profile.name) >= ORDER.index(least)


def hypothesis_settings(profile: Profile, *, shrink: bool = True, most: int = 2000) -> "settings":
    """The profile, with `most` inputs at most, in hypothesis' terms.

    No deadline, since a first call compiles, and no health check that times a machine.
    """
    from hypothesis import HealthCheck, Phase, settings

    phases = [Phase.explicit, Phase.reuse, Phase.generate, Phase.target]
    options = {
        "max_examples": min(profile.examples, most),
        "deadline": None,
        "print_blob": False,
        "report_multiple_bugs": False,
        "phases": [*phases, Phase.shrink] if shrink else phases,
        "suppress_health_check": list(HealthCheck),
    }
    if profile.fixed:
        options |= {"derandomize": True, "database": None}
    return settings(**options)  # type: ignore[arg-type]

"""Profiles set how many inputs laws try: quick for every change, ci for every merge, night for unattended runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import frozen

from ...core.errors import choose

if TYPE_CHECKING:
    from hypothesis import settings  # only for type checks: pytest's option and the help need just the profiles' names

VARIABLE = "PURESTEP_LAWS"


@frozen
class Profile:
    """Number of inputs that a law draws, compilers, and whether each run draws the same inputs.

    `backends` are the compilers of the law compiled_is_eager: "eager" finds graph breaks, "aot_eager" errors of
    functionalization, "inductor" errors of code generation.
    """

    name: str
    examples: int
    backends: tuple[str, ...]
    fixed: bool  # the same draws each time, and no example database
    seed: int = 0  # of fixed draws; combined with the law's name


PROFILES = {
    "quick": Profile("quick", 20, ("eager",), True),
    "ci": Profile("ci", 100, ("aot_eager",), True),
    "night": Profile("night", 2000, ("aot_eager", "inductor"), False),
}
ORDER = tuple(PROFILES)


def named_profile(name: str) -> Profile:
    """Return the profile of that name. Raises: ChoiceError.

    >>> named_profile("quick").examples
    20
    """
    return choose("laws", name, PROFILES)


_chosen: ContextVar[Profile | None] = ContextVar("purestep_laws", default=None)


def current_profile() -> Profile:
    """Return the profile set by `using`, else the one named by the variable PURESTEP_LAWS (`--laws` sets it), else quick."""
    return _chosen.get() or named_profile(os.environ.get(VARIABLE, "quick"))


@contextmanager
def using(profile: Profile) -> Iterator[None]:
    """Make `profile` the current one inside a `with` block."""
    token = _chosen.set(profile)
    try:
        yield
    finally:
        _chosen.reset(token)


def includes(profile: Profile, least: str) -> bool:
    """Return whether a law whose first profile is `least` runs in this one.

    >>> includes(named_profile("quick"), "night"), includes(named_profile("night"), "ci")
    (False, True)
    """
    named_profile(least)
    return ORDER.index(profile.name) >= ORDER.index(least)


def hypothesis_settings(profile: Profile, *, shrink: bool = True, most: int = 2000) -> "settings":
    """Return the profile as hypothesis settings, with at most `most` inputs.

    There is no deadline, since a first call compiles, and there are no health checks, since some measure time.
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

"""Choices of a way as people get them wrong: each an edit around a right one."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from ..runtime.effects.transfer.choice import Choice

Choose = Callable[..., Choice]


def asks_the_first(choice: Choose) -> Choose:
    """Takes all hosts for like the one it runs on."""

    def first(hosts: Any, **how: Any) -> Choice:
        here = hosts[0]
        alike = [evolve(host, monarch=here.monarch, verbs=here.verbs) for host in hosts]
        return choice(alike, **how)

    return first


def always_tcp(choice: Choose) -> Choose:
    """Does not look."""
    return lambda hosts, **how: evolve(choice(hosts, **how), way="tcp")


def counts_twice(choice: Choose) -> Choose:
    """Says how many hosts it was given."""

    def counting(hosts: Any, **how: Any) -> Choice:
        found = choice(hosts, **how)
        return evolve(found, why=f"{len(hosts)} hosts; {found.why}")

    return counting


def says_nothing(choice: Choose) -> Choose:
    """Leaves it to the name."""
    return lambda hosts, **how: evolve(choice(hosts, **how), why="")


def chooses_all_the_same(choice: Choose) -> Choose:
    """Takes no wishes."""
    return lambda hosts, *, asked="", **how: choice(hosts, **how)


def takes_anybody(choice: Choose) -> Choose:
    """Takes all processes for Monarch's."""
    return lambda hosts, **how: choice(hosts, **{**how, "within": True})


def takes_any(choice: Choose) -> Choose:
    """Takes a way where one host has what it needs."""

    def lax(hosts: Any, **how: Any) -> Choice:
        monarch, verbs = any(host.monarch for host in hosts), any(host.verbs for host in hosts)
        return choice([evolve(host, monarch=monarch, verbs=verbs) for host in hosts], **how)

    return lax


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "takes what one host has": takes_any,
    "takes all processes for Monarch's": takes_anybody,
}

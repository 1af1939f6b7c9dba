"""Choices of a way as people get them wrong: each an edit around a right one."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.effects.transfer.choice import Choice

Choose = Callable[..., Choice]


def asks_the_first(choice: Choose) -> Choose:
    """Takes all hosts for like the one it runs on."""

    def first(hosts: Any, **how: Any) -> Choice:
        return choice([evolve(host, memory=hosts[0].memory) for host in hosts], **how)

    return first


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


def takes_any(choice: Choose) -> Choose:
    """Takes RDMA where one host has it."""

    def lax(hosts: Any, **how: Any) -> Choice:
        verbs = any(host.verbs for host in hosts)
        return choice([evolve(host, verbs=verbs) for host in hosts], **how)

    return lax


def forgets_the_fallback(choice: Choose) -> Choose:
    """Reports TCP and lets it pass for RDMA."""
    return lambda hosts, **how: evolve(choice(hosts, **how), fallback=False)


MUTANTS: dict[str, Callable[[Any], Any]] = {"forgets the fallback": forgets_the_fallback}

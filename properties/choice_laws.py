"""Laws of the choice of a way for weights: it needs what every host has, and nothing of any other.

The subject is a `choice(hosts, fixed=)` as in `runtime.effects.transfer.choice`.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ..runtime.effects.transfer.choice import Choice, Host
from . import choice_mutants as mutants
from .compare import require
from .law import Law, Mutant, Seen, Suite, always

SOURCE = "runtime.effects.transfer.choice: a way by what the hosts have"
Subject = Callable[..., Choice]
Drawn = tuple[tuple[Host, ...], bool]


def _host(number: int, memory: int, monarch: bool, verbs: bool) -> Host:
    return Host(name=f"host{number}", memory=f"memory{memory}", monarch=monarch, verbs=verbs)


def choice_laws() -> Suite:
    """The laws of a choice."""
    return Suite("choice_laws", (_possible(), _best(), _alike(), _said()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Subject, Drawn, Seen], None], *needs: str) -> Law:
    host = st.builds(_host, st.integers(0, 3), st.integers(0, 1), st.sampled_from((True, True, False)), st.booleans())
    inputs: Any = st.tuples(st.lists(host, min_size=1, max_size=3).map(tuple), st.booleans())
    return Law(name=name, claim=claim, source=SOURCE, inputs=always(inputs), check=check, mutant=mutant, needs=needs)


def _can(hosts: tuple[Host, ...], fixed: bool) -> dict[str, bool]:
    """Which ways work at all, the best first."""
    return {
        "shared": all(host.memory == hosts[0].memory for host in hosts),
        "monarch": all(host.monarch and host.verbs for host in hosts),
        "broadcast": fixed,
        "tcp": True,
    }


def _possible() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        hosts, fixed = drawn
        can, way = _can(hosts, fixed), choice(hosts, fixed=fixed).way
        seen("hosts of which one alone lacks RDMA", sum(not (host.monarch and host.verbs) for host in hosts) == 1)
        require(can[way], f"{way} was chosen, which these hosts cannot do")

    claim = "The way that is chosen works on every host."
    mutant = Mutant("asks the first host alone", mutants.asks_the_first)
    return _law("the_way_works_everywhere", claim, mutant, check, "hosts of which one alone lacks RDMA")


def _best() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        hosts, fixed = drawn
        wanted = next(way for way, works in _can(hosts, fixed).items() if works)
        seen("members that never change", wanted == "broadcast")
        seen("members that may", wanted == "tcp")
        way = choice(hosts, fixed=fixed).way
        require(way == wanted, f"{way} was chosen, {wanted} would do")

    claim = "It is the fastest that does: shared memory, then RDMA, then a broadcast, then chunks over TCP."
    mutant = Mutant("takes what always works", mutants.always_tcp)
    return _law("the_way_is_the_fastest", claim, mutant, check, "members that never change", "members that may")


def _alike() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        hosts, fixed = drawn
        seen("several hosts", len(set(hosts)) > 1)
        way = choice(hosts, fixed=fixed)
        for other in (hosts[::-1], (*hosts, *hosts), hosts[1:] + hosts[:1]):
            found = choice(other, fixed=fixed)
            require(found == way, f"{found} for the hosts in another order, or named twice; {way} before")

    claim = "Neither the order of the hosts nor how often one is named changes the choice or what is said of it."
    mutant = Mutant("counts names that come twice", mutants.counts_twice)
    return _law("order_and_repetition_do_not_matter", claim, mutant, check, "several hosts")


def _said() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        found = choice(drawn[0], fixed=drawn[1])
        seen("a way over a network", found.way != "shared")
        line = str(found)
        require(found.way in line and found.why in line and found.why, f"{line!r} does not name the way and the reason")
        require("\n" not in line, f"{line!r} is more than one line")

    claim = "The choice says itself and its reason in one line."
    mutant = Mutant("gives no reason", mutants.says_nothing)
    return _law("the_choice_is_said", claim, mutant, check, "a way over a network")

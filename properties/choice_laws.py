"""Laws of the choice of a way for weights: it needs what every host has, and nothing of any other.

The subject is a `choice(hosts, fixed=, within=, asked=)` as in `runtime.effects.transfer.choice`.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import strategies as st

from ..core.errors import ChoiceError
from ..runtime.effects.transfer.choice import Choice, Host
from . import choice_mutants as mutants
from .compare import require
from .law import Law, Mutant, Seen, Suite, always

SOURCE = "runtime.effects.transfer.choice: a way by what the hosts have"
Subject = Callable[..., Choice]
Drawn = tuple[tuple[Host, ...], bool, bool]  # hosts, fixed, within
WAYS = ("shared", "monarch", "broadcast", "tcp")


def _host(number: int, memory: int, monarch: bool, verbs: bool) -> Host:
    return Host(name=f"host{number}", memory=f"memory{memory}", monarch=monarch, verbs=verbs)


def choice_laws() -> Suite:
    """The laws of a choice."""
    return Suite("choice_laws", (_possible(), _best(), _asked(), _alike(), _said()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Subject, Drawn, Seen], None], *needs: str) -> Law:
    mostly = st.sampled_from((True, True, True, False))
    host = st.builds(_host, st.integers(0, 3), st.integers(0, 1), mostly, mostly)
    inputs: Any = st.lists(host, min_size=1, max_size=3).map(tuple)

    def check_all(choice: Subject, hosts: tuple[Host, ...], seen: Seen) -> None:
        for fixed, within in product((False, True), repeat=2):
            check(choice, (hosts, fixed, within), seen)

    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(inputs), check=check_all, mutant=mutant, needs=needs
    )


def _chosen(choice: Subject, drawn: Drawn, **more: Any) -> Choice:
    hosts, fixed, within = drawn
    return choice(hosts, fixed=fixed, within=within, **more)


def _can(drawn: Drawn, *, verbs: bool = True) -> dict[str, bool]:
    """Which ways work at all, the best first; Monarch's without `verbs` on all hosts is slow and works."""
    hosts, fixed, within = drawn
    return {
        "shared": all(host.memory == hosts[0].memory for host in hosts),
        "monarch": within and all(host.monarch and (host.verbs or not verbs) for host in hosts),
        "broadcast": fixed,
        "tcp": True,
    }


def _possible() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        can, way, able = _can(drawn), _chosen(choice, drawn).way, [host.monarch and host.verbs for host in drawn[0]]
        seen("hosts of which one alone lacks RDMA", sum(not one for one in able) == 1)
        seen("hosts with RDMA, and processes that are none of Monarch's", all(able) and not drawn[2])
        require(can[way], f"{way} was chosen, which these hosts cannot do")

    claim = "The way that is chosen works on every host."
    mutant = Mutant("asks the first host alone", mutants.asks_the_first)
    needs = "hosts of which one alone lacks RDMA", "hosts with RDMA, and processes that are none of Monarch's"
    return _law("the_way_works_everywhere", claim, mutant, check, *needs)


def _best() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        wanted = next(way for way, works in _can(drawn).items() if works)
        seen("members that never change", wanted == "broadcast")
        seen("members that may", wanted == "tcp")
        way = _chosen(choice, drawn).way
        require(way == wanted, f"{way} was chosen, {wanted} would do")

    claim = "It is the fastest that does: shared memory, then RDMA, then a broadcast, then chunks over TCP."
    mutant = Mutant("takes what always works", mutants.always_tcp)
    return _law("the_way_is_the_fastest", claim, mutant, check, "members that never change", "members that may")


def _asked() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        can = _can(drawn, verbs=False)
        seen("one that would not be chosen", can["tcp"] and _chosen(choice, drawn).way != "tcp")
        for way in WAYS:
            seen(f"{way} asked for in vain", not can[way])
            try:
                found = _chosen(choice, drawn, asked=way).way
            except ChoiceError:
                found = ""
            wanted = way if can[way] else ""
            require(found == wanted, f"{way} was asked for: got {found!r}, wanted {wanted!r}")

    claim = "A way that is asked for is taken where these hosts can do it, else refused."
    mutant = Mutant("takes the one it would choose", mutants.chooses_all_the_same)
    vain = (f"{way} asked for in vain" for way in WAYS[:-1])
    return _law("what_is_asked_for_is_taken_or_refused", claim, mutant, check, "one that would not be chosen", *vain)


def _alike() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        hosts = drawn[0]
        seen("several hosts", len(set(hosts)) > 1)
        way = _chosen(choice, drawn)
        for other in (hosts[::-1], (*hosts, *hosts), hosts[1:] + hosts[:1]):
            found = _chosen(choice, (other, *drawn[1:]))
            require(found == way, f"{found} for the hosts in another order, or named twice; {way} before")

    claim = "Neither the order of the hosts nor how often one is named changes the choice or what is said of it."
    mutant = Mutant("counts names that come twice", mutants.counts_twice)
    return _law("order_and_repetition_do_not_matter", claim, mutant, check, "several hosts")


def _said() -> Law:
    def check(choice: Subject, drawn: Drawn, seen: Seen) -> None:
        found = _chosen(choice, drawn)
        seen("a way over a network", found.way != "shared")
        line = str(found)
        require(found.way in line and found.why in line and found.why, f"{line!r} does not name the way and the reason")
        require("\n" not in line, f"{line!r} is more than one line")

    claim = "The choice says itself and its reason in one line."
    mutant = Mutant("gives no reason", mutants.says_nothing)
    return _law("the_choice_is_said", claim, mutant, check, "a way over a network")

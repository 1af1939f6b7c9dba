"""Laws of the choice of a transport for weights: it depends on the hosts and the engine alone.

The subject is a `choice(hosts, engine=, asked=)` as in `runtime.effects.weight_sync.select_transport`.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError
from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.weight_sync.select_transport import ChosenTransport, Host

# --- mutants ---
# Common errors in the choice of a transport: each an edit of a right one.


Choose = Callable[..., ChosenTransport]


def asks_the_first(choice: Choose) -> Choose:
    """Use the memory of the first host for all hosts."""

    def first(hosts: Any, **how: Any) -> ChosenTransport:
        return choice([evolve(host, memory=hosts[0].memory) for host in hosts], **how)

    return first


def counts_twice(choice: Choose) -> Choose:
    """Add the number of listed hosts to the reason."""

    def counting(hosts: Any, **how: Any) -> ChosenTransport:
        found = choice(hosts, **how)
        return evolve(found, why=f"{len(hosts)} hosts; {found.why}")

    return counting


def says_nothing(choice: Choose) -> Choose:
    """Leave out the reason."""
    return lambda hosts, **how: evolve(choice(hosts, **how), why="")


def chooses_all_the_same(choice: Choose) -> Choose:
    """Ignore the requested transport."""
    return lambda hosts, *, asked="", **how: choice(hosts, **how)


def takes_any(choice: Choose) -> Choose:
    """Choose RDMA if one host has it."""

    def lax(hosts: Any, **how: Any) -> ChosenTransport:
        verbs = any(host.verbs for host in hosts)
        return choice([evolve(host, verbs=verbs) for host in hosts], **how)

    return lax


def forgets_the_fallback(choice: Choose) -> Choose:
    """Do not report that TCP is a fallback."""
    return lambda hosts, **how: evolve(choice(hosts, **how), fallback=False)


MUTANTS: dict[str, Callable[[Any], Any]] = {"forgets the fallback": forgets_the_fallback}


# --- laws ---


SOURCE = "runtime.effects.weight_sync.select_transport: a transport by what the hosts and the engine have"
Subject = Callable[..., ChosenTransport]
WAYS = ("shared", "ray", "monarch")
ENGINES = ("processes", "ray", "monarch")


def _host(number: int, memory: int, verbs: bool) -> Host:
    return Host(name=f"host{number}", memory=f"memory{memory}", verbs=verbs)


def choice_laws() -> Suite:
    """Return the laws of a choice."""
    return Suite("choice_laws", (_best(), _asked(), _fallback(), _alike(), _said()))


def _law(
    name: str, claim: str, mutant: Mutant, check: Callable[[Subject, tuple[Host, ...], str, Seen], None], *needs: str
) -> Law:
    host = st.builds(_host, st.integers(0, 3), st.integers(0, 1), st.sampled_from((True, True, False)))
    inputs: Any = st.lists(host, min_size=1, max_size=3).map(tuple)

    def check_all(choice: Subject, hosts: tuple[Host, ...], seen: Seen) -> None:
        for engine in ENGINES:
            check(choice, hosts, engine, seen)

    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(inputs), check=check_all, mutant=mutant, needs=needs
    )


def _can(hosts: tuple[Host, ...], engine: str) -> tuple[str, ...]:
    """The transports that work, the best first."""
    shared = all(host.memory == hosts[0].memory for host in hosts)
    return tuple(way for way in WAYS if (shared if way == "shared" else way == engine))


def _chosen(choice: Subject, hosts: tuple[Host, ...], engine: str, asked: str = "") -> ChosenTransport | tuple[()]:
    try:
        return choice(hosts, engine=engine, asked=asked)
    except ChoiceError:
        return ()


def _way(found: ChosenTransport | tuple[()]) -> str:
    return found.way if isinstance(found, ChosenTransport) else ""


def _best() -> Law:
    def check(choice: Subject, hosts: tuple[Host, ...], engine: str, seen: Seen) -> None:
        can = _can(hosts, engine)
        seen("several memories and no engine for them", not can)
        seen("one memory, and an engine", len(can) > 1)
        way, wanted = _way(_chosen(choice, hosts, engine)), next(iter(can), "")
        require(way == wanted, f"{way!r} was chosen with {engine}, wanted {wanted!r}")

    claim = (
        "Shared memory is taken where all hosts see one, else the transport of the engine; where it has none, refused."
    )
    mutant = Mutant("asks the first host alone", asks_the_first)
    needs = "several memories and no engine for them", "one memory, and an engine"
    return _law("the_transport_is_the_fastest", claim, mutant, check, *needs)


def _asked() -> Law:
    def check(choice: Subject, hosts: tuple[Host, ...], engine: str, seen: Seen) -> None:
        can, own = _can(hosts, engine), _way(_chosen(choice, hosts, engine))
        for way in WAYS:
            seen("one that would not be chosen", way in can and way != own)
            seen(f"{way} asked for in vain", way not in can)
            found, wanted = _way(_chosen(choice, hosts, engine, way)), way if way in can else ""
            require(found == wanted, f"{way} was asked for: got {found!r}, wanted {wanted!r}")

    claim = "A transport that is asked for is taken where these hosts can use it, else refused."
    mutant = Mutant("takes the one it would choose", chooses_all_the_same)
    vain = (f"{way} asked for in vain" for way in WAYS)
    return _law("what_is_asked_for_is_taken_or_refused", claim, mutant, check, "one that would not be chosen", *vain)


def _fallback() -> Law:
    def check(choice: Subject, hosts: tuple[Host, ...], engine: str, seen: Seen) -> None:
        found = _chosen(choice, hosts, engine, "monarch" if engine == "monarch" else "")
        if not isinstance(found, ChosenTransport):
            return
        without = [host for host in hosts if not host.verbs]
        seen("hosts of which one alone lacks RDMA", found.way == "monarch" and 0 < len(without) < len(hosts))
        seen("hosts with RDMA", found.way == "monarch" and not without)
        wanted = found.way == "monarch" and bool(without)
        require(found.fallback == wanted, f"{found} has fallback {found.fallback}, wanted {wanted}")
        require(("TCP" in str(found)) == wanted, f"{str(found)!r} does not name the fallback to TCP")

    claim = "Monarch's buffers are reported to fall back to TCP exactly where a host has no device for RDMA."
    mutant = Mutant("takes a device that one host has", takes_any)
    return _law("the_fallback_is_named", claim, mutant, check, "hosts of which one alone lacks RDMA", "hosts with RDMA")


def _alike() -> Law:
    def check(choice: Subject, hosts: tuple[Host, ...], engine: str, seen: Seen) -> None:
        seen("several hosts", len(set(hosts)) > 1)
        way = _chosen(choice, hosts, engine)
        for other in (hosts[::-1], (*hosts, *hosts), hosts[1:] + hosts[:1]):
            found = _chosen(choice, other, engine)
            require(found == way, f"{found} for the hosts in another order, or named twice; {way} before")

    claim = "Neither the order of the hosts nor how often one is named changes the choice or its report."
    mutant = Mutant("counts names that come twice", counts_twice)
    return _law("order_and_repetition_do_not_matter", claim, mutant, check, "several hosts")


def _said() -> Law:
    def check(choice: Subject, hosts: tuple[Host, ...], engine: str, seen: Seen) -> None:
        found = _chosen(choice, hosts, engine)
        if not isinstance(found, ChosenTransport):
            return
        seen("a transport over a network", found.way != "shared")
        line = str(found)
        require(found.way in line and found.why in line and found.why, f"{line!r} does not name transport and reason")
        require("\n" not in line, f"{line!r} is more than one line")

    claim = "The choice reports itself and its reason in one line."
    mutant = Mutant("gives no reason", says_nothing)
    return _law("the_choice_is_reported", claim, mutant, check, "a transport over a network")

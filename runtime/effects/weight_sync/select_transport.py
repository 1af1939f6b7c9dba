"""The choice of a transport for weights, a pure function of the hosts' properties, and the line that reports it.

All on one machine: shared memory. Else that of the engine: Ray's object store, or Monarch's RDMABuffer, which falls back to TCP
if a host has no device for RDMA.
"""

from collections.abc import Sequence

from attrs import frozen

from ....core.errors import ChoiceError, message

BETWEEN = {"ray": "ray", "monarch": "monarch"}  # engine: its transport between hosts


@frozen(kw_only=True)
class Host:
    """The properties of one host."""

    name: str
    memory: str  # identifies its shared memory: hosts with equal values share it
    verbs: bool = False  # it has a device for RDMA


@frozen
class ChosenTransport:
    """A transport, and the reason for it."""

    way: str
    why: str
    fallback: bool = False  # Monarch's buffers go over TCP, in clear unless Monarch has TLS

    def __str__(self) -> str:
        return f"weights go by {self.way}: {self.why}"


def transport_for(hosts: Sequence[Host], *, engine: str, asked: str = "") -> ChosenTransport:
    """Return the transport for these hosts, whose processes are those of `engine`, or the requested one.

    Raises: ChoiceError for no hosts, a transport that they cannot use, or several hosts without an engine for them.

    >>> str(transport_for([Host(name="a", memory="m"), Host(name="b", memory="n")], engine="ray"))
    "weights go by ray: 2 hosts share Ray's object store"
    >>> transport_for([Host(name="a", memory="m"), Host(name="a", memory="m")], engine="ray").way
    'shared'
    >>> str(transport_for([Host(name="a", memory="m"), Host(name="b", memory="n", verbs=True)], engine="monarch"))
    "weights go by monarch: 2 hosts, RDMA on 1 of them; Monarch's buffers fall back to TCP"
    """
    if not hosts:
        remedy = "name those who publish and those who fetch"
        raise ChoiceError(message("choice: hosts", got="none", wanted="at least 1", remedy=remedy))
    ways = _possible(hosts, engine)
    if (asked or not ways) and asked not in ways:
        wanted = f"{' or '.join(ways) or 'ray or monarch'}, which these hosts can use"
        remedy = "ask for that, or let it be chosen" if ways else "take the engine ray or monarch for several hosts"
        raise ChoiceError(message("the transport of weights", got=asked or "not found", wanted=wanted, remedy=remedy))
    return _said(hosts, asked or ways[0], "asked for, " if asked else "")


def _possible(hosts: Sequence[Host], engine: str) -> tuple[str, ...]:
    """Return the transports that these hosts can use, the fastest first.

    >>> _possible([Host(name="a", memory="m"), Host(name="a", memory="m")], "monarch")
    ('shared', 'monarch')
    """
    shared = ("shared",) if len({host.memory for host in hosts}) == 1 else ()
    return (*shared, *([BETWEEN[engine]] if engine in BETWEEN else ()))


def _said(hosts: Sequence[Host], way: str, asked: str) -> ChosenTransport:
    """Return that transport with its reason."""
    names = {host.name for host in hosts}
    many = f"{len(names)} host{'s' if len(names) > 1 else ''}"
    if way == "shared":
        return ChosenTransport(way, f"{asked}all processes see the same memory")
    if way == "ray":
        return ChosenTransport(way, f"{asked}{many} share Ray's object store")
    without = {host.name for host in hosts if not host.verbs}
    if not without:
        return ChosenTransport(way, f"{asked}{many}, all with RDMA")
    having = len(names - without)
    return ChosenTransport(
        way, f"{asked}{many}, RDMA on {having or 'none'} of them; Monarch's buffers fall back to TCP", True
    )

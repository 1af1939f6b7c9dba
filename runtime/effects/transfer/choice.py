"""Which way weights go, by what the hosts have: a pure choice, and the one line that says it.

All on one machine: shared memory. Else RDMA where every host has it and Monarch to drive it; else a broadcast where the
members never change while the run lasts; else chunks over TCP, which any host can pull, whenever it comes.
"""

from collections.abc import Sequence

from attrs import frozen

from ....core.errors import ChoiceError, message


@frozen(kw_only=True)
class Host:
    """What one host has."""

    name: str
    memory: str  # names the shared memory that its processes see: equal ones are one
    monarch: bool = False  # torchmonarch is installed
    verbs: bool = False  # there is a device for RDMA


@frozen
class Choice:
    """A way, and why."""

    way: str
    why: str

    def __str__(self) -> str:
        return f"weights go by {self.way}: {self.why}"


def choice(hosts: Sequence[Host], *, fixed: bool = False, within: bool = True, asked: str = "") -> Choice:
    """The way for these hosts, or the one that is asked for.

    `fixed` says that none joins or leaves while the run lasts, `within` that all who publish and fetch are processes of
    Monarch, without which its buffers cannot be had. Raises: ChoiceError for no hosts, or a way that they cannot do.

    >>> str(choice([Host(name="a", memory="m"), Host(name="b", memory="n")]))
    'weights go by tcp: 2 hosts, RDMA on none of them, and hosts may come and go'
    >>> choice([Host(name="a", memory="m"), Host(name="a", memory="m")]).way
    'shared'
    >>> able = [Host(name=name, memory=name, monarch=True, verbs=True) for name in "ab"]
    >>> choice(able).way, choice(able, asked="tcp").way, choice(able, within=False).why
    ('monarch', 'tcp', '2 hosts, RDMA on all of them, which takes the engine monarch, and hosts may come and go')
    """
    if not hosts:
        remedy = "name those who publish and those who fetch"
        raise ChoiceError(message("choice: hosts", got="none", wanted="at least 1", remedy=remedy))
    if asked:
        return _asked(hosts, asked, _possible(hosts, fixed=fixed, within=within))
    if _one_memory(hosts):
        return Choice("shared", "all processes see the same memory")
    many = f"{len({host.name for host in hosts})} hosts"
    if within and all(host.monarch and host.verbs for host in hosts):
        return Choice("monarch", f"{many}, all with RDMA and Monarch")
    if fixed:
        return Choice("broadcast", f"{many}, {_rdma(hosts, within)}, and none joins or leaves")
    return Choice("tcp", f"{many}, {_rdma(hosts, within)}, and hosts may come and go")


def _possible(hosts: Sequence[Host], *, fixed: bool = False, within: bool = True) -> tuple[str, ...]:
    """The ways that these hosts can do, the fastest first; Monarch's buffers go over TCP where there is no RDMA.

    >>> _possible([Host(name="a", memory="m", monarch=True), Host(name="b", memory="n", monarch=True)])
    ('monarch', 'tcp')
    """
    can = {
        "shared": _one_memory(hosts),
        "monarch": within and all(host.monarch for host in hosts),
        "broadcast": fixed,
        "tcp": True,
    }
    return tuple(way for way, works in can.items() if works)


def _one_memory(hosts: Sequence[Host]) -> bool:
    return len({host.memory for host in hosts}) == 1


def _asked(hosts: Sequence[Host], way: str, ways: Sequence[str]) -> Choice:
    """That way. Raises: ChoiceError where it is none of those."""
    if way not in ways:
        wanted, remedy = f"{' or '.join(ways)}, which these hosts can do", "ask for that, or let it be chosen"
        raise ChoiceError(message("the way of weights", got=way, wanted=wanted, remedy=remedy))
    if way == "monarch" and not all(host.verbs for host in hosts):
        return Choice(way, f"it is asked for; over TCP, with {_rdma(hosts, within=True)}")
    return Choice(way, "it is asked for")


def _rdma(hosts: Sequence[Host], within: bool) -> str:
    """Who has RDMA, and what keeps it from being used."""
    having = {host.name for host in hosts if host.verbs}
    if not having:
        return "RDMA on none of them"
    if not within:
        everybody = having == {host.name for host in hosts}
        return f"RDMA on {'all' if everybody else len(having)} of them, which takes the engine monarch"
    able = {host.name for host in hosts if host.verbs and host.monarch}
    return f"RDMA and Monarch on {len(able) or 'none'} of them alone"

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


def choice(hosts: Sequence[Host], *, fixed: bool = False) -> Choice:
    """The way for these hosts; `fixed` says that none joins or leaves while the run lasts. Raises: ChoiceError for none.

    >>> str(choice([Host(name="a", memory="m"), Host(name="b", memory="n")]))
    'weights go by tcp: 2 hosts, RDMA on none of them, and hosts may come and go'
    >>> choice([Host(name="a", memory="m"), Host(name="a", memory="m")]).way
    'shared'
    """
    if not hosts:
        remedy = "name those who publish and those who fetch"
        raise ChoiceError(message("choice: hosts", got="none", wanted="at least 1", remedy=remedy))
    if len({host.memory for host in hosts}) == 1:
        return Choice("shared", "all processes see the same memory")
    able = sorted({host.name for host in hosts if host.monarch and host.verbs})
    names = sorted({host.name for host in hosts})
    if all(host.monarch and host.verbs for host in hosts):
        return Choice("monarch", f"{len(names)} hosts, all with RDMA and Monarch")
    rdma = f"RDMA on {'none' if not able else f'{len(able)} alone'} of them"
    if fixed:
        return Choice("broadcast", f"{len(names)} hosts, {rdma}, and none joins or leaves")
    return Choice("tcp", f"{len(names)} hosts, {rdma}, and hosts may come and go")

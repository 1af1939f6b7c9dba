"""The interface of every engine: actors in processes on one or many hosts, called by method name, always with a time-out.

    with opened("processes") as cluster:
        mesh = cluster.spawn(Counter, (10,), size=3, timeout=30.0)
        mesh.call("add", (5,), timeout=2.0)               # (Done(15), Done(15), Done(15))
        mesh.slice((1,)).call("add", (1,), timeout=2.0)   # (Done(16),)
        cluster.failure(0.0)                              # () while no member has died

**An actor** is a class of a module, with a cheap `__init__(self, *arguments)`, methods that are not `async` and, for expensive
initialisation, `setup(self)`, which may be called again and then does nothing. The module is imported by its name: on this
machine by the path for imports of the process that spawns, on another host by that host's own. Arguments and answers are values
that pickle supports, and small ones: weights go through `effects.weight_sync`.
**A member** is one such actor in a process of its own. It makes one call at a time, in the order in which one thread requested
them. A call that times out is abandoned and not undone: the member goes on with it, or makes it later, and its result is
dropped.
**Guarantees.** A call returns within its time-out and one second, with one answer from each member, in the order of `members`;
a member that is busy, hangs or is gone delays no other's answer beyond that. The death of a member is reported by `failure`,
once, unless it was stopped; calls to it are then `lost`, as are calls to a stopped member, at once and for ever. All these
calls are thread-safe.
"""

from collections.abc import Callable
from typing import Any, Protocol

from attrs import frozen

from ....core.errors import ChoiceError, PurestepError, message

LATE, STOPPED = (
    "timed out",
    "stopped",
)  # beginnings of `Unanswered.why`: the call timed out; the member was stopped by us


class EngineError(PurestepError, RuntimeError):
    """Error for an engine or host that is not available, or for members that cannot be started or ended."""


@frozen
class MemberLost:
    """Death of a member that was not stopped by us."""

    host: str
    mesh: int  # the mesh's number
    member: int
    why: str


@frozen
class Done:
    """Result of a method."""

    value: Any


@frozen
class Unanswered:
    """A call without a result. A raised error is reported by its class and the first line of its text."""

    why: str  # "timed out after 2.0 s", "KeyError: 'dosk'", "its process ended (SIGKILL)", "stopped", ...
    lost: bool  # the member is gone; otherwise further calls may succeed


Answer = Done | Unanswered
Waiting = Callable[[], tuple[Answer, ...]]  # returns the answers once all are there or time is out; repeatable
Actor = type[Any]


class CallMembers(Protocol):
    """Call a method of all members, and wait."""

    def __call__(self, method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> tuple[Answer, ...]:
        """Return their answers. Raises: ChoiceError (an invalid time-out), EngineError (arguments that cannot be sent)."""
        ...


class StartCall(Protocol):
    """Start a call of a method of all members."""

    def __call__(self, method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> Waiting:
        """Return the function that waits for the answers; the time counts from now. Raises: as `CallMembers`."""
        ...


class StopMembers(Protocol):
    """Kill all members, whatever they are doing, and all processes that they have started."""

    def __call__(self, *, timeout: float) -> None:
        """Stop them; a second call does nothing. Raises: EngineError if something still runs when time is out."""
        ...


@frozen(kw_only=True)
class Mesh:
    """Members of one actor that are called together."""

    number: int  # as in Failure; a slice has the number of its whole
    members: tuple[int, ...]  # 0, 1, ... of the whole
    hosts: tuple[str, ...]  # of each member
    call: CallMembers
    ask: StartCall
    slice: "Callable[[tuple[int, ...]], Mesh]"  # of these members, in this order. Raises: ChoiceError
    stop: StopMembers  # of a slice, its members alone


class Spawn(Protocol):
    """Start members, in turn on the hosts."""

    def __call__(
        self,
        actor: Actor,
        arguments: tuple[Any, ...] = (),
        /,
        *,
        size: int,
        hosts: tuple[str, ...] = (),
        timeout: float,
    ) -> Mesh:
        """Return `size` members, member i on host i modulo the number of `hosts` (those of the cluster if none are given).

        Each is made, and its `setup` called if it has one, within the time-out. Raises: EngineError naming what failed, and
        then leaves no member behind; ChoiceError for an invalid size or time-out, or an unknown host.
        """
        ...


class AddHost(Protocol):
    """Add one more host."""

    def __call__(self, address: str, /, *, timeout: float) -> str:
        """Return the host's name, as in `hosts()`. Raises: EngineError for one that is unreachable or refuses."""
        ...


@frozen(kw_only=True)
class Cluster:
    """Hosts, and the functions that start, watch and stop members on them."""

    name: str  # of the engine
    hosts: Callable[[], tuple[str, ...]]  # those that can be used now; lost hosts are left out
    add_host: AddHost
    spawn: Spawn
    failure: Callable[[float], MemberLost | tuple[()]]  # (seconds): the next one, or () if none comes in that time
    stop: (
        StopMembers  # all meshes, and the processes of the engine itself; `spawn` and `add_host` then raise EngineError
    )


def host_of_each(size: int, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the host of each member, in turn.

    host_i = hosts[i mod n]

    Raises: ChoiceError.

    >>> host_of_each(3, ("one", "two"))
    ('one', 'two', 'one')
    """
    if size < 1:
        raise ChoiceError(message("spawn: size", got=size, wanted="at least 1", remedy="let one member work"))
    if not hosts:
        raise ChoiceError(message("spawn: hosts", got="()", wanted="at least 1", remedy="add a host that is there"))
    return tuple(hosts[i % len(hosts)] for i in range(size))


def sliced(members: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return the positions in `members` of those wanted.

    Raises: ChoiceError for one that is not in the mesh, one named twice, or none at all.

    >>> sliced((0, 2, 3), (3, 0))
    (2, 0)
    """
    if not wanted or len({*wanted}) != len(wanted) or not {*wanted} <= {*members}:
        remedy = "name members of this mesh, each once"
        raise ChoiceError(message("slice: members", got=wanted, wanted=f"some of {members}", remedy=remedy))
    return tuple(members.index(member) for member in wanted)


def timely(where: str, seconds: float) -> float:
    """Return the seconds, if they are a valid time-out.

    Raises: ChoiceError for a value that is not a number above 0, or is infinite.

    >>> timely("call", 2.0)
    2.0
    """
    if not 0.0 < seconds < float("inf"):
        remedy = "say how long you are ready to wait"
        raise ChoiceError(
            message(f"{where}: timeout", got=seconds, wanted="a number of seconds above 0", remedy=remedy)
        )
    return seconds


def late(seconds: float) -> Unanswered:
    """Return the answer for a member that did not answer in time.

    >>> late(2.0)
    Unanswered(why='timed out after 2.0 s', lost=False)
    """
    return Unanswered(f"{LATE} after {seconds:.1f} s", False)

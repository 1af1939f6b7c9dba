"""What every engine gives: actors in processes on one or many hosts, called by the name of a method, always with a time-out.

    with opened("processes") as cluster:
        mesh = cluster.spawn(Counter, (10,), size=3, timeout=30.0)
        mesh.call("add", (5,), timeout=2.0)               # (Done(15), Done(15), Done(15))
        mesh.slice((1,)).call("add", (1,), timeout=2.0)   # (Done(16),)
        cluster.failure(0.0)                              # () while nobody has died

**An actor** is a class of a module, with a cheap `__init__(self, *arguments)`, methods that are not `async`, and where it has
something heavy to do, `setup(self)`, which may be called again and then does nothing. The module is found by its name: on
this machine by the path for imports of whoever spawns, on another host by that host's own. Arguments and answers are values
that pickle knows, and small ones: weights go through `effects.transfer`.
**A member** is one such actor in a process of its own. It makes one call at a time, in the order in which one thread asked. A
call whose time is out is given up and not undone: the member goes on with it, or makes it later, and nobody hears of it.
**What may be relied on.** A call comes back within its time-out and a second, with one answer from each member, in the order
of `members`; a member that is busy, hangs or is gone delays no other's answer beyond that. A member that dies is told by
`failure`, once, unless it was stopped; calls to it are then `lost`, as are calls to what was stopped, at once and for ever. Any
thread may make any of these calls.
"""

from collections.abc import Callable
from typing import Any, Protocol

from attrs import frozen

from ....core.errors import ChoiceError, PurestepError, message

SETUP = "setup"  # the method for what is heavy
LATE, STOPPED = "timed out", "stopped"  # how `Failed.why` begins where time ran out, and where we ended the member


class EngineError(PurestepError, RuntimeError):
    """An engine cannot be had, a host cannot be reached, or members cannot be started or ended."""


@frozen
class Failure:
    """A member is no more, though nobody stopped it."""

    host: str
    mesh: int  # the mesh's number
    member: int
    why: str


@frozen
class Done:
    """What a method gave."""

    value: Any


@frozen
class Failed:
    """A call that gave nothing. A raised error is told by its class and the first line of what it says."""

    why: str  # "timed out after 2.0 s", "KeyError: 'dosk'", "its process ended (SIGKILL)", "stopped", ...
    lost: bool  # the member is no more; where it is not, further calls may succeed


Answer = Done | Failed
Waiting = Callable[[], tuple[Answer, ...]]  # gives the answers when all are there or time is out; again, the same ones
Actor = type[Any]


class Call(Protocol):
    """Calls a method of all members and waits."""

    def __call__(self, method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> tuple[Answer, ...]:
        """Their answers. Raises: ChoiceError (a time-out that is no time), EngineError (arguments that cannot be sent)."""
        ...


class Ask(Protocol):
    """Begins a call of a method of all members."""

    def __call__(self, method: str, arguments: tuple[Any, ...] = (), /, *, timeout: float) -> Waiting:
        """What waits for the answers; the time counts from now. Raises: as `Call`."""
        ...


class Stop(Protocol):
    """Ends all members, whatever they do, and all they have started."""

    def __call__(self, *, timeout: float) -> None:
        """Again, it does nothing. Raises: EngineError where something is still there when time is out."""
        ...


@frozen(kw_only=True)
class Mesh:
    """Members that are called together, all of one actor."""

    number: int  # as in Failure; a slice has the number of its whole
    members: tuple[int, ...]  # 0, 1, ... of the whole
    hosts: tuple[str, ...]  # of each member
    call: Call
    ask: Ask
    slice: "Callable[[tuple[int, ...]], Mesh]"  # of these members, in this order. Raises: ChoiceError
    stop: Stop  # of a slice, its members alone


class Spawn(Protocol):
    """Starts members, in turn on the hosts."""

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
        """`size` members, member i on host i modulo the number of `hosts` (those of the cluster where none are given).

        Each is made, and its `setup` called where it has one, within the time-out. Raises: EngineError naming what failed,
        and then leaves no member behind; ChoiceError for a size, time-out or host that is none.
        """
        ...


class AddHost(Protocol):
    """Takes in one more host."""

    def __call__(self, address: str, /, *, timeout: float) -> str:
        """The host's name, as in `hosts()`. Raises: EngineError for one that is unreachable or refuses."""
        ...


@frozen(kw_only=True)
class Cluster:
    """Hosts, and the way to have members on them."""

    name: str  # of the engine
    hosts: Callable[[], tuple[str, ...]]  # those that can be used now; one that was lost is left out
    add_host: AddHost
    spawn: Spawn
    failure: Callable[[float], Failure | tuple[()]]  # (seconds): the next one, or () where none comes in that time
    stop: Stop  # all meshes, and what the engine itself has started; `spawn` and `add_host` then raise EngineError


def placed(size: int, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """The host of each member, in turn.

    host_i = hosts[i mod n]

    Raises: ChoiceError.

    >>> placed(3, ("one", "two"))
    ('one', 'two', 'one')
    """
    if size < 1:
        raise ChoiceError(message("spawn: size", got=size, wanted="at least 1", remedy="let one member work"))
    if not hosts:
        raise ChoiceError(message("spawn: hosts", got="()", wanted="at least 1", remedy="add a host that is there"))
    return tuple(hosts[i % len(hosts)] for i in range(size))


def sliced(members: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The places in `members` of those wanted.

    Raises: ChoiceError for one that is not there, one named twice, or none at all.

    >>> sliced((0, 2, 3), (3, 0))
    (2, 0)
    """
    if not wanted or len({*wanted}) != len(wanted) or not {*wanted} <= {*members}:
        remedy = "name members of this mesh, each once"
        raise ChoiceError(message("slice: members", got=wanted, wanted=f"some of {members}", remedy=remedy))
    return tuple(members.index(member) for member in wanted)


def timely(where: str, seconds: float) -> float:
    """The seconds, where they are a time to wait.

    Raises: ChoiceError for what is no number above 0 or never ends.

    >>> timely("call", 2.0)
    2.0
    """
    if not 0.0 < seconds < float("inf"):
        remedy = "say how long you are ready to wait"
        raise ChoiceError(
            message(f"{where}: timeout", got=seconds, wanted="a number of seconds above 0", remedy=remedy)
        )
    return seconds


def late(seconds: float) -> Failed:
    """The answer of a member that did not answer in time.

    >>> late(2.0)
    Failed(why='timed out after 2.0 s', lost=False)
    """
    return Failed(f"{LATE} after {seconds:.1f} s", False)

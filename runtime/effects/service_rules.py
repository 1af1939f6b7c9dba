"""Which replica serves next, which is out of service, when it is tried again: a pure machine.

`step(roster, event) -> (roster, actions)`. A replica that is started again is another generation of it, so that what is said
late about the one before does not count against it.
"""

from collections.abc import Sequence
from typing import TypeVar

from attrs import evolve, frozen

from ...core.errors import ChoiceError, message

P = TypeVar("P")
HEALTHY, WAITING, RESTARTING = "healthy", "waiting", "restarting"


@frozen
class Replica:
    """One replica."""

    number: int
    state: str = HEALTHY
    generation: int = 0  # how often it was started again
    turn: int = 0  # when it was picked last; 0: never
    failures: int = 0  # in a row
    retry: float = 0.0  # when to start it again, while it waits


@frozen(kw_only=True)
class Roster:
    """The state."""

    replicas: tuple[Replica, ...]
    pause: float  # seconds before the first new start; twice as long after each further failure in a row
    longest: float  # the longest pause
    turns: int = 0  # picks made


@frozen
class Pick:
    """Somebody wants to be served."""


@frozen
class Served:
    """A replica has done what it was asked."""

    number: int
    generation: int


@frozen
class Failed:
    """A replica hangs, or died."""

    number: int
    generation: int
    now: float


@frozen
class Clock:
    """It is now."""

    now: float


@frozen
class Restarted:
    """A new start has come off."""

    number: int


@frozen
class NotRestarted:
    """A new start has failed."""

    number: int
    now: float


@frozen
class Picked:
    """This one serves."""

    number: int
    generation: int


@frozen
class Restart:
    """Start this one again."""

    number: int


Event = Pick | Served | Failed | Clock | Restarted | NotRestarted
Action = Picked | Restart


def roster(count: int, *, pause: float = 0.5, longest: float = 30.0) -> Roster:
    """That many healthy replicas. Raises: ChoiceError.

    >>> [replica.number for replica in roster(2).replicas]
    [0, 1]
    """
    if count < 1:
        raise ChoiceError(message("service: replicas", got=count, wanted="at least 1", remedy="let one serve"))
    return Roster(replicas=tuple(Replica(number) for number in range(count)), pause=pause, longest=longest)


def step(state: Roster, event: Event) -> tuple[Roster, tuple[Action, ...]]:
    """The next state and what is to be done; a Pick that no Picked answers found nobody healthy.

    Picked is the healthy one whose last turn is longest ago: while nobody fails that is each in turn, and where one fails
    or comes back the others keep theirs.

    >>> state, first = step(roster(2), Pick())
    >>> state, _ = step(state, Failed(0, 0, 10.0))
    >>> first, step(state, Pick())[1], step(state, Clock(11.0))[1]
    ((Picked(number=0, generation=0),), (Picked(number=1, generation=0),), (Restart(number=0),))
    """
    if isinstance(event, Pick):
        return _picked(state)
    if isinstance(event, Clock):
        due = [one for one in state.replicas if one.state == WAITING and one.retry <= event.now]
        for one in due:
            state = _with(state, evolve(one, state=RESTARTING))
        return state, tuple(Restart(one.number) for one in due)
    replica = state.replicas[event.number]
    if isinstance(event, Restarted):
        if replica.state == RESTARTING:
            state = _with(state, evolve(replica, state=HEALTHY, generation=replica.generation + 1))
    elif isinstance(event, NotRestarted):
        if replica.state == RESTARTING:
            state = _waiting(state, replica, event.now)
    elif replica.state != HEALTHY or replica.generation != event.generation:
        return state, ()
    elif isinstance(event, Failed):
        state = _waiting(state, replica, event.now)
    else:
        state = _with(state, evolve(replica, failures=0))
    return state, ()


def _picked(state: Roster) -> tuple[Roster, tuple[Action, ...]]:
    healthy = [one for one in state.replicas if one.state == HEALTHY]
    if not healthy:
        return state, ()
    chosen = min(healthy, key=lambda one: (one.turn, one.number))
    turns = state.turns + 1
    state = evolve(_with(state, evolve(chosen, turn=turns)), turns=turns)
    return state, (Picked(chosen.number, chosen.generation),)


def _with(state: Roster, changed: Replica) -> Roster:
    replicas = (*state.replicas[: changed.number], changed, *state.replicas[changed.number + 1 :])
    return evolve(state, replicas=replicas)


def _waiting(state: Roster, replica: Replica, now: float) -> Roster:
    failures = replica.failures + 1
    wait = pause(state, failures)
    return _with(state, evolve(replica, state=WAITING, failures=failures, retry=now + wait))


def pause(state: Roster, failures: int) -> float:
    """Seconds before a new start after so many failures in a row.

    pause_n = min(longest, pause 2^(n-1))

    >>> [pause(roster(1, longest=1.5), n) for n in (1, 2, 3)]
    [0.5, 1.0, 1.5]
    """
    return min(state.longest, state.pause * 2.0 ** min(failures - 1, 60))


def wakes(state: Roster) -> float:
    """The next moment at which a Clock has something to find.

    >>> wakes(step(roster(1), Failed(0, 0, 10.0))[0])
    10.5
    """
    return min((one.retry for one in state.replicas if one.state == WAITING), default=float("inf"))


def slices(processes: Sequence[P], per_replica: int) -> tuple[tuple[P, ...], ...]:
    """The processes in replicas of so many neighbours. Raises: ChoiceError where some would be left over.

    >>> slices("abcd", 2)
    (('a', 'b'), ('c', 'd'))
    >>> slices("abcde", 2)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: slices: processes is 5, wanted a multiple of 2; 1 would serve nobody: take 4 or 6
    """
    count = len(processes)
    if per_replica < 1 or count < 1:
        where, remedy = "slices: (processes, per_replica)", "let one process serve"
        raise ChoiceError(message(where, got=(count, per_replica), wanted="at least 1 of each", remedy=remedy))
    left = count % per_replica
    if left:
        remedy = f"{left} would serve nobody: take {count - left} or {count - left + per_replica}"
        if count < per_replica:
            remedy = f"{left} would serve nobody: take {per_replica}"
        raise ChoiceError(message("slices: processes", got=count, wanted=f"a multiple of {per_replica}", remedy=remedy))
    return tuple(tuple(processes[at : at + per_replica]) for at in range(0, count, per_replica))

"""Selection of the next replica, failures and restarts: a pure state machine.

`step(roster, event) -> (roster, actions)`. A restarted replica has a new generation, so that late results of the one before do
not count against it.
"""

from attrs import evolve, frozen

from ....core.errors import ChoiceError, message

HEALTHY, WAITING, RESTARTING = "healthy", "waiting", "restarting"


@frozen
class ReplicaState:
    """State of one replica."""

    number: int
    state: str = HEALTHY
    generation: int = 0  # how often it was restarted
    turn: int = 0  # when it was picked last; 0: never
    failures: int = 0  # consecutive
    retry: float = 0.0  # when to restart it, while it waits


@frozen(kw_only=True)
class Roster:
    """State of the service."""

    replicas: tuple[ReplicaState, ...]
    pause: float  # seconds before the first restart; twice as long after each further consecutive failure
    longest: float  # the longest pause
    turns: int = 0  # picks made


@frozen
class Pick:
    """Event: a caller needs a replica."""


@frozen
class Served:
    """Event: a replica has completed a call."""

    number: int
    generation: int


@frozen
class ReplicaFailed:
    """Event: a replica hangs, or died."""

    number: int
    generation: int
    now: float


@frozen
class Clock:
    """Event: the current time."""

    now: float


@frozen
class Restarted:
    """Event: a restart has succeeded."""

    number: int


@frozen
class NotRestarted:
    """Event: a restart has failed."""

    number: int
    now: float


@frozen
class Picked:
    """Action: use this replica for the call."""

    number: int
    generation: int


@frozen
class Restart:
    """Action: restart this replica."""

    number: int


Event = Pick | Served | ReplicaFailed | Clock | Restarted | NotRestarted
Action = Picked | Restart


def roster(count: int, *, pause: float = 0.5, longest: float = 30.0) -> Roster:
    """Return a roster of that many healthy replicas. Raises: ChoiceError.

    >>> [replica.number for replica in roster(2).replicas]
    [0, 1]
    """
    if count < 1:
        raise ChoiceError(message("service: replicas", got=count, wanted="at least 1", remedy="let one serve"))
    return Roster(replicas=tuple(ReplicaState(number) for number in range(count)), pause=pause, longest=longest)


def step(state: Roster, event: Event) -> tuple[Roster, tuple[Action, ...]]:
    """Return the next state and the actions to perform; if no replica is healthy, a Pick is not answered by a Picked.

    Picked is the healthy one whose last turn is longest ago: without failures that is each in turn, and if one fails or comes
    back the others keep their order.

    >>> state, first = step(roster(2), Pick())
    >>> state, _ = step(state, ReplicaFailed(0, 0, 10.0))
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
    elif isinstance(event, ReplicaFailed):
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


def _with(state: Roster, changed: ReplicaState) -> Roster:
    replicas = (*state.replicas[: changed.number], changed, *state.replicas[changed.number + 1 :])
    return evolve(state, replicas=replicas)


def _waiting(state: Roster, replica: ReplicaState, now: float) -> Roster:
    failures = replica.failures + 1
    wait = pause(state, failures)
    return _with(state, evolve(replica, state=WAITING, failures=failures, retry=now + wait))


def pause(state: Roster, failures: int) -> float:
    """Return the seconds before a restart after so many consecutive failures.

    pause_n = min(longest, pause 2^(n-1))

    >>> [pause(roster(1, longest=1.5), n) for n in (1, 2, 3)]
    [0.5, 1.0, 1.5]
    """
    return min(state.longest, state.pause * 2.0 ** min(failures - 1, 60))


def wakes(state: Roster) -> float:
    """Return the next time at which a Clock event has an effect.

    >>> wakes(step(roster(1), ReplicaFailed(0, 0, 10.0))[0])
    10.5
    """
    return min((one.retry for one in state.replicas if one.state == WAITING), default=float("inf"))

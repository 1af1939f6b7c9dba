"""Replicas that serve calls in turn: one that hangs or dies is taken out of service, another one serves, and it is restarted.

    with serving(lambda number: in_processes(1), 3) as service:
        world = guarded(zorplex(), service.perform, timeout=5.0)   # each call of a tool goes through the service

A replica is a `Perform` of `calls`, which makes calls with a time limit. `service_step(roster, event) -> (roster, actions)`, a
pure state machine, selects the one for each call, and decides on restarts. A restarted replica has a new generation, so that
late results of the one before do not count against it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from attrs import evolve, frozen

from ....core.errors import ChoiceError, PurestepError, message
from .calls import DIED, TIMED_OUT, Perform, Returned, ToolFailure

HEALTHY, WAITING, RESTARTING = "healthy", "waiting", "restarting"
PROBE = 60.0  # seconds in which a replica that was restarted must answer a first call
Begin = Callable[[int], AbstractContextManager[Perform]]


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
class ServiceClock:
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


Event = Pick | Served | ReplicaFailed | ServiceClock | Restarted | NotRestarted
Action = Picked | Restart


def roster(count: int, *, pause: float = 0.5, longest: float = 30.0) -> Roster:
    """Return a roster of that many healthy replicas. Raises: ChoiceError.

    >>> [replica.number for replica in roster(2).replicas]
    [0, 1]
    """
    if count < 1:
        raise ChoiceError(message("service: replicas", got=count, wanted="at least 1", remedy="let one serve"))
    return Roster(replicas=tuple(ReplicaState(number) for number in range(count)), pause=pause, longest=longest)


def service_step(state: Roster, event: Event) -> tuple[Roster, tuple[Action, ...]]:
    """Return the next state and the actions to perform; if no replica is healthy, a Pick is not answered by a Picked.

    Picked is the healthy one whose last turn is longest ago: without failures that is each in turn, and if one fails or comes
    back the others keep their order.

    >>> state, first = service_step(roster(2), Pick())
    >>> state, _ = service_step(state, ReplicaFailed(0, 0, 10.0))
    >>> first, service_step(state, Pick())[1], service_step(state, ServiceClock(11.0))[1]
    ((Picked(number=0, generation=0),), (Picked(number=1, generation=0),), (Restart(number=0),))
    """
    if isinstance(event, Pick):
        return _picked(state)
    if isinstance(event, ServiceClock):
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
    wait = restart_pause(state, failures)
    return _with(state, evolve(replica, state=WAITING, failures=failures, retry=now + wait))


def restart_pause(state: Roster, failures: int) -> float:
    """Return the seconds before a restart after so many consecutive failures.

    pause_n = min(longest, pause 2^(n-1))

    >>> [restart_pause(roster(1, longest=1.5), n) for n in (1, 2, 3)]
    [0.5, 1.0, 1.5]
    """
    return min(state.longest, state.pause * 2.0 ** min(failures - 1, 60))


def wakes(state: Roster) -> float:
    """Return the next time at which a Clock event has an effect.

    >>> wakes(service_step(roster(1), ReplicaFailed(0, 0, 10.0))[0])
    10.5
    """
    return min((one.retry for one in state.replicas if one.state == WAITING), default=float("inf"))


class ServiceError(PurestepError, RuntimeError):
    """Error for a call when no replica is healthy."""


@frozen
class Service:
    """The functions of a service; any thread may call them."""

    perform: Perform  # (function, arguments, seconds): as that of each replica
    health: Callable[[], tuple[ReplicaState, ...]]


@contextmanager
def serving(
    begin: Begin,
    count: int,
    *,
    tries: int = 2,
    pause: float = 0.5,
    longest: float = 30.0,
) -> Iterator[Service]:
    """Yield a service of `count` replicas, `begin(number)` each.

    A call goes to the healthy replica whose turn it is. If that hangs or dies the call goes to another one, `tries` in all,
    each with all its seconds; the last result is returned. A function that raises is not a failure of the replica. If no
    replica is healthy a call waits for its seconds, then ServiceError is raised. A replica that failed is ended once no call
    uses it, and another one is started after `pause` seconds (twice as many after each consecutive failure, at most `longest`);
    it is in service when it has answered a first call within a minute. Raises: ChoiceError.
    """
    if tries < 1:
        raise ChoiceError(message("serving: tries", got=tries, wanted="at least 1", remedy="let one replica try"))
    desk = _ReplicaPool(begin, roster(count, pause=pause, longest=longest))
    try:
        desk.open()
        yield Service(
            lambda function, arguments, seconds: desk.perform(function, arguments, seconds, tries), desk.health
        )
    finally:
        desk.close()


class _Seat:
    """A replica and the number of calls that use it."""

    def __init__(self, begun: AbstractContextManager[Perform]) -> None:
        self.stack = ExitStack()
        self.perform = self.stack.enter_context(begun)
        self.users, self.leaving = 0, False


class _ReplicaPool:
    """The roster, the replicas, and a thread that restarts replicas."""

    def __init__(self, begin: Begin, roster: Roster) -> None:
        self.begin, self.roster = begin, roster
        self.changed = threading.Condition()
        self.seats: dict[int, _Seat] = {}
        self.closing = False
        self.keeper = threading.Thread(target=self.keep, name="purestep-service", daemon=True)

    def open(self) -> None:
        """Start all replicas."""
        for replica in self.roster.replicas:
            self.seats[replica.number] = _Seat(self.begin(replica.number))
        self.keeper.start()

    def close(self) -> None:
        """End all replicas that are not in use; the others end with their last call."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        if self.keeper.is_alive():
            self.keeper.join()
        for number in [*self.seats]:
            self.leave(number)

    def health(self) -> tuple[ReplicaState, ...]:
        """Return the state of each replica."""
        with self.changed:
            return self.roster.replicas

    def tell(self, event: Event) -> tuple[Action, ...]:
        """Process an event; return the actions."""
        with self.changed:
            self.roster, actions = service_step(self.roster, event)
            self.changed.notify_all()
            return actions

    def perform(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float, tries: int
    ) -> Returned | ToolFailure:
        """Make a call, with another replica if one fails."""
        made: Returned | ToolFailure = ToolFailure(TIMED_OUT)
        for _ in range(tries):
            picked, seat = self.picked(seconds)
            try:
                made = seat.perform(function, arguments, seconds)
            finally:
                self.released(seat)
            if not (isinstance(made, ToolFailure) and made.kind in (TIMED_OUT, DIED)):
                self.tell(Served(picked.number, picked.generation))
                return made
            self.tell(ReplicaFailed(picked.number, picked.generation, time.monotonic()))
        return made

    def picked(self, seconds: float) -> tuple[Picked, _Seat]:
        """Return the replica whose turn it is, and its seat, marked as in use."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                self.roster, actions = service_step(self.roster, Pick())
                for action in actions:
                    if isinstance(action, Picked):
                        seat = self.seats[action.number]
                        seat.users += 1
                        return action, seat
                left = until - time.monotonic()
                if left <= 0 or self.closing:
                    got, wanted = f"0 of {len(self.roster.replicas)}", "at least 1"
                    remedy = "wait for new ones, or see why they fail"
                    raise ServiceError(message("service: healthy replicas", got=got, wanted=wanted, remedy=remedy))
                self.changed.wait(left)

    def released(self, seat: _Seat) -> None:
        """Release a replica after a call; the last call of a replica that is to leave ends it."""
        with self.changed:
            seat.users -= 1
            last = seat.leaving and seat.users == 0
        if last:
            seat.stack.close()

    def leave(self, number: int) -> None:
        """End a replica now, or when its last call returns."""
        with self.changed:
            seat = self.seats.pop(number, None)
            if seat is None:
                return
            seat.leaving = True
            free = seat.users == 0
        if free:
            seat.stack.close()

    def keep(self) -> None:
        """Restart replicas when they are due."""
        while True:
            with self.changed:
                wait = wakes(self.roster) - time.monotonic()
                if not self.closing and wait > 0:
                    self.changed.wait(min(wait, threading.TIMEOUT_MAX))
                if self.closing:
                    return
            for action in self.tell(ServiceClock(time.monotonic())):
                if isinstance(action, Restart):
                    self.again(action.number)

    def again(self, number: int) -> None:
        """Try once to restart a replica. Any exception counts as a failed start: the other replicas must be kept running."""
        try:
            self.leave(number)
            serves = self.begun(number)
        except Exception:
            serves = False
        self.tell(Restarted(number) if serves else NotRestarted(number, time.monotonic()))

    def begun(self, number: int) -> bool:
        """Start a replica and wait for its first call; one that does not answer is ended. Return whether it serves."""
        seat = _Seat(self.begin(number))
        with ExitStack() as undone:
            undone.callback(seat.stack.close)
            if not isinstance(seat.perform(int, (), PROBE), Returned):
                return False
            undone.pop_all()
        self.seats[number] = seat
        return True

"""Replicas that serve calls in turn: one that hangs or dies is taken out of service, another one serves, and it is restarted.

    with serving(lambda number: in_processes(1), 3) as service:
        world = guarded(zorplex(), service.perform, timeout=5.0)   # each call of a tool goes through the service

A replica is a `Perform` of `calls`, which makes calls with a time limit; `service_rules` selects the one for each call.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, PurestepError, message
from . import service_rules
from .calls import DIED, TIMED_OUT, Perform, Returned, ToolFailure

Begin = Callable[[int], AbstractContextManager[Perform]]


class ServiceError(PurestepError, RuntimeError):
    """Error for a call when no replica is healthy."""


@frozen
class Service:
    """The functions of a service; any thread may call them."""

    perform: Perform  # (function, arguments, seconds): as that of each replica
    health: Callable[[], tuple[service_rules.ReplicaState, ...]]


@contextmanager
def serving(
    begin: Begin,
    count: int,
    *,
    tries: int = 2,
    pause: float = 0.5,
    longest: float = 30.0,
    probe: float = 60.0,
) -> Iterator[Service]:
    """Yield a service of `count` replicas, `begin(number)` each.

    A call goes to the healthy replica whose turn it is. If that hangs or dies the call goes to another one, `tries` in all,
    each with all its seconds; the last result is returned. A function that raises is not a failure of the replica. If no
    replica is healthy a call waits for its seconds, then ServiceError is raised. A replica that failed is ended once no call
    uses it, and another one is started after `pause` seconds (twice as many after each consecutive failure, at most `longest`);
    it is in service when it has answered a first call within `probe` seconds. Raises: ChoiceError.
    """
    if tries < 1:
        raise ChoiceError(message("serving: tries", got=tries, wanted="at least 1", remedy="let one replica try"))
    desk = _ReplicaPool(begin, service_rules.roster(count, pause=pause, longest=longest), probe)
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

    def __init__(self, begin: Begin, roster: service_rules.Roster, probe: float) -> None:
        self.begin, self.roster, self.probe = begin, roster, probe
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

    def health(self) -> tuple[service_rules.ReplicaState, ...]:
        """Return the state of each replica."""
        with self.changed:
            return self.roster.replicas

    def tell(self, event: service_rules.Event) -> tuple[service_rules.Action, ...]:
        """Process an event; return the actions."""
        with self.changed:
            self.roster, actions = service_rules.step(self.roster, event)
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
                self.tell(service_rules.Served(picked.number, picked.generation))
                return made
            self.tell(service_rules.ReplicaFailed(picked.number, picked.generation, time.monotonic()))
        return made

    def picked(self, seconds: float) -> tuple[service_rules.Picked, _Seat]:
        """Return the replica whose turn it is, and its seat, marked as in use."""
        until = time.monotonic() + seconds
        with self.changed:
            while True:
                self.roster, actions = service_rules.step(self.roster, service_rules.Pick())
                for action in actions:
                    if isinstance(action, service_rules.Picked):
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
                wait = service_rules.wakes(self.roster) - time.monotonic()
                if not self.closing and wait > 0:
                    self.changed.wait(min(wait, threading.TIMEOUT_MAX))
                if self.closing:
                    return
            for action in self.tell(service_rules.Clock(time.monotonic())):
                if isinstance(action, service_rules.Restart):
                    self.again(action.number)

    def again(self, number: int) -> None:
        """Try once to restart a replica. Any exception counts as a failed start: the other replicas must be kept running."""
        try:
            self.leave(number)
            serves = self.begun(number)
        except Exception:
            serves = False
        self.tell(service_rules.Restarted(number) if serves else service_rules.NotRestarted(number, time.monotonic()))

    def begun(self, number: int) -> bool:
        """Start a replica and wait for its first call; one that does not answer is ended. Return whether it serves."""
        seat = _Seat(self.begin(number))
        with ExitStack() as undone:
            undone.callback(seat.stack.close)
            if not isinstance(seat.perform(int, (), self.probe), Returned):
                return False
            undone.pop_all()
        self.seats[number] = seat
        return True

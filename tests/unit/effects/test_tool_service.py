"""A service of replicas: calls go round, one that fails is taken out and comes back, and Zorplex is played through it."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.parsers import Call
from purestep.core.language.zorplex.env import zorplex
from purestep.runtime.effects.tools.calls import (
    DIED,
    RAISED,
    TIMED_OUT,
    Perform,
    Returned,
    ToolFailure,
    in_processes,
    in_threads,
)
from purestep.runtime.effects.tools.guard import guarded
from purestep.runtime.effects.tools.service import HEALTHY, WAITING, ServiceError, serving


class Crowd:
    """Replicas that do as they are told.

    `broken` ones fail, `lame` ones do not begin, `mute` ones raise at their first call, `sticky` ones when they end.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.broken: set[int] = set()
        self.lame: set[int] = set()
        self.mute: set[int] = set()
        self.sticky: set[int] = set()
        self.kind = DIED

    @contextmanager
    def begin(self, number: int) -> Iterator[Perform]:
        self.begun.append(number)
        if number in self.lame:
            raise OSError("no room")

        def perform(function: Any, arguments: tuple[Any, ...], seconds: float) -> Returned | ToolFailure:
            if function is not int:  # the first call, which asks whether it lives
                self.calls.append(number)
            elif number in self.mute:
                raise OSError("no process")
            if number in self.broken:
                return ToolFailure(self.kind)
            return in_threads()(function, arguments, seconds)

        yield perform
        self.ended.append(number)
        if number in self.sticky:
            raise OSError("no end")


def healthy(service: Any, count: int, seconds: float = 10.0) -> None:
    """Waits until so many replicas are healthy."""
    until = time.monotonic() + seconds
    while sum(one.state == HEALTHY for one in service.health()) != count:
        assert time.monotonic() < until, service.health()
        time.sleep(0.005)


def test_calls_go_round() -> None:
    crowd = Crowd()
    with serving(crowd.begin, 3) as service:
        given = [service.perform(divmod, (number, 2), 5.0) for number in range(6)]
    assert given == [Returned(divmod(number, 2)) for number in range(6)]
    assert crowd.calls == [0, 1, 2, 0, 1, 2]
    assert (crowd.begun, sorted(crowd.ended)) == ([0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize("kind", [DIED, TIMED_OUT])
def test_a_call_goes_on_to_another_replica_when_one_fails(kind: str) -> None:
    crowd = Crowd()
    crowd.broken, crowd.kind = {1}, kind
    with serving(crowd.begin, 3, pause=30.0) as service:
        assert [service.perform(abs, (-number,), 5.0) for number in range(6)] == [Returned(n) for n in range(6)]
        assert [one.state for one in service.health()] == [HEALTHY, WAITING, HEALTHY]
    assert crowd.calls == [0, 1, 2, 0, 2, 0, 2]  # fair before, at and after the failure


def test_a_function_that_raises_is_no_fault_of_the_replica() -> None:
    crowd = Crowd()
    with serving(crowd.begin, 2) as service:
        made = service.perform(divmod, (1, 0), 5.0)
        assert isinstance(made, ToolFailure)
        assert made.kind == RAISED
        assert [one.state for one in service.health()] == [HEALTHY] * 2
    assert crowd.calls == [0]  # and it is not tried again


def test_a_call_that_fails_everywhere_is_tried_so_often_and_no_more() -> None:
    crowd = Crowd()
    crowd.broken = {0, 1, 2, 3}
    with serving(crowd.begin, 4, tries=3, pause=30.0) as service:
        assert service.perform(abs, (1,), 5.0) == ToolFailure(DIED)
        assert crowd.calls == [0, 1, 2]
        assert sum(one.state == HEALTHY for one in service.health()) == 1


def test_a_replica_comes_back_when_its_pause_is_over() -> None:
    crowd = Crowd()
    crowd.broken = {0}
    with serving(crowd.begin, 1, tries=1, pause=0.05) as service:
        assert service.perform(abs, (1,), 5.0) == ToolFailure(DIED)
        crowd.broken = set()
        assert service.perform(abs, (1,), 10.0) == Returned(1)  # the call waits for it
        (replica,) = service.health()
        assert (replica.state, replica.generation, replica.failures) == (HEALTHY, 1, 0)
    assert (crowd.begun, crowd.ended) == ([0, 0], [0, 0])


def test_starts_that_fail_are_tried_again_and_nobody_waits_for_ever() -> None:
    crowd = Crowd()
    with serving(crowd.begin, 1, tries=1, pause=0.02, longest=0.1) as service:
        crowd.broken, crowd.lame = {0}, {0}
        assert service.perform(abs, (1,), 5.0) == ToolFailure(DIED)
        with pytest.raises(ServiceError, match="healthy replicas is 0 of 1, wanted at least 1"):
            service.perform(abs, (1,), 0.3)
        assert len(crowd.begun) >= 3
        crowd.broken, crowd.lame = set(), set()
        healthy(service, 1)
        assert service.perform(abs, (-2,), 5.0) == Returned(2)


@pytest.mark.parametrize("fault", ["mute", "sticky"])
def test_a_replica_that_raises_at_its_first_call_or_its_end_stops_no_other_one(fault: str) -> None:
    crowd = Crowd()
    with serving(crowd.begin, 2, tries=1, pause=0.02, longest=0.05) as service:
        crowd.broken = {0, 1}
        getattr(crowd, fault).add(0)
        assert [service.perform(abs, (1,), 5.0) for _ in range(2)] == [ToolFailure(DIED)] * 2
        crowd.broken = set()
        assert service.perform(abs, (-1,), 10.0) == Returned(1)
        crowd.mute, crowd.sticky = set(), set()
        healthy(service, 2)
    assert sorted(crowd.ended) == sorted(crowd.begun)  # also those that could not serve


def test_a_replica_that_is_still_used_ends_with_its_last_call() -> None:
    crowd, release, entered = Crowd(), threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        release.wait(20.0)
        return "held"

    with serving(crowd.begin, 1, tries=1, pause=0.01) as service:
        held: list[Any] = []
        caller = threading.Thread(target=lambda: held.append(service.perform(hold, (), 20.0)))
        caller.start()
        assert entered.wait(10.0)
        crowd.broken = {0}
        assert service.perform(abs, (1,), 5.0) == ToolFailure(DIED)
        crowd.broken = set()
        healthy(service, 1)
        assert crowd.ended == []
        release.set()
        caller.join(10.0)
        assert held == [Returned("held")]
        assert crowd.ended == [0]
        assert service.health()[0].state == HEALTHY


def test_threads_that_call_at_once_share_the_replicas() -> None:
    crowd = Crowd()
    with serving(crowd.begin, 2) as service:
        threads = [threading.Thread(target=service.perform, args=(abs, (1,), 5.0)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20.0)
    assert sorted(crowd.calls) == [0] * 6 + [1] * 6


def test_choices_without_sense_are_refused() -> None:
    crowd = Crowd()
    with pytest.raises(ChoiceError, match="replicas is 0"), serving(crowd.begin, 0):
        pass
    with pytest.raises(ChoiceError, match="tries is 0"), serving(crowd.begin, 1, tries=0):
        pass


def test_a_process_that_hangs_is_taken_out_and_comes_back() -> None:
    with serving(lambda number: in_processes(1), 2, tries=1, pause=0.05) as service:
        pids = [service.perform(os.getpid, (), 10.0) for _ in range(2)]
        assert len({str(pid) for pid in pids}) == 2
        assert service.perform(time.sleep, (30,), 0.1) == ToolFailure(TIMED_OUT)
        assert service.perform(abs, (-1,), 10.0) == Returned(1)
        healthy(service, 2)
        assert [one.generation for one in service.health()] == [1, 0]


def test_zorplex_is_played_through_a_service() -> None:
    crowd = Crowd()
    crowd.broken = {2}
    world, plain = zorplex(), zorplex()
    with serving(crowd.begin, 3, pause=30.0) as service:
        served = guarded(world, service.perform, timeout=10.0)
        for seed in range(4):
            state, first = served.reset(served.params, keys.key(seed))
            wanted, text = plain.reset(plain.params, keys.key(seed))
            assert (state, first) == (wanted, text)
            for name, tool in plain.tools.items():
                assert served.tools[name](served.params, state, "quomun") == tool(plain.params, wanted, "quomun")
            action = Call("LOOKUP", "quomun")
            assert served.step(served.params, state, action, keys.key(1)) == plain.step(
                plain.params, wanted, action, keys.key(1)
            )
    assert {0, 1, 2} == set(crowd.calls)
    assert abs(crowd.calls.count(0) - crowd.calls.count(1)) <= 1
    assert crowd.calls.count(2) == 1

"""A wait for something outside ends at once on Ctrl-C while a machine is driven, in whatever thread it waits."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Queue
from typing import Any

import pytest
from attrs import frozen

from purestep.core.machine import Interrupted, Machine, Started, Stop
from purestep.runtime.effects import clock
from purestep.runtime.effects.openai_server.client import ServerError, server, wait_for
from purestep.runtime.effects.tools.calls import in_processes, in_threads
from purestep.runtime.machine.drive import drive, serial, stopping

MINUTES, AT_ONCE = 300.0, 60.0  # the second, of a busy machine, is far below the first


@frozen
class Wait:
    """Command: wait."""


@frozen
class Ended:
    """Event: the wait was ended."""


def in_a_pool(wait: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(lambda _: wait(), [0]))


def in_worker() -> None:
    with in_processes(1) as perform:
        perform(time.sleep, (MINUTES,), MINUTES)


WAITS: dict[str, Callable[[], Any]] = {
    "a pause": lambda: clock.sleep(MINUTES),
    "a letter": lambda: clock.received(lambda wait: Queue[int]().get(timeout=wait), MINUTES),
    "a result": lambda: clock.result(Future[int](), MINUTES),
    "a pause in another thread": lambda: in_a_pool(lambda: clock.sleep(MINUTES)),
    "a server": lambda: wait_for(server("http://127.0.0.1:9/v1", "any"), MINUTES),
    "a server in another thread": lambda: in_a_pool(lambda: wait_for(server("http://127.0.0.1:9/v1", "any"), MINUTES)),
    "a call in a thread": lambda: in_threads()(threading.Event().wait, (MINUTES,), MINUTES),
    "a call in a worker": in_worker,
}


@pytest.fixture
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_handler")
@pytest.mark.parametrize("name", [each for each in WAITS if each != "a call in a worker"])
def test_the_first_ctrl_c_ends_a_wait_of_a_handler(name: str) -> None:
    check(WAITS[name])


@pytest.mark.slow  # a worker starts
@pytest.mark.usefixtures("default_handler")
def test_the_first_ctrl_c_ends_a_call_in_a_worker() -> None:
    check(in_worker)


def check(wait: Callable[[], Any]) -> None:
    """Let a machine's handler wait, and see it end by itself, with the machine told."""

    def waits(command: Wait) -> Ended:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            wait()
        except KeyboardInterrupt:
            assert stopping()
            return Ended()
        raise AssertionError("the wait ended by itself")

    def step(seen: tuple[Any, ...], event: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (*seen, event), (Wait(),) if event == Started() else (Stop(),) if event == Ended() else ()

    begin, seen = time.monotonic(), ()
    for state in drive(Machine(step), (), serial({Wait: waits})):
        seen = state
    assert set(seen) == {Started(), Ended(), Interrupted()}
    assert time.monotonic() - begin < AT_ONCE
    assert not stopping()


def test_a_signal_whose_handler_outlasts_a_wait_does_not_make_it_endless() -> None:
    before = signal.signal(signal.SIGALRM, lambda number, frame: time.sleep(0.3))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Empty):
            clock.received(lambda wait: Queue[int]().get(timeout=wait), 0.2)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_without_a_signal_a_wait_has_its_time() -> None:
    with pytest.raises(Empty):
        clock.received(lambda wait: Queue[int]().get(timeout=wait), 0.0)
    with pytest.raises(TimeoutError):
        clock.result(Future[int](), 0.0)
    failed: Future[int] = Future()
    failed.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        clock.result(failed, MINUTES)


def test_a_wait_for_a_server_is_told_once() -> None:
    told = list[str]()
    with pytest.raises(ServerError):
        wait_for(server("http://127.0.0.1:9/v1", "any"), 0.0)  # imports the client
    with pytest.raises(ServerError, match="see whether the server runs"):
        wait_for(server("http://127.0.0.1:9/v1", "any"), 2.0, lambda: told.append("waiting"))
    assert told == ["waiting"]

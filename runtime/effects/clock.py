"""The clock: durations, and waits that Ctrl-C and SIGTERM end at once.

While a run's machine is driven the first signal raises nothing (`machine.drive`): it is noticed, so that a chunk of work is
finished and saved. A wait for something outside, such as a server or a judge, is no work and ends: KeyboardInterrupt.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty
from typing import TypeVar

from ..machine.drive import stopping

T = TypeVar("T")
LOOK = 0.1  # seconds between two looks at whether the process is asked to stop


def seconds() -> float:
    """Return the seconds since an arbitrary moment: only differences have a meaning. The clock never goes back."""
    return time.perf_counter()


def check_stopping() -> None:
    """Raise KeyboardInterrupt if Ctrl-C or SIGTERM has asked the process to stop.

    >>> check_stopping()
    """
    if stopping():
        raise KeyboardInterrupt


def sleep(seconds: float) -> None:
    """Sleep. Raises: KeyboardInterrupt, at once, when the process is asked to stop.

    >>> sleep(0.0)
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        check_stopping()
        time.sleep(min(left, LOOK))


def received(take: Callable[[float], T], seconds: float) -> T:
    """Return what `take(seconds)` receives, called again for as long as it raises Empty or TimeoutError, for `seconds` in all.

    Take from a `Queue`: in CPython 3.11 a `SimpleQueue` waits without end where a signal's handler outlasts the time.
    Raises: as `take` at the end; KeyboardInterrupt, at once, when the process is asked to stop.

    >>> from queue import Queue
    >>> letters: Queue[str] = Queue()
    >>> letters.put("here")
    >>> received(lambda wait: letters.get(timeout=wait), 5.0)
    'here'
    """
    until = time.monotonic() + seconds
    while True:
        check_stopping()
        left = until - time.monotonic()
        try:
            return take(max(0.0, min(left, LOOK)))
        except (Empty, TimeoutError):
            if left <= LOOK:
                raise


def result(future: Future[T], seconds: float = math.inf) -> T:
    """Return the result of a future, or of a thread pool's work. Raises: as it; TimeoutError; KeyboardInterrupt as `sleep`.

    >>> made: Future[int] = Future()
    >>> made.set_result(3)
    >>> result(made)
    3
    """
    until = time.monotonic() + seconds
    while not future.done():
        check_stopping()
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            return future.result(min(left, LOOK))
        except TimeoutError:
            continue
    return future.result()

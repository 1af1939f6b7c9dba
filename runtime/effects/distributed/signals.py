"""Signals between the threads and processes of ranks: an error for the main thread, and Ctrl-C for rank 0 alone."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .process_group import RankError

Interrupt = Callable[[RankError], None]


@contextmanager
def deaf() -> Iterator[None]:
    """Ignore Ctrl-C, which reaches all processes: rank 0 handles it, saves, and then ends the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Yield a function by which other threads raise an error in the main thread, which runs this block; else a no-op.

    Uses SIGURG: it interrupts a wait, as Ctrl-C does, and is ignored without a handler.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        yield _nobody
        return
    errors: list[RankError] = []

    def interrupt(error: RankError) -> None:
        errors.append(error)
        signal.pthread_kill(main.ident or 0, signal.SIGURG)

    def handle(*_: object) -> None:
        if errors:
            raise errors.pop()

    signal.signal(signal.SIGURG, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def _nobody(error: RankError) -> None:
    """Ignore the error: the block is not in the main thread, or SIGURG has another handler."""

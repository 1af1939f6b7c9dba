"""Signals between the threads and processes of ranks: an error for the main thread, and Ctrl-C for the first rank alone."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .world import RankError

Interrupt = Callable[[RankError], None]


@contextmanager
def deaf() -> Iterator[None]:
    """Leaves Ctrl-C, which reaches all processes, to the first: it saves first, and says when all is over."""
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
    """Gives what raises an error in the main thread, of which this is a block, from another; elsewhere that does nothing.

    By SIGURG: it ends a wait, as Ctrl-C does, and does nothing where nobody handles it.
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
    """There is no main thread to tell, or it hears something else."""

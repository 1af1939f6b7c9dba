"""How processes end: a cluster's SIGTERM is answered as Ctrl-C, so that a run saves and stops; or all is over at once."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def interruptible() -> Iterator[None]:
    """A block in which SIGTERM, by which clusters end jobs, is as Ctrl-C.

    In the main thread alone, and only where nobody has set a handler of SIGTERM: whoever has knows what to do. Where SIGINT is
    ignored, as a shell's script has it for what it starts with `&`, the block hears it too: SIGTERM would be ignored else.

    >>> with interruptible():
    ...     try:
    ...         signal.raise_signal(signal.SIGTERM)
    ...     except KeyboardInterrupt:
    ...         print("interrupted")
    interrupted
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def deaf() -> None:
    """Has this process ignore Ctrl-C and SIGTERM from now on: its work is done and told, and it takes itself apart.

    In the main thread alone; elsewhere it does nothing.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def end_at_once(line: str) -> NoReturn:
    """Tells the line on standard error and ends the process with 1, without taking it apart or calling `atexit`'s functions.

    For whoever has lost another rank: gloo may abort where a connection broke and a process takes itself apart.
    """
    try:
        for stream, text in ((sys.stderr, line + "\n"), (sys.stdout, "")):
            with suppress(OSError, ValueError):  # nobody reads it any more
                stream.write(text)
                stream.flush()
    finally:
        os._exit(1)

"""How whoever ends processes is answered: a cluster's SIGTERM as Ctrl-C, so that a run saves and stops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """A block in which SIGTERM, by which clusters end jobs, is as Ctrl-C.

    In the main thread alone, and only where nobody has set a handler of SIGTERM: whoever has knows what to do.

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
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

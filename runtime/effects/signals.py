"""End of processes: a cluster's SIGTERM is handled like Ctrl-C, so that a run saves and stops; or the process exits at once."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGTERM, by which clusters end jobs, like Ctrl-C in the block.

    Only in the main thread, and only if SIGTERM has its default handler: another handler stays. If SIGINT is ignored, as in
    jobs that a shell script starts with `&`, the block handles it too, because SIGTERM is passed on as SIGINT and would be
    ignored. A Ctrl-C that arrives inside a finalizer, where Python drops exceptions, is repeated.

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
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook

    def repeat(lost: "sys.UnraisableHookArgs") -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        else:
            hook(lost)

    sys.unraisablehook = repeat
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def deaf() -> None:
    """Make this process ignore Ctrl-C and SIGTERM from now on: its work is done and reported, and it is shutting down.

    Only in the main thread; elsewhere this does nothing.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def end_at_once(line: str) -> NoReturn:
    """Write the line to standard error and exit with status 1, without any clean-up and without calling `atexit` functions.

    For a process that has lost another rank: gloo may abort if a process with a broken connection shuts down normally.
    """
    try:
        for stream, text in ((sys.stderr, line + "\n"), (sys.stdout, "")):
            with suppress(OSError, ValueError):  # the stream is closed
                stream.write(text)
                stream.flush()
    finally:
        os._exit(1)


def fill_streams() -> None:
    """Give this process the null device in place of each standard stream that it was started without.

    Python sets such a stream to None, and the next file that is opened gets its number, so that a library's message to the
    standard output would be written into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # the lowest number that is free
            os.set_inheritable(null, True)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def drop_output() -> None:
    """Drop what is left in the buffer of the standard output where it cannot be written, as on a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output_closed() -> bool:
    """Return True if the reader of the standard output has closed it; what is left in its buffer is then dropped.

    Python ignores SIGPIPE, by which other programs end in such a case.
    """
    output, polled = sys.stdout.fileno(), select.poll()
    polled.register(output, 0)
    if not any(events & select.POLLERR for _, events in polled.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True

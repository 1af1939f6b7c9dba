"""A small process that removes a file once this one is gone, however it went: what a SIGKILL leaves behind in memory."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = """
import os, sys
sys.stdin.buffer.read()
if os.path.lexists(sys.argv[1]):
    os.unlink(sys.argv[1])
"""


@contextmanager
def removed_afterwards(path: Path) -> Iterator[None]:
    """A block with an heir: where this process dies in it, the file is removed; at the block's end it is left alone.

    The heir is in a session of its own, which signals from a terminal do not reach, and reads from a pipe until nobody holds
    the other end. Where no process can be started there is none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "weights"
    ...     _ = path.write_bytes(b"")
    ...     with removed_afterwards(path):
    ...         pass
    ...     path.exists()
    True
    """
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, str(path)]
    try:
        heir = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        heir.kill()
        heir.communicate()

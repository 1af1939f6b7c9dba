"""A small process that clears up once this one is gone, however it went: a SIGKILL leaves files in memory, and servers."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .child_process import PROGRAM, ChildProcess

REMOVE = """
import os, sys
sys.stdin.buffer.read()
if os.path.lexists(sys.argv[1]):
    os.unlink(sys.argv[1])
"""
END = """
import runpy, sys
sys.stdin.buffer.read()
runpy.run_path(sys.argv[1])["end_session"](int(sys.argv[2]))
"""


@contextmanager
def removed_afterwards(path: Path) -> Iterator[None]:
    """A block with an heir: where this process dies in it, the file is removed; at the block's end it is left alone.

    Where no process can be started there is no heir.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "weights"
    ...     _ = path.write_bytes(b"")
    ...     with removed_afterwards(path):
    ...         pass
    ...     path.exists()
    True
    """
    with _heir(REMOVE, str(path)):
        yield


@contextmanager
def ended_afterwards(child: ChildProcess) -> Iterator[None]:
    """A block with an heir: where this process dies in it, the child is killed with all processes of its session.

    >>> child = ChildProcess(["sleep", "30"])
    >>> with ended_afterwards(child):
    ...     pass
    >>> child.ended(), child.end()
    ('', None)
    """
    with _heir(END, str(PROGRAM), str(child.pid)):
        yield


@contextmanager
def _heir(program: str, *words: str) -> Iterator[None]:
    """Reads from a pipe until nobody holds the other end."""
    command = [sys.executable, "-I", "-S", "-c", program, *words]
    try:
        heir = ChildProcess(command, stdin=subprocess.PIPE)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        heir.end()

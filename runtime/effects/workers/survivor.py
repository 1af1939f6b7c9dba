"""A process that cleans up after this one has ended, even by SIGKILL: it removes a shared-memory file or ends a server."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .process import PROGRAM, ChildProcess

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
    """Remove the file if this process dies in the block; leave it alone at the block's end.

    If no helper process can be started, nothing removes it.

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
    """Kill the child with all processes of its session if this process dies in the block.

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
    """Run a program that waits until the other end of its standard input is closed, which this process holds."""
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

"""Folders of Ray's nodes: who runs a node holds its folder, and what a kill has left behind the next node removes."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "purestep-node-"  # short: paths of sockets have at most 107 letters
YOUNG = 60.0  # seconds in which a folder that was made is taken hold of


def made() -> tuple[str, int]:
    """A new folder, and the descriptor by which all processes that have it open hold it; those left by a kill are removed."""
    sweep(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=PREFIX)
    descriptor = os.open(folder, os.O_RDONLY)
    _hold(descriptor)
    return folder, descriptor


def sweep(place: Path, *, young: float = YOUNG) -> int:
    """Removes folders of nodes that nobody holds and that were not made just now; gives how many."""
    removed = 0
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is somebody else's, or held, or gone
            if time.time() - path.stat().st_mtime < young:
                continue
            descriptor = os.open(path, os.O_RDONLY)
            try:
                _hold(descriptor)
                shutil.rmtree(path)
                removed += 1
            finally:
                os.close(descriptor)
    return removed


def _hold(descriptor: int) -> None:
    """Raises: BlockingIOError where somebody holds it."""
    import fcntl  # POSIX only, so not at the top of a module that everybody imports

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

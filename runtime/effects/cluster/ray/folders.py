"""Folders of Ray's nodes: the processes of a node lock its folder; the next node removes folders that a kill left behind."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "purestep-node-"  # short: paths of sockets have at most 107 characters
YOUNG = 60.0  # seconds after which a new folder must be locked


def new_locked_folder() -> tuple[str, int]:
    """Return a new folder, and the descriptor that locks it while any process has it open; remove those left by a kill."""
    remove_folders(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=PREFIX)
    descriptor = os.open(folder, os.O_RDONLY)
    _hold(descriptor)
    return folder, descriptor


def remove_folders(place: Path, *, young: float = YOUNG) -> int:
    """Remove folders of nodes that are not locked and not new; return how many."""
    removed = 0
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it belongs to another user, or is locked, or gone
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
    """Lock the folder. Raises: BlockingIOError if another process holds it."""
    import fcntl  # POSIX only, so not at the top: all platforms import this module

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

"""The few file operations that must survive a crash, as a value, so that a test can record them and cut them short."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from ...core.errors import CheckpointError, message


@frozen
class Files:
    """What a crash can fall between. A rename is atomic; nothing else is, and nothing lasts before `sync`."""

    make_folder: Callable[[Path], None]  # with its parents, if absent
    append: Callable[[Path, bytes], None]  # to a file, made if absent
    sync: Callable[[Path], None]  # a file's bytes, or a folder's entries, to the disk
    rename: Callable[[Path, Path], None]  # within one file system; replaces a file
    remove: Callable[[Path], None]  # a file or a folder with all it holds


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


DISK = Files(
    make_folder=lambda path: path.mkdir(parents=True, exist_ok=True),
    append=_append,
    sync=_sync,
    rename=lambda source, target: os.replace(source, target),
    remove=_remove,
)


def write_whole(path: Path, data: bytes, *, files: Files = DISK) -> None:
    """Makes `data` the file's content: a crash at any moment leaves the old content or the new."""
    partial = path.with_name(f".partial-{path.name}")
    if partial.exists():
        files.remove(partial)
    files.append(partial, data)
    files.sync(partial)
    files.rename(partial, path)
    files.sync(path.parent)


@contextmanager
def lock(run: Path) -> Iterator[None]:
    """Holds the run's folder, made if absent, until the block or the process ends, however it ends.

    Raises: CheckpointError, with the holder's process id, when somebody else holds it.
    """
    import fcntl  # POSIX only, so not at the top of a module that everybody imports

    run.mkdir(parents=True, exist_ok=True)
    with (run / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            got = f"in use by process {file.read().strip() or 'unknown'}"
            remedy = "wait for it, stop it, or choose another folder"
            raise CheckpointError(message(f"lock: {run}", got=got, wanted="a free folder", remedy=remedy)) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield

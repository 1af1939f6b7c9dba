"""The few file operations that must survive a crash, as a value, so that a test can record them and interrupt them.

purestep's own files are regular files. A link, a FIFO, a device or a folder under the name of one is never followed, waited for
or replaced: it is refused in one line.
"""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve, frozen

from ....core.errors import CheckpointError, message
from ...files import reading

PARTIAL = ".partial-"  # prefix of a file's name while it is written
LOCK = ".lock"
DEEPEST = 256  # folders within folders
ABSENT, FILE, FOLDER = "absent", "a file", reading.KINDS[stat.S_IFDIR]
KINDS = {stat.S_IFREG: FILE, stat.S_IFLNK: "a link", **reading.KINDS}
WITHIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
HELD, MOST = re.compile(rb"[0-9]*\n?"), 32  # allowed content of a lock file of ours, and its largest size in bytes


@frozen
class Files:
    """File operations between which a crash can happen. Only a rename is atomic, and nothing is durable before `sync`."""

    make_folder: Callable[[Path], None]  # with its parents, if absent
    append: Callable[[Path, bytes], None]  # to a file, made if absent
    sync: Callable[[Path], None]  # a file's bytes, or a folder's entries, to the disk
    rename: Callable[[Path, Path], None]  # within one file system; replaces a file
    remove: Callable[[Path], None]  # a file, a link, or a folder with all it holds
    remove_empty: Callable[[Path], None]  # a folder, unless it holds something


def kind(path: Path) -> str:
    """Return the kind of file at a path, without following a link: "a file", "a folder", "a link", "a FIFO", ... or "absent".

    >>> kind(Path("/")), kind(Path("/nowhere"))
    ('a folder', 'absent')
    """
    try:
        return KINDS.get(stat.S_IFMT(path.lstat().st_mode), "of no known kind")
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT


def check_file(path: Path) -> Path:
    """Return the path if a file, or nothing, has the name. Raises: CheckpointError.

    >>> check_file(Path("/"))
    Traceback (most recent call last):
    purestep.core.errors.CheckpointError: / is a folder, wanted a file; move it away
    """
    if (found := kind(path)) not in (ABSENT, FILE):
        raise CheckpointError(message(str(path), got=found, wanted=FILE, remedy="move it away"))
    return path


def new_folder(path: Path) -> Path:
    """Return the folder, made with its parents if absent; a link is not followed. Raises: CheckpointError."""
    if (found := kind(path)) not in (ABSENT, FOLDER):
        raise CheckpointError(message(str(path), got=found, wanted=FOLDER, remedy="move it away"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def plain_folder(path: Path) -> Path:
    """Return the folder, made if absent, for a library to write in: it must hold only files and folders, no links or FIFOs.

    Raises: CheckpointError.
    """
    for entry in sorted(new_folder(path).iterdir()):
        if (found := kind(entry)) not in (FILE, FOLDER):
            raise CheckpointError(message(str(entry), got=found, wanted=FILE, remedy="move it away"))
    return path


def open_regular(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file, with the flags of `os.open`. Raises: CheckpointError for anything else."""
    check_file(path)
    try:
        descriptor = os.open(path, flags | WITHIN, 0o666)
    except OSError as cause:  # the path may have been replaced meanwhile
        if cause.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise CheckpointError(message(str(path), got="no file", wanted=FILE, remedy="move it away")) from cause
    return _regular(path, descriptor)


def _regular(path: Path, descriptor: int) -> int:
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
        os.close(descriptor)
        found = KINDS.get(stat.S_IFMT(mode), "of no known kind")
        raise CheckpointError(message(str(path), got=found, wanted=FILE, remedy="move it away"))
    return descriptor


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; a link is followed.

    Raises: CheckpointError for a FIFO, a device or a folder; OSError.
    """
    if path.is_dir():
        raise CheckpointError(message(str(path), got=FOLDER, wanted=FILE, remedy="move it away"))
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    with os.fdopen(_regular(path, os.open(path, flags)), "rb") as file:
        return file.read()


def beside(path: Path) -> Path:
    """Return the temporary path at which a file is written before it is renamed.

    >>> beside(Path("a/b.json")).as_posix()
    'a/.partial-b.json'
    """
    return path.with_name(f"{PARTIAL}{path.name}")


def _append(path: Path, data: bytes) -> None:
    with os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(data)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if kind(path) == FOLDER:
        shutil.rmtree(path)
    else:
        path.unlink()


def _remove_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError as cause:
        if cause.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


DISK = Files(
    make_folder=lambda path: path.mkdir(parents=True, exist_ok=True),
    append=_append,
    sync=_sync,
    rename=lambda source, target: os.replace(source, target),
    remove=_remove,
    remove_empty=_remove_empty,
)

# Does not make parent folders: if a run's folder is removed or moved, nothing is created at its old path.
INSIDE = evolve(DISK, make_folder=lambda path: path.mkdir(exist_ok=True))


def write_whole(path: Path, data: bytes, *, files: Files = DISK) -> None:
    """Replace the file's content by `data` atomically: a crash at any moment leaves the old content or the new.

    What was written before the disk was full is removed. Raises: OSError; CheckpointError if a link, a FIFO, a device or a
    folder has the file's name or its temporary name.
    """
    partial = check_file(beside(check_file(path)))
    if kind(partial) == FILE:
        files.remove(partial)
    try:
        files.append(partial, data)
        files.sync(partial)
    except OSError:
        if kind(partial) == FILE:
            files.remove(partial)
        raise
    files.rename(partial, path)
    files.sync(path.parent)


def check_lock(run: Path) -> None:
    """Refuse a folder whose lock file is not one of ours. Raises: CheckpointError."""
    path = run / LOCK
    if kind(check_file(path)) == FILE and (path.lstat().st_size > MOST or not HELD.fullmatch(read_bytes(path))):
        remedy = "move it away, or choose another folder"
        raise CheckpointError(message(str(path), got="a file of something else", wanted="a lock", remedy=remedy))


def check_depth(where: str, path: Path) -> None:
    """Refuse a path with more nested folders than can be made at once. Raises: CheckpointError.

    >>> check_depth("lock", Path("run"))
    """
    if len(path.parts) > DEEPEST:
        where, got = f"{where}: {Path(*path.parts[:3])}/...", f"a path through {len(path.parts)} folders"
        raise CheckpointError(message(where, got=got, wanted=f"at most {DEEPEST}", remedy="choose another folder"))


@contextmanager
def lock(run: Path) -> Iterator[None]:
    """Lock the run's folder, made if absent, until the block or the process ends, however it ends.

    Raises: CheckpointError, with the holder's process id, when another process holds it, when its lock file is not one of
    ours, and for a path with too many nested folders.
    """
    import fcntl  # POSIX only, so not at the top: all platforms import this module

    check_depth("lock", run)
    run.mkdir(parents=True, exist_ok=True)
    check_lock(run)
    with os.fdopen(open_regular(run / LOCK, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+") as file:
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

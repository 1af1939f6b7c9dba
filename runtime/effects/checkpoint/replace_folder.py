"""A folder replaced by a new version of itself: complete or absent at any moment, and files of others in it stay.

PARENT/.partial-NAME         the new version, while it is written
PARENT/.partial-older-NAME   the old version, until the new one is in its place
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from ....core.errors import CheckpointError, message
from .atomic_files import ABSENT, DISK, FOLDER, PARTIAL, Files, kind, new_folder

OLDER = f"{PARTIAL}older-"
Own = Callable[[Path], Iterable[tuple[Path, bool]]]  # of a version: its entries that are ours, as `layout.removals`


def replace_folder(folder: Path, write: Callable[[Path], object], own: Own, *, files: Files = DISK) -> Path:
    """Replace the folder by the one that `write` fills, and return it; entries of the old one that are not ours are moved over.

    If both have an entry of one name, that of the new one stays. A process that ends at any moment leaves the old version, the
    new one, or none; `finish_replacement` then removes or completes the rest. Raises: CheckpointError for a link or a file
    under one of the names; errors of `write`, after which the old version is as it was.
    """
    partial, older = in_progress(folder)
    new_folder(folder.parent)
    finish_replacement(folder, own, files=files)
    if kind(folder) != ABSENT:
        new_folder(folder)  # refuses a link
    files.make_folder(partial)
    try:
        write(partial)
    except BaseException:
        files.remove(partial)
        raise
    _sync_all(partial, files)
    files.sync(folder.parent)
    if kind(folder) != ABSENT:
        files.rename(folder, older)
        files.sync(folder.parent)
    files.rename(partial, folder)
    files.sync(folder.parent)
    finish_replacement(folder, own, files=files)
    return folder


def in_progress(folder: Path) -> tuple[Path, Path]:
    """Return the names of a new version while it is written, and of the old one while it is replaced.

    >>> [path.as_posix() for path in in_progress(Path("run/model"))]
    ['run/.partial-model', 'run/.partial-older-model']
    """
    return folder.with_name(f"{PARTIAL}{folder.name}"), folder.with_name(f"{OLDER}{folder.name}")


def finish_replacement(folder: Path, own: Own, *, files: Files = DISK) -> None:
    """Complete a replacement that was cut short, if the new version was whole, or else remove what was written of it.

    Raises: CheckpointError for a link or a file under one of the names.
    """
    partial, older = in_progress(folder)
    for path in (partial, older):
        if (found := kind(path)) not in (ABSENT, FOLDER):
            raise CheckpointError(message(str(path), got=found, wanted=FOLDER, remedy="move it away"))
    if kind(older) == ABSENT:
        if kind(partial) != ABSENT:
            files.remove(partial)
        return
    if kind(folder) == ABSENT:  # the old one is moved away only after the new one is whole
        files.rename(partial if kind(partial) != ABSENT else older, folder)
        files.sync(folder.parent)
    if kind(older) != ABSENT:
        for path, if_empty in tuple(own(older)):
            (files.remove_empty if if_empty else files.remove)(path)
        if kind(older) != ABSENT:
            _move_entries(older, folder, files)
            files.sync(folder)
            files.remove(older)
        files.sync(folder.parent)
    if kind(partial) != ABSENT:
        files.remove(partial)


def _move_entries(source: Path, target: Path, files: Files) -> None:
    """Move the entries of a folder into another that has none of their name."""
    for entry in sorted(source.iterdir()):
        there = target / entry.name
        if kind(there) == ABSENT:
            files.rename(entry, there)
        elif kind(there) == kind(entry) == FOLDER:
            _move_entries(entry, there, files)


def _sync_all(folder: Path, files: Files) -> None:
    """Write all files and folders in a folder, and itself, to the disk."""
    for entry in sorted(folder.iterdir()):
        if kind(entry) == FOLDER:
            _sync_all(entry, files)
        else:
            files.sync(entry)
    files.sync(folder)

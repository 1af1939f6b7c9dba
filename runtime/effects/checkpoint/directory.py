"""Folders that appear complete or not at all: written under a temporary name, synced, renamed; then older ones are removed.

ROOT/.partial-NAME    being written, or being removed: not listed as a checkpoint
ROOT/NAME             complete
ROOT/latest           the name of the newest, for people and other programs
"""

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ....core.errors import message
from .atomic_files import PARTIAL as PARTIAL
from .atomic_files import Files, write_whole

LATEST = "latest"
STEP = re.compile(r"step_[0-9]{6,}(-[0-9]+)?")


def step_folders(root: Path) -> list[Path]:
    """Return the paths with a name of a step's folder, sorted; a copy that a user made under another name is not included.

    >>> step_folders(Path("/nowhere"))
    []
    """
    return sorted(path for path in root.glob("step_*") if STEP.fullmatch(path.name))


def make_temporary(root: Path, name: str, files: Files) -> Path:
    """Make the temporary folder in which `name` is written, after removing the remains of an earlier save."""
    absent = [path for path in (root, *root.parents) if not path.exists()]
    files.make_folder(root)
    for path in reversed(absent):
        files.sync(path.parent)
    remove_remains(root, files)
    partial = root / f"{PARTIAL}{name}"
    files.make_folder(partial)
    return partial


def publish_folder(root: Path, name: str, files: Files) -> Path:
    """Rename the temporary folder, as the newest. Every file in it, and every folder below it, must have been synced."""
    partial, folder = root / f"{PARTIAL}{name}", root / name
    files.sync(partial)
    files.rename(partial, folder)
    files.sync(root)
    write_whole(root / LATEST, f"{name}\n".encode(), files=files)
    return folder


def prune(root: Path, old: Iterable[Path], files: Files) -> None:
    """Remove folders. They are renamed first: a removal cut short must not look like a checkpoint."""
    for folder in old:
        files.rename(folder, root / f"{PARTIAL}{folder.name}")
    files.sync(root)
    remove_remains(root, files)


def remove_remains(root: Path, files: Files) -> None:
    """Remove the remains of a save, or of a removal, that was cut short."""
    for path in sorted(root.glob(f"{PARTIAL}*")):
        files.remove(path)


def free_name(root: Path, step: int) -> str:
    """Return a new name for a step's folder; a step saved twice (a run that went back) gets another name."""
    name, count = f"step_{step:06d}", 1
    while os.path.lexists(root / name):
        count += 1
        name = f"step_{step:06d}-{count}"
    return name


def unwritten(root: Path, size: int, cause: OSError) -> str:
    """Return the error text for a checkpoint of that many bytes that could not be written."""
    full, gone = cause.errno in (errno.ENOSPC, errno.EDQUOT), cause.errno == errno.ENOENT
    got = "a full disk" if full else "in a folder that is gone" if gone else f"not writable ({cause.strerror or cause})"
    wanted = f"room for {size:,} bytes" if full else "a folder on a sound disk"
    remedy = "free some space" if full else "bring it back" if gone else "check the folder and the disk"
    return message(f"save: {root}", got=got, wanted=wanted, remedy=f"{remedy}; the older checkpoints are untouched")

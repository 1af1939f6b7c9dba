"""Folders that are there whole or not at all: written beside, synced, renamed, and only then are older ones removed.

ROOT/.partial-NAME    being written, or being removed: whoever looks for checkpoints does not see it
ROOT/NAME             whole
ROOT/latest           the name of the newest, for people and other programs
"""

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ...core.errors import message
from .files import PARTIAL as PARTIAL
from .files import Files, write_whole

LATEST = "latest"
STEP = re.compile(r"step_[0-9]{6,}(-[0-9]+)?")


def steps(root: Path) -> list[Path]:
    """Return what has the name of a step's folder, sorted; a copy that somebody has made under another name is not ours.

    >>> steps(Path("/nowhere"))
    []
    """
    return sorted(path for path in root.glob("step_*") if STEP.fullmatch(path.name))


def begin(root: Path, name: str, files: Files) -> Path:
    """Makes the folder beside, in which `name` is written, after clearing what an earlier save has left behind."""
    absent = [path for path in (root, *root.parents) if not path.exists()]
    files.make_folder(root)
    for path in reversed(absent):
        files.sync(path.parent)
    sweep(root, files)
    partial = root / f"{PARTIAL}{name}"
    files.make_folder(partial)
    return partial


def publish(root: Path, name: str, files: Files) -> Path:
    """Makes what was written beside the newest. Every file in it must have been synced, and every folder below it."""
    partial, folder = root / f"{PARTIAL}{name}", root / name
    files.sync(partial)
    files.rename(partial, folder)
    files.sync(root)
    write_whole(root / LATEST, f"{name}\n".encode(), files=files)
    return folder


def prune(root: Path, old: Iterable[Path], files: Files) -> None:
    """Removes folders. They are renamed first: a removal cut short must not look like a checkpoint."""
    for folder in old:
        files.rename(folder, root / f"{PARTIAL}{folder.name}")
    files.sync(root)
    sweep(root, files)


def sweep(root: Path, files: Files) -> None:
    """Removes what a save, or a removal, left behind when it was cut short."""
    for path in sorted(root.glob(f"{PARTIAL}*")):
        files.remove(path)


def free_name(root: Path, step: int) -> str:
    """The name of a step's folder; a step saved twice (a run that went back) gets another."""
    name, count = f"step_{step:06d}", 1
    while os.path.lexists(root / name):
        count += 1
        name = f"step_{step:06d}-{count}"
    return name


def unwritten(root: Path, size: int, cause: OSError) -> str:
    """What to say where a checkpoint of that many bytes could not be written."""
    full, gone = cause.errno in (errno.ENOSPC, errno.EDQUOT), cause.errno == errno.ENOENT
    got = "a full disk" if full else "in a folder that is gone" if gone else f"not writable ({cause.strerror or cause})"
    wanted = f"room for {size:,} bytes" if full else "a folder on a sound disk"
    remedy = "free some space" if full else "bring it back" if gone else "check the folder and the disk"
    return message(f"save: {root}", got=got, wanted=wanted, remedy=f"{remedy}; the older checkpoints are untouched")

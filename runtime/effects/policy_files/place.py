"""Checks of the path that a policy is exported to. Imports no torch."""

from pathlib import Path

from ....core.errors import CheckpointError, message
from ..checkpoint.atomic_files import ABSENT, FILE, beside, check_file, kind


def check_place(path: Path, *, overwrite: bool) -> Path:
    """Return the path if a file can be written there. Raises: CheckpointError.

    >>> check_place(Path("/nowhere/policy.pt2"), overwrite=False)
    Traceback (most recent call last):
    purestep.core.errors.CheckpointError: /nowhere/policy.pt2 is in no folder, wanted a folder that exists; make it
    """
    if not path.parent.is_dir():
        raise CheckpointError(message(str(path), got="in no folder", wanted="a folder that exists", remedy="make it"))
    if kind(path) == FILE and not overwrite:
        remedy = "name another, or pass --overwrite"
        raise CheckpointError(message(str(path), got="a file already", wanted=ABSENT, remedy=remedy))
    check_file(beside(check_file(path)))
    return path

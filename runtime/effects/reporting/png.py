"""Pictures as PNG files: written atomically, marked as purestep's, and never in place of any other file.

A PNG of ours has `Software: purestep` in a text chunk before its pixels. A new picture replaces such a file or none; a link, a
FIFO, a device, a folder, a text or a picture of another program is never replaced.
"""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from ....core.errors import ChoiceError, message
from ..checkpoint.atomic_files import ABSENT, FILE, beside, check_depth, kind, open_regular, write_whole

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SOFTWARE = "purestep"
HEAD = 4096  # bytes at the beginning that are searched for the chunk


def drawn_here(path: Path) -> bool:
    """Return whether the file is a picture that purestep drew. Raises: CheckpointError unless it is a regular file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "notes.png").write_text("mine")
    ...     drawn_here(Path(folder) / "notes.png")
    False
    """
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        head = file.read(HEAD)
    if not head.startswith(SIGNATURE):
        return False
    at = len(SIGNATURE)
    while at + 8 <= len(head):
        size, name = int.from_bytes(head[at : at + 4], "big"), head[at + 4 : at + 8]
        if name == b"tEXt" and head[at + 8 : at + 8 + size] == b"Software\0" + SOFTWARE.encode():
            return True
        at += 12 + size
    return False


def check_picture(out: Path) -> Path:
    """Return the path if a picture may be drawn there: a new file, or one that purestep drew.

    Raises: ChoiceError, CheckpointError, OSError.

    >>> check_picture(Path("/"))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: picture / is a folder, wanted a new file or a picture that purestep drew; name another one
    """
    return check_output(out, "picture", drawn_here)


def check_output(out: Path, what: str, ours: Callable[[Path], bool]) -> Path:
    """Return the path if a picture or page may be written there: a new file, or one of `ours`. Raises: as `check_picture`."""
    check_depth(what, out)
    found = kind(out) if out.name else "a folder"
    if found == FILE and not ours(out):
        found = "a file that purestep did not draw"
    elif found == ABSENT and kind(beside(out)) not in (ABSENT, FILE):
        out, found = beside(out), kind(beside(out))
    if found not in (ABSENT, FILE):
        wanted, remedy = f"a new file or a {what} that purestep drew", "name another one"
        raise ChoiceError(message(f"{what} {out}", got=found, wanted=wanted, remedy=remedy))
    above = next(place for place in out.parents if os.path.lexists(place))
    if not above.is_dir() or not os.access(above, os.W_OK):
        got = "a folder that cannot be written to" if above.is_dir() else "no folder"
        raise ChoiceError(message(f"{what}: {above}", got=got, wanted="a folder", remedy="name another one"))
    return out


def save_figure(figure: Any, out: Path) -> Path:
    """Write a figure of matplotlib and return `out`: equal pictures give equal files (no date in them), written atomically.

    Raises: ChoiceError where `check_picture` does.
    """
    check_picture(out)
    held = BytesIO()
    figure.savefig(held, format="png", metadata={"Software": SOFTWARE})
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, held.getvalue())
    return out

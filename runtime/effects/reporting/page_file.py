"""Pages as HTML files: written atomically, marked as purestep's, and never in place of any other file."""

import os
from pathlib import Path

from ..checkpoint.atomic_files import open_regular, write_whole
from .png import check_output

HEAD = "<!DOCTYPE html>\n<!-- written by purestep view -->\n"


def written_here(path: Path) -> bool:
    """Return whether the file is a page that purestep wrote. Raises: CheckpointError unless it is a regular file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "mine.html").write_text("<!DOCTYPE html>")
    ...     written_here(Path(folder) / "mine.html")
    False
    """
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(len(HEAD)) == HEAD.encode()


def check_page(out: Path) -> Path:
    """Return the path if a page may be written there: a new file, or one that purestep wrote.

    Raises: ChoiceError, CheckpointError, OSError.

    >>> check_page(Path("/"))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: page / is a folder, wanted a new file or a page that purestep drew; name another one
    """
    return check_output(out, "page", written_here)


def save_page(body: str, out: Path) -> Path:
    """Write a page, the text that follows its first lines, and return `out`. Raises: as `check_page`."""
    check_page(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, (HEAD + body).encode())
    return out

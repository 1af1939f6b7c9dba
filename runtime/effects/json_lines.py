"""Append-only files of lines, which a resumed run truncates to the number of lines at its checkpoint."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import CheckpointError, StructureError, message
from ..files.reading import parse_json
from ..machine.json_codec import short
from .checkpoint.atomic_files import ABSENT, kind, open_regular, read_bytes


@frozen
class Lines:
    """The calls on a file of lines, for one thread."""

    write: Callable[[str], None]  # one line or several, each with its end; passed to the operating system at once
    sync: Callable[[], int]  # writes them to the disk; returns the number of lines in the file


@contextmanager
def open_lines(path: Path, keep: int = 0) -> Iterator[Lines]:
    """Open the file with its first `keep` lines, for appending; it is made if it is absent.

    Raises: CheckpointError if it has fewer lines than that, or is not a regular file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     path = Path(run) / "log"
    ...     with open_lines(path) as log:
    ...         log.write("one\\ntwo\\nthr")
    ...     with open_lines(path, 1) as log:
    ...         log.write("2\\n")
    ...         log.sync(), path.read_text()
    (2, 'one\\n2\\n')
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab+") as file:
        count = _cut(path, file.fileno(), keep)

        def write(text: str) -> None:
            nonlocal count
            file.write(text.encode())
            file.flush()
            count += text.count("\n")

        def sync() -> int:
            os.fsync(file.fileno())
            return count

        yield Lines(write, sync)


def _cut(path: Path, descriptor: int, keep: int) -> int:
    """Truncate the file to its first `keep` lines."""
    data, end = read_bytes(path), 0
    for number in range(keep):
        end = data.find(b"\n", end) + 1
        if not end:
            got, remedy = f"{number} lines", "it was cut by somebody else; take an older checkpoint, or train anew"
            raise CheckpointError(message(str(path), got=got, wanted=f"at least {keep}", remedy=remedy))
    os.truncate(descriptor, end)
    return keep


def objects(
    path: Path, fits: Callable[[dict[str, Any]], bool] = lambda row: True, wanted: str = "a JSON object"
) -> Iterator[dict[str, Any]]:
    """Return the JSON objects of a file with one a line, none if it is absent; a last line without its end is ignored.

    Raises: StructureError for any other line that is no object, or one that does not fit.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     path = Path(run) / "log"
    ...     _ = path.write_text('{"version": 0}\\n{"vers')
    ...     list(objects(path))
    [{'version': 0}]
    """
    if kind(path) == ABSENT:
        return
    with BytesIO(read_bytes(path)) as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return
            try:
                found = parse_json(text)
            except ValueError:
                found = text.decode("utf-8", "replace")
            if not isinstance(found, dict) or not fits(found):
                where, remedy = f"line {number} of {path}", "remove the line"
                raise StructureError(message(where, got=short(found), wanted=wanted, remedy=remedy))
            yield found

"""A file of finished entries: one value a line, as JSON, which can be read while it is written.

    with writer(run / "rollouts.jsonl") as publish:
        publish(result.number, published_rows(result))

An entry has a number of its own and some lines. They are appended and synced as one piece, whose last line is marked, so
that a crash leaves an entry complete or not at all: the next writer removes an incomplete one, and skips a number that is there
already. So an entry that is published again after a crash is in the file once. A reader gets complete entries.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from ...core.errors import ChoiceError, StructureError, message
from ..files.reading import parse_json
from ..machine.json_codec import encode, json_line
from .checkpoint.atomic_files import ABSENT, DISK, Files, check_file, kind, open_regular, read_bytes

MOST = 5_242_880  # bytes of one entry
ENTRY, LAST = "entry", "last"  # in each line: its entry's number, and whether it is the entry's last one
Row = Mapping[str, Any]
Write = Callable[[int, Sequence[Row]], None]


@frozen
class StreamEntry:
    """The rows that were published under a number."""

    number: int
    rows: tuple[dict[str, Any], ...]


@frozen
class StreamReading:
    """Entries, and the offset in the file after the last of them."""

    entries: tuple[StreamEntry, ...]
    offset: int


@contextmanager
def writer(path: Path, *, most: int = MOST, files: Files = DISK) -> Iterator[Write]:
    """Yield `publish(number, rows)`: it appends an entry to the file, which is made if absent, and syncs it.

    A number that is there already is skipped. Raises, from `publish`: ChoiceError for a number below 0, for an entry
    without rows, of more than `most` bytes, or whose rows have a name that the stream itself uses, and after a write that
    failed; StructureError for a row that has no JSON form.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     path = Path(run) / "rollouts.jsonl"
    ...     with writer(path) as publish:
    ...         publish(0, [{"text": "{5}"}])
    ...         publish(0, [{"text": "again"}])
    ...     path.read_text()
    '{"entry":0,"last":true,"text":"{5}"}\\n'
    """
    new = kind(path) == ABSENT
    check_file(path)
    files.make_folder(path.parent)
    whole = StreamReading((), 0) if new else read_entries(path)
    if not new and path.stat().st_size > whole.offset:
        _cut(path, whole.offset)
    known = {entry.number for entry in whole.entries}
    unsure = False

    def publish(number: int, rows: Sequence[Row]) -> None:
        nonlocal new, unsure
        if number in known:
            return
        _check(path, number, rows, unsure)
        data = _bytes(number, rows)
        if len(data) > most:
            where, remedy = f"stream {path.name}: entry {number}", "raise the bound, or keep less of it"
            raise ChoiceError(message(where, got=f"{len(data)} bytes", wanted=f"at most {most}", remedy=remedy))
        unsure = True  # until it is completely written
        files.append(path, data)
        files.sync(path)
        if new:
            files.sync(path.parent)
        new = unsure = False
        known.add(number)

    yield publish


def _check(path: Path, number: int, rows: Sequence[Row], unsure: bool) -> None:
    taken = sorted({name for row in rows for name in row} & {ENTRY, LAST})
    faults = (
        (unsure, "state", "unknown, as a write failed", "a file that is written whole", "open it anew"),
        (number < 0, "number", number, "at least 0", "count entries from 0"),
        (not rows, "rows", "none", "one or more", "publish what is finished"),
        (bool(taken), "names", taken, "other names", "rename them"),
    )
    for fault, what, got, wanted, remedy in faults:
        if fault:
            raise ChoiceError(message(f"stream {path.name}: {what}", got=got, wanted=wanted, remedy=remedy))


def _bytes(number: int, rows: Sequence[Row]) -> bytes:
    marked = [{ENTRY: number, LAST: place == len(rows) - 1, **row} for place, row in enumerate(rows)]
    return "".join(json_line(encode(row, f"entry {number}")) + "\n" for row in marked).encode("ascii")


def _cut(path: Path, size: int) -> None:
    with os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def read_entries(path: Path) -> StreamReading:
    """Return the complete entries of a stream; none if there is no file.

    An entry that is being written is left for the next time. Raises: StructureError for a line that `writer` did not write.

    >>> read_entries(Path("nowhere.jsonl"))
    StreamReading(entries=(), offset=0)
    """
    if kind(path) == ABSENT:
        return StreamReading((), 0)
    entries: list[StreamEntry] = []
    rows: list[dict[str, Any]] = []
    place = offset = 0
    for text in read_bytes(path).split(b"\n")[:-1]:
        place += len(text) + 1
        number, last, row = _row(path, text)
        rows.append(row)
        if last:
            entries.append(StreamEntry(number, tuple(rows)))
            rows, offset = [], place
    return StreamReading(tuple(entries), offset)


def _row(path: Path, text: bytes) -> tuple[int, bool, dict[str, Any]]:
    try:
        row = parse_json(text)
        return int(row.pop(ENTRY)), bool(row.pop(LAST)), row
    except (ValueError, TypeError, AttributeError, KeyError) as cause:
        where, remedy = f"stream {path.name}: a line", "remove the line, or read it as what it is"
        wanted = f"an object with {ENTRY!r} and {LAST!r}"
        raise StructureError(message(where, got=repr(text[:40]), wanted=wanted, remedy=remedy)) from cause

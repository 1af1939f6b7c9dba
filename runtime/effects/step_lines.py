"""A file of JSON objects, one a line, in steps: bounded in bytes, cut back when a run is resumed, and never the end of a run.

Each line begins with the number of its step, {"step":3,...}, and steps are written in order. Beyond the bound the oldest steps
are removed. If the file cannot be written (a full disk), there is one notice, and the run goes on without it.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, describe_error
from ..machine.json_codec import json_line
from .checkpoint.atomic_files import ABSENT, DISK, Files, beside, kind, open_regular, write_whole

STEP = "step"
FIRST = re.compile(rb'\{"step":(\d+)[,}]')
Row = Mapping[str, Any]
Write = Callable[[int, Sequence[Row]], None]  # (step, its rows)


def step_lines(
    path: Path, *, last: int, most: int, setting: str, notice: Callable[[str], None], files: Files = DISK
) -> Write:
    """Return `write(step, rows)`, which appends a step to the file; it is made when the first one is written.

    Lines of steps after `last`, which will be written again, are removed at once, and so is a line that was cut off by a crash.
    `most` are the bytes of the file, which `setting` sets. Raises: CheckpointError if something other than a file has the name.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     path = Path(run) / "conversations.jsonl"
    ...     write = step_lines(path, last=0, most=40, setting="--bytes", notice=print)
    ...     for step in (1, 2, 3):
    ...         write(step, [{"text": "a"}])
    ...     path.read_text()
    conversations.jsonl: --bytes is reached, so that the oldest steps are removed from now on
    '{"step":3,"text":"a"}\\n'
    """
    size = 0 if kind(path) == ABSENT else _rewound(path, last)
    said = set[str]()
    stopped = False

    def once(about: str, text: str) -> None:
        if about not in said:
            said.add(about)
            notice(f"{path.name}: {text}")

    def write(step: int, rows: Sequence[Row]) -> None:
        nonlocal size, stopped
        if stopped or not rows:
            return
        data = "".join(json_line({STEP: step, **row}) + "\n" for row in rows).encode("ascii")
        if len(data) > most:
            once("long", f"a step of more bytes than {setting} allows is left out, the first of them step {step}")
            return
        try:
            if size + len(data) > most:
                once("room", f"{setting} is reached, so that the oldest steps are removed from now on")
                size = _shortened(path, min(most // 2, most - len(data)), files)
            files.append(path, data)
        except (OSError, CheckpointError) as fault:
            stopped = True
            once("end", f"no more steps are written ({describe_error(fault)}); training goes on without them")
            with suppress(OSError, CheckpointError):
                _cut(path, size)
        else:
            size += len(data)

    return write


def _rewound(path: Path, last: int) -> int:
    """Remove the lines of steps after `last` and an unfinished line; return the number of bytes left."""
    end = 0
    for text in _lines(path):
        if not text.endswith(b"\n") or _step(text) > last:
            break
        end += len(text)
    _cut(path, end)
    return end


def _shortened(path: Path, room: int, files: Files) -> int:
    """Remove the oldest steps until the file has at most `room` bytes; return their number. A crash leaves all or the rest."""
    left = path.stat().st_size
    kept: list[bytes] = []
    before = -1
    for text in _lines(path):
        step = _step(text)
        if kept or (left <= room and step != before):
            kept.append(text)
        left, before = left - len(text), step
    content = b"".join(kept)
    try:
        write_whole(path, content, files=files)
    except OSError:
        with suppress(OSError):
            files.remove(beside(path))
        raise
    return len(content)


def _cut(path: Path, size: int) -> None:
    if kind(path) != ABSENT:
        with os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
            file.truncate(min(size, os.fstat(file.fileno()).st_size))


def _lines(path: Path) -> Iterator[bytes]:
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        yield from file


def _step(text: bytes) -> int:
    """Return the number of a line's step; -1 for a line that `write` did not write, which stays where it is."""
    found = FIRST.match(text)
    return int(found[1]) if found else -1

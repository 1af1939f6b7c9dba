"""Output of metrics: rows of numbers, into files, TensorBoard and the terminal.

A sink is a function of one row. A file or a display is opened by a context manager that yields a sink, so that a recipe reads

    with jsonl(run / "metrics.jsonl") as file, progress(total) as bar:
        for sink in (thin(file, stride(iterations)), bar):
            sink(floats(row))

A row belongs to one iteration. `thin` limits the size of a file, by a rule that depends on the row alone: a resumed run writes
the same rows as one that never stopped.
"""

import math
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any

import torch
from torch import Tensor

from ....core.errors import ChoiceError, ShapeError, StructureError, message
from ...files.reading import parse_json
from ...machine.json_codec import json_line
from ..checkpoint.atomic_files import ABSENT, kind, new_folder, open_regular, read_bytes, write_whole

Row = dict[str, float]
Sink = Callable[[Row], None]


def floats(values: Mapping[str, Any]) -> Row:
    """Return the numbers as Python floats; the tensors among them are copied to the host in one transfer.

    Raises: ShapeError for a tensor that holds more than one number.

    >>> floats({"steps": 512, "loss": torch.tensor(0.5)})
    {'steps': 512.0, 'loss': 0.5}
    """
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    for name, value in tensors.items():
        if value.ndim:
            remedy = "reduce it where it is made, with mean or sum"
            raise ShapeError(message(f"metrics: {name}", got=list(value.shape), wanted=[], remedy=remedy))
    doubles = [value.detach().to(torch.float64) for value in tensors.values()]
    numbers = dict(zip(tensors, torch.stack(doubles).tolist() if doubles else [], strict=True))
    return {name: float(numbers.get(name, value)) for name, value in values.items()}


def stride(rows: int, limit: int = 10_000) -> int:
    """Return the smallest `every` with which a run of so many rows leaves at most `limit` of them.

    >>> stride(500), stride(25_000)
    (1, 3)
    """
    return max(1, math.ceil(rows / limit))


def thin(sink: Sink, every: int) -> Sink:
    """Return a sink that passes on the rows whose column "iteration" is a multiple of `every`. Raises: ChoiceError.

    >>> sink = thin(print, 2)
    >>> for iteration in range(1, 5):
    ...     sink({"iteration": float(iteration)})
    {'iteration': 2.0}
    {'iteration': 4.0}
    """
    if every < 1:
        remedy = "pass 1 to keep all rows"
        raise ChoiceError(message("thin: every", got=every, wanted="at least 1", remedy=remedy))

    def write(row: Row) -> None:
        if int(number_in_row(row, "iteration")) % every == 0:
            sink(row)

    return write


def number_in_row(row: Row, name: str) -> float:
    """Return the row's number of that name. Raises: ChoiceError."""
    if name not in row:
        remedy = "report it, or name another column with `by`"
        raise ChoiceError(message(f"metrics: column {name!r}", got="absent", wanted=sorted(row), remedy=remedy))
    return row[name]


@contextmanager
def jsonl(path: Path) -> Iterator[Sink]:
    """Append each row as a line of JSON, flushed to the operating system at once; NaN and infinities become strings.

    A last line that was cut off by a crash is removed first.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     with jsonl(Path(run) / "metrics.jsonl") as sink:
    ...         sink({"steps": 512.0, "loss": 0.5})
    ...     read_metrics(Path(run) / "metrics.jsonl")
    [{'steps': 512.0, 'loss': 0.5}]
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+", encoding="ascii") as file:
        os.truncate(file.fileno(), read_bytes(path).rfind(b"\n") + 1)

        def write(row: Row) -> None:
            file.write(_text(row))
            file.flush()

        yield write


def _text(row: Row) -> str:
    return json_line({name: value if math.isfinite(value) else repr(value) for name, value in row.items()}) + "\n"


def read_metrics(path: Path) -> list[Row]:
    """Return the rows of a file that `jsonl` wrote; a last line that was cut off is ignored.

    Raises: StructureError for any other line that is no row.
    """
    rows: list[Row] = []
    for number, text in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n")[:-1], 1):
        try:
            rows.append({str(name): float(value) for name, value in parse_json(text).items()})
        except (ValueError, TypeError, AttributeError, OverflowError) as cause:
            where, remedy = f"read: line {number} of {path}", "remove the line"
            raise StructureError(
                message(where, got=repr(text[:40]), wanted="a row of numbers", remedy=remedy)
            ) from cause
    return rows


def rewind(path: Path, last: float) -> None:
    """Remove the rows whose column "iteration" is beyond `last`: a run that resumes from there will write them again."""
    if kind(path) != ABSENT:
        kept = [row for row in read_metrics(path) if number_in_row(row, "iteration") <= last]
        write_whole(path, "".join(map(_text, kept)).encode())


@contextmanager
def tensorboard(folder: Path, *, by: str = "steps", resumed_at: int = 0) -> Iterator[Sink]:
    """Write every column as a TensorBoard scalar over the column `by`, and flush each row to the operating system at once.

    With `resumed_at`, TensorBoard discards the values of later steps in earlier files of the folder.
    """
    # Imported here, because few runs need it; by name, because type checkers cannot see generated classes.
    events = import_module("tensorboard.compat.proto.event_pb2")
    summaries = import_module("tensorboard.compat.proto.summary_pb2")
    records = import_module("tensorboard.summary.writer.record_writer").RecordWriter
    there = len(os.listdir(new_folder(folder)))
    name = f"events.out.tfevents.{int(time()):010d}.{socket.gethostname()}.{os.getpid()}.{there}"
    with (folder / name).open("xb") as file:  # not the library's writer thread, in which errors are lost

        def add(**fields: Any) -> None:
            records(file).write(events.Event(wall_time=time(), **fields).SerializeToString())
            file.flush()

        def write(row: Row) -> None:
            values = [summaries.Summary.Value(tag=name, simple_value=row[name]) for name in row if name != by]
            add(step=int(number_in_row(row, by)), summary=summaries.Summary(value=values))

        add(file_version="brain.Event:2")
        if resumed_at:
            add(step=resumed_at + 1, session_log=events.SessionLog(status=events.SessionLog.START))
        yield write

"""Rows of a table in a file, each with its place there: JSON lines, CSV, Parquet, or a folder of the library `datasets`.

Parquet needs pyarrow and folders need datasets, both of the extra `data`.
"""

import codecs
import csv
import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from ....core.errors import ChoiceError, describe_error, message
from ...files.reading import UnreadableError, irregular, parse_json, read_bounded, reason

MOST = 1 << 30  # bytes
WANTED = "a .jsonl, .json, .csv or .parquet file, or a folder that datasets saved"
MARKS = ("state.json", "dataset_dict.json")  # of such folders: of one data set, of several splits
SPLIT = "train"
OTHERS = ";\t"  # separators of columns other than the comma

Located = tuple[str, Mapping[str, Any]]  # a row, and its place for errors


def table_rows(path: Path) -> Iterator[Located]:
    """Yield the rows of a file or folder, by the names of their columns. Raises: ChoiceError; ModuleNotFoundError.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as home:
    ...     path = Path(home) / "sums.csv"
    ...     _ = path.write_text("prompt,answer\\n2 + 3?,5\\n")
    ...     [row for _, row in table_rows(path)]
    [{'prompt': '2 + 3?', 'answer': '5'}]
    """
    if path.is_dir():
        return _dataset_rows(path)
    if path.suffix.lower() not in READERS:
        got = f"of suffix {path.suffix!r}" if path.exists() else "absent"
        raise ChoiceError(message(str(path), got=got, wanted=WANTED, remedy="check the path, or convert the file"))
    return READERS[path.suffix.lower()](path)


def _json_rows(path: Path) -> Iterator[Located]:
    """Yield the objects of a file with one a line; blank lines are skipped."""
    for number, line in enumerate(_content(path).split(b"\n"), 1):
        if line.strip():
            place = f"{path}: line {number}"
            yield place, _json_object(place, line)


def _json_object(place: str, line: bytes) -> Mapping[str, Any]:
    wanted = "a JSON object"
    try:
        held: Any = parse_json(line.decode())
    except UnicodeDecodeError:
        raise ChoiceError(message(place, got="not UTF-8", wanted=wanted, remedy="save the file as UTF-8")) from None
    except ValueError as cause:
        why = f"{cause.msg}, column {cause.colno}" if isinstance(cause, JSONDecodeError) else cause
        remedy = "write one object a line"
        raise ChoiceError(message(place, got=f"no JSON ({why})", wanted=wanted, remedy=remedy)) from cause
    if not isinstance(held, dict):
        remedy = "write one object a line, and no list around them"
        raise ChoiceError(message(place, got=f"of type {type(held).__name__}", wanted=wanted, remedy=remedy))
    return held


def _csv_rows(path: Path) -> Iterator[Located]:
    """Yield the rows under the header line; columns without a name, like the index of a data frame, are left out."""
    content = _content(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as cause:
        number = content.count(b"\n", 0, cause.start) + 1
        place = f"{path}: line {number}"
        raise ChoiceError(message(place, got="not UTF-8", wanted="a text", remedy="save the file as UTF-8")) from None
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    names = list[str]()
    while True:
        place = f"{path}: line {lines.line_num + 1}"
        try:
            cells = next(lines, None)
        except csv.Error as cause:
            wanted = f"cells of at most {csv.field_size_limit():,} characters"
            remedy = "quote cells with commas, quotes or line ends, and double the quotes inside"
            raise ChoiceError(message(place, got=f"no CSV ({cause})", wanted=wanted, remedy=remedy)) from cause
        if cells is None:
            return
        if not cells:
            continue
        if not names:
            names = _header(place, cells)
        elif len(cells) != len(names):
            remedy = "quote cells that have commas"
            raise ChoiceError(message(place, got=f"of {len(cells)} cells", wanted=len(names), remedy=remedy))
        else:
            yield place, {name: cell for name, cell in zip(names, cells, strict=True) if name}


def _header(place: str, names: list[str]) -> list[str]:
    doubled = [name for name in names if name and names.count(name) > 1]
    if doubled:
        got, remedy = f"with two columns {doubled[0]!r}", "rename one"
        raise ChoiceError(message(place, got=got, wanted="columns of different names", remedy=remedy))
    if len(names) == 1 and any(mark in names[0] for mark in OTHERS):
        got, remedy = f"one column {names[0]!r}", "separate columns by commas"
        raise ChoiceError(message(place, got=got, wanted="the names of columns", remedy=remedy))
    return names


def _parquet_rows(path: Path) -> Iterator[Located]:
    arrow, parquet = _library("pyarrow"), _library("pyarrow.parquet")
    content = _content(path)
    try:
        rows = parquet.read_table(arrow.BufferReader(content)).to_pylist()
    except (OSError, ValueError, arrow.ArrowException) as cause:
        got, remedy = f"unreadable ({describe_error(cause)})", "write it again"
        raise ChoiceError(message(str(path), got=got, wanted="a Parquet file", remedy=remedy)) from cause
    return _numbered(path, rows)


def _dataset_rows(path: Path) -> Iterator[Located]:
    """Return the rows of a data set, or of the split "train" of several."""
    if not any((path / name).is_file() for name in MARKS):
        raise ChoiceError(message(str(path), got="a folder of other files", wanted=WANTED, remedy="name one of them"))
    datasets = _library("datasets")
    try:
        _check_size(path)
        held = datasets.load_from_disk(str(path))
        splits = held if isinstance(held, datasets.DatasetDict) else {SPLIT: held}
        rows = splits[SPLIT].to_list() if SPLIT in splits else []
    except Exception as cause:  # the library's errors have no common class
        got, remedy = f"unreadable ({describe_error(cause)})", "save it again"
        raise ChoiceError(message(str(path), got=got, wanted="a folder that datasets saved", remedy=remedy)) from cause
    if SPLIT not in splits:
        got, remedy = f"of splits {', '.join(map(repr, splits))}", "name the folder of one of them"
        raise ChoiceError(message(str(path), got=got, wanted=f"a split {SPLIT!r}", remedy=remedy))
    return _numbered(path, rows)


def _check_size(path: Path) -> None:
    """Raise UnreadableError for more than `MOST` bytes in a folder or a split, or for an entry that is no regular file."""
    for folder in (path, *filter(Path.is_dir, path.iterdir())):
        if strange := irregular(folder):
            raise UnreadableError(f"{folder / strange} is no regular file")
        if sum(file.stat().st_size for file in folder.glob("*.arrow")) > MOST:
            raise UnreadableError(f"{folder} has more than {MOST:,} bytes")


def _numbered(path: Path, rows: list[Mapping[str, Any]]) -> Iterator[Located]:
    return ((f"{path}: row {number}", row) for number, row in enumerate(rows, 1))


def _content(path: Path) -> bytes:
    """Return the bytes of a file, without a byte order mark."""
    try:
        return read_bounded(path, MOST).removeprefix(codecs.BOM_UTF8)
    except OSError as cause:
        got = "absent" if isinstance(cause, FileNotFoundError) else f"unreadable ({reason(cause)})"
        raise ChoiceError(message(str(path), got=got, wanted=WANTED, remedy="check the path")) from cause


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        package = name.partition(".")[0]
        if cause.name != package:
            raise
        text = message(package, got="absent", wanted="installed", remedy="pip install 'purestep[data]'")
        raise ModuleNotFoundError(text, name=package) from None


READERS: Mapping[str, Callable[[Path], Iterator[Located]]] = {
    ".jsonl": _json_rows,
    ".json": _json_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}

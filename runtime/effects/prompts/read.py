"""Prompts of a run, from a file or from rows in Python, and the split into training and held-out prompts.

    training, held_out = split_prompts(read_prompts(Path("prompts.jsonl")), 0.1)

A row has a column with its prompt, a text or chat messages; its other columns are for reward functions. Two prompts have the
same content if the model is asked the same: a text is the same as one message of the user.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from json import JSONEncoder
from pathlib import Path
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, StructureError, message
from ....core.language.prompts import PromptRow
from .prompt import cell_prompt, prompt_of
from .tables import Located, table_rows

CSV = ".csv"
FEW = 20  # names of columns that an error lists
VALUES = "texts, numbers, booleans, null, or lists and objects of these"
ENCODER = JSONEncoder(sort_keys=True)


@frozen
class PromptSet:
    """Rows of prompts, and a digest that identifies their content and columns."""

    rows: tuple[PromptRow, ...]
    digest: str


def read_prompts(path: Path, *, column: str = "prompt") -> PromptSet:
    """Return the prompts in a column of a file, in its order.

    The file is .jsonl or .json (one object a line), .csv with a header line, or .parquet; or `path` is a folder saved by the
    library datasets, of several splits the one named "train". In CSV a cell that begins with `[{` has messages as JSON, and
    columns without a name are left out.
    Raises: ChoiceError, with the line or row that is wrong; ModuleNotFoundError if pyarrow or datasets is needed and absent.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as home:
    ...     path = Path(home) / "sums.jsonl"
    ...     _ = path.write_text('{"question": "2 + 3?", "answer": "5"}\\n')
    ...     row = read_prompts(path, column="question").rows[0]
    >>> row.prompt, row.columns
    ('2 + 3?', {'answer': '5'})
    """
    rows: Iterable[Located] = table_rows(path)
    if path.suffix.lower() == CSV:
        rows = ((place, _with_messages(place, row, column)) for place, row in rows)
    return _checked(str(path), rows, column)


def prompts_from_rows(
    rows: Sequence[Mapping[str, Any]], *, column: str = "prompt", where: str = "prompts"
) -> PromptSet:
    """Return the prompts in a column of rows. Raises: ChoiceError, StructureError.

    >>> prompts_from_rows([{"prompt": "2 + 3?", "answer": 5}]).rows
    (PromptRow(prompt='2 + 3?'),)
    """
    return _checked(where, ((f"{where}: row {number}", row) for number, row in enumerate(rows, 1)), column)


def split_prompts(prompts: PromptSet, share: float) -> tuple[PromptSet, PromptSet]:
    """Return the training and the held-out prompts, of which there are about `share`, and at least one of each.

    held out:  h(content) < share,   h a hash in [0, 1)

    So rows of the same content are on the same side, and rows that are added move no others. Where this holds out no prompt,
    the one with the smallest h is held out; where it leaves none for training, the one with the largest h stays.
    Raises: ChoiceError for fewer than 2 distinct prompts, or a share that is not between 0 and 1.

    >>> prompts = prompts_from_rows([{"prompt": text} for text in ("2 + 3?", "1 + 1?")])
    >>> [len(side.rows) for side in split_prompts(prompts, 0.1)]
    [1, 1]
    """
    if not 0 < share < 1:
        remedy = "hold out e.g. 0.1"
        raise ChoiceError(message("split_prompts: share", got=share, wanted="between 0 and 1", remedy=remedy))
    hashes = [_content_hash(row) for row in prompts.rows]
    distinct = sorted(set(hashes))
    if len(distinct) < 2:
        wanted, remedy = "at least 2, one to hold out", "add prompts, or give those to hold out in another file"
        raise ChoiceError(message("split_prompts: distinct prompts", got=len(distinct), wanted=wanted, remedy=remedy))
    below = sum(int.from_bytes(one) < share * 256 ** len(one) for one in distinct)
    held = set(distinct[: min(max(below, 1), len(distinct) - 1)])
    training = [row for row, one in zip(prompts.rows, hashes, strict=True) if one not in held]
    return _prompt_set(training), _prompt_set(row for row, one in zip(prompts.rows, hashes, strict=True) if one in held)


def without(prompts: PromptSet, others: PromptSet) -> PromptSet:
    """Return the rows whose content is not among `others`; the number removed is the difference of the lengths.

    Raises: ChoiceError if none remains.

    >>> training, held_out = (prompts_from_rows([{"prompt": text} for text in texts]) for texts in ("aabc", "ad"))
    >>> [row.prompt for row in without(training, held_out).rows]
    ['b', 'c']
    """
    known = {row.messages for row in others.rows}
    rows = [row for row in prompts.rows if row.messages not in known]
    if not rows:
        got, remedy = "none but those held out", "hold out others"
        raise ChoiceError(message("prompts", got=got, wanted="at least 1 for training", remedy=remedy))
    return _prompt_set(rows)


def _checked(where: str, rows: Iterable[Located], column: str) -> PromptSet:
    found = [_row(place, row, column) for place, row in rows]
    if not found:
        raise ChoiceError(message(where, got="empty", wanted="at least 1 prompt", remedy="give one a row"))
    return _prompt_set(found)


def _row(place: str, row: Mapping[str, Any], column: str) -> PromptRow:
    if not isinstance(row, Mapping):
        got, wanted = f"of type {type(row).__name__}", f"a mapping with a column {column!r}"
        raise StructureError(message(place, got=got, wanted=wanted, remedy='write e.g. {"prompt": "2 + 3?"}'))
    if column not in row:
        more = ", ..." if len(row) > FEW else ""
        wanted = f"one of its columns {', '.join(map(repr, islice(row, FEW)))}{more}" if row else "one"
        got, remedy = f"without a column {column!r}", "name the column of the prompts with --prompt-column"
        raise ChoiceError(message(place, got=got, wanted=wanted, remedy=remedy))
    columns = {name: value for name, value in row.items() if name != column}
    for name, value in columns.items():
        if foreign := _foreign(value):
            got, remedy = f"with a value of type {foreign}", "convert it, or leave it out"
            raise ChoiceError(message(f"{place}: column {name!r}", got=got, wanted=VALUES, remedy=remedy))
    return PromptRow(prompt_of(f"{place}: column {column!r}", row[column]), columns)


def _with_messages(place: str, row: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    return {**row, column: cell_prompt(f"{place}: column {column!r}", row[column])} if column in row else row


def _foreign(value: Any) -> str:
    """Return the name of the first type in a value that JSON does not have, or "" if there is none."""
    if value is None or isinstance(value, str | int | float):
        return ""
    if isinstance(value, list):
        return next(filter(None, map(_foreign, value)), "")
    if isinstance(value, dict):
        names = (type(name).__name__ for name in value if not isinstance(name, str))
        return next(chain(names, filter(None, map(_foreign, value.values()))), "")
    return type(value).__name__


def _prompt_set(rows: Iterable[PromptRow]) -> PromptSet:
    found, digest = tuple(rows), hashlib.sha256()
    for row in found:
        digest.update(ENCODER.encode([row.messages, row.columns]).encode())
    return PromptSet(found, digest.hexdigest())


def _content_hash(row: PromptRow) -> bytes:
    return hashlib.sha256(ENCODER.encode(row.messages).encode()).digest()

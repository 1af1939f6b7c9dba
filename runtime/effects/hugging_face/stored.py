"""The content of a folder of weights, under the names in its files: looked up at once, read on request."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ....core.errors import CheckpointError, message
from ...files.reading import MOST_JSON, parse_json, read_bounded
from ...files.reading import opened as opened_file
from .weight_rules import INDEX, OLD_INDEX, PICKLED, chosen, files_of


@frozen
class Stored:
    """A tensor that has not been read yet."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    part: Any  # indexing it gives the tensor or a part of it: a safetensors slice, or a tensor


@contextmanager
def stored(path: str | Path) -> Iterator[tuple[Path, dict[str, Stored]]]:
    """Yield the file that lists the weights, and all of them by name; they can be read until the block ends.

    `path` is a folder, or such a file; in a folder the first of `weight_rules.ORDER` is used, then its one `.pt`. Pickles are
    read as tensors alone: they cannot run anything.

    Raises: CheckpointError for a folder without weights, an absent file of several, and a file that holds no weights.
    """
    place = Path(path)
    folder, name = (place.parent, place.name) if place.is_file() else (place, "")
    with ExitStack() as opened:
        there = [one.name for one in folder.iterdir()] if folder.is_dir() else []
        source = name or chosen(there, str(folder))
        yield folder / source, _shelf(opened, folder, source, there)


def _shelf(opened: ExitStack, folder: Path, source: str, there: list[str]) -> dict[str, Stored]:
    """Return all tensors of a source, by name."""
    if source not in (INDEX, OLD_INDEX):
        return _of_file(opened, folder / source)
    index = _index(folder / source)
    files = files_of(index.get("weight_map"), there, str(folder / source))
    held = {file: _of_file(opened, folder / file) for file in files}
    weights = {name: one for file in sorted(held) for name, one in held[file].items()}
    for file, names in files.items():
        absent = [name for name in names if name not in weights]
        if absent:
            where, remedy = f"weights: {folder / file}", "fetch the whole folder again"
            text = message(where, got=f"without {absent[0]}", wanted="what the index says", remedy=remedy)
            raise CheckpointError(text)
        weights.update({name: held[file][name] for name in names if name in held[file]})
    return weights


def _index(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(read_bounded(path, MOST_JSON))
    except (OSError, ValueError) as cause:
        raise CheckpointError(_unreadable(path, cause, "a JSON index")) from cause
    return value if isinstance(value, dict) else {}


def _of_file(opened: ExitStack, path: Path) -> dict[str, Stored]:
    return _of_pickle(path) if path.suffix in PICKLED else _of_safetensors(opened, path)


def _of_safetensors(opened: ExitStack, path: Path) -> dict[str, Stored]:
    try:
        with opened_file(path):
            pass  # refuses a FIFO, on which safe_open would block
        file: Any = opened.enter_context(safe_open(path, framework="pt"))
    except (OSError, SafetensorError) as cause:
        raise CheckpointError(_unreadable(path, cause, "a whole safetensors file")) from cause

    def one(name: str) -> Stored:
        part = file.get_slice(name)
        return Stored(tuple(part.get_shape()), lambda: file.get_tensor(name), part)

    return {name: one(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def _of_pickle(path: Path) -> dict[str, Stored]:
    """Return the tensors of a dict, or of a dict under its key "model" or "state_dict", which may have other keys."""
    try:
        with opened_file(path):
            pass
        value: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as cause:  # damaged bytes can raise anything: KeyError, struct.error, BadZipFile, ...
        raise CheckpointError(_unreadable(path, cause, "a pickle of tensors alone")) from cause
    for key in ("model", "state_dict"):
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            value = value[key]
    if not isinstance(value, dict) or not all(isinstance(one, Tensor) for one in value.values()):
        remedy = "store the model's state_dict()"
        raise CheckpointError(message(f"weights: {path}", got="something else", wanted="named tensors", remedy=remedy))

    def one(tensor: Tensor) -> Stored:
        return Stored(tuple(tensor.shape), lambda: tensor, tensor)

    return {str(name): one(tensor) for name, tensor in value.items()}


def _unreadable(path: Path, cause: Exception, wanted: str) -> str:
    said = next(iter(str(cause).splitlines()), "")
    got = f"unreadable ({type(cause).__name__}{': ' if said else ''}{said[:120]})"
    return message(f"weights: {path}", got=got, wanted=wanted, remedy="fetch or write it again")

"""The content of a folder of weights: its files, and the tensors in them by name, looked up at once and read on request."""

import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from attrs import frozen
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ....core.errors import CheckpointError, message
from ...files.reading import MOST_JSON, parse_json, read_bounded
from ...files.reading import open_file as opened_file

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OLD_WHOLE, OLD_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
ORDER = (WHOLE, INDEX, OLD_WHOLE, OLD_INDEX)  # after them: the one file that ends in .pt
PICKLED = (".bin", ".pt")


@frozen
class Stored:
    """A tensor that has not been read yet."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    part: Any  # indexing it gives the tensor or a part of it: a safetensors slice, or a tensor


@contextmanager
def stored(path: str | Path) -> Iterator[tuple[Path, dict[str, Stored]]]:
    """Yield the file that lists the weights, and all of them by name; they can be read until the block ends.

    `path` is a folder, or such a file; in a folder the first of `ORDER` is used, then its one `.pt`. Pickles are
    read as tensors alone: they cannot run anything.

    Raises: CheckpointError for a folder without weights, an absent file of several, and a file that holds no weights.
    """
    place = Path(path)
    folder, name = (place.parent, place.name) if place.is_file() else (place, "")
    with ExitStack() as opened:
        there = [one.name for one in folder.iterdir()] if folder.is_dir() else []
        source = name or weight_file(there, str(folder))
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


def weight_file(names: Collection[str], where: str) -> str:
    """Return the file that lists the weights: the first of `ORDER` that is there, then a file that ends in .pt.

    Raises: CheckpointError if there is none, or more than one .pt.

    >>> weight_file(["pytorch_model.bin", "model.safetensors.index.json", "config.json"], "folder")
    'model.safetensors.index.json'
    """
    found = [name for name in ORDER if name in names]
    if found:
        return found[0]
    last = sorted(name for name in names if name.endswith(".pt"))
    if len(last) == 1:
        return last[0]
    got = f"a folder with {', '.join(last)}" if last else "a folder without weights"
    wanted = "one .pt" if last else ", ".join((*ORDER, "a .pt"))
    remedy = "name the file itself, or leave one there" if last else "check the path"
    raise CheckpointError(message(f"weights: {where}", got=got, wanted=f"{wanted}", remedy=remedy))


def could_hold(names: Iterable[str]) -> bool:
    """Return whether one of the names is one that `weight_file` may choose.

    >>> could_hold(["config.json", "last.pt"]), could_hold(["config.json", "model.gguf"])
    (True, False)
    """
    return any(name in ORDER or name.endswith(".pt") for name in names)


def files_of(weight_map: object, there: Collection[str], where: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the tensors in each file of an index, in the index's order.

    Raises: CheckpointError for an index without a map of names to files beside it, or, naming them, for absent files.

    >>> files_of({"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}, ["1.safetensors", "2.safetensors"], "i")
    {'1.safetensors': ('a', 'c'), '2.safetensors': ('b',)}
    """
    if not isinstance(weight_map, Mapping) or not all(_is_plain(file) for file in weight_map.values()):
        remedy = "write the index again, with the library that made it"
        wanted = "a weight_map of names to files beside it"
        raise CheckpointError(message(f"weights: {where}", got="another index", wanted=wanted, remedy=remedy))
    files: dict[str, tuple[str, ...]] = {}
    for name, file in weight_map.items():
        files[file] = (*files.get(file, ()), str(name))
    absent = sorted(set(files) - set(there))
    if absent:
        got, remedy = f"without {some(absent)}", "fetch the whole folder again"
        raise CheckpointError(message(f"weights: {where}", got=got, wanted=f"all {len(files)} files", remedy=remedy))
    return files


def _is_plain(file: object) -> bool:
    return isinstance(file, str) and file not in ("", "..") and PurePosixPath(file).name == file


def some(names: Iterable[str], most: int = 3) -> str:
    """Return the first few names, and the number of the others.

    >>> some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")

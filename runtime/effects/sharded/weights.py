"""Weights from a folder, however they were stored there, as the tensors of a model: on one rank, or each rank its part."""

import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ....core.errors import CheckpointError, message
from ..checkpoint import to_stderr
from .loading import divided
from .weight_rules import INDEX, OLD_INDEX, PICKLED, check_weights, chosen, files_of

Params = dict[str, Tensor]


@frozen
class Stored:
    """A tensor that was not read yet."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


def read_weights(
    path: str | Path, like: Mapping[str, Tensor], *, report: Callable[[str], None] = to_stderr
) -> dict[str, Tensor]:
    """The weights in a folder, under the names and with shapes and dtypes of `like`; a DTensor gets this rank's part.

    Read are, in this order, `model.safetensors`, the files its index names, `pytorch_model.bin`, the files its index names,
    and a `.pt`; `path` may name one of these files as well. Which it was is said in a line to `report`. Pickles are read
    as tensors alone: they cannot run anything.

    Raises: CheckpointError for a folder without weights, an absent file of several, and for weights that are absent, of
    another shape, or not the model's; each is named.
    """
    place = Path(path)
    folder, name = (place.parent, place.name) if place.is_file() else (place, "")
    with ExitStack() as opened:
        there = [one.name for one in folder.iterdir()] if folder.is_dir() else []
        source = name or chosen(there, str(folder))
        shelf = _shelf(opened, folder, source, there)
        where = str(folder / source)
        wanted = {one: tuple(leaf.shape) for one, leaf in like.items()}
        check_weights({one: it.shape for one, it in shelf.items()}, wanted, _twins(shelf, wanted), where)
        params = {one: _fitted(shelf[one].read(), leaf) for one, leaf in like.items()}
    report(f"weights: {len(params)} tensors from {where}")
    return params


def _fitted(stored: Tensor, like: Tensor) -> Tensor:
    return divided(stored.to(like.dtype), like)


def _shelf(opened: ExitStack, folder: Path, source: str, there: list[str]) -> dict[str, Stored]:
    """All that a source holds."""
    if source not in (INDEX, OLD_INDEX):
        return _of_file(opened, folder / source)
    index = _index(folder / source)
    weights: dict[str, Stored] = {}
    for file, names in files_of(index.get("weight_map"), there, str(folder / source)).items():
        held = _of_file(opened, folder / file)
        absent = [name for name in names if name not in held]
        if absent:
            remedy = "fetch the whole folder again"
            where = f"weights: {folder / file}"
            raise CheckpointError(
                message(where, got=f"without {absent[0]}", wanted="what the index says", remedy=remedy)
            )
        weights.update({name: held[name] for name in names})
    return weights


def _index(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as cause:
        raise CheckpointError(_unreadable(path, cause, "a JSON index")) from cause
    return value if isinstance(value, dict) else {}


def _of_file(opened: ExitStack, path: Path) -> dict[str, Stored]:
    return _of_pickle(path) if path.suffix in PICKLED else _of_safetensors(opened, path)


def _of_safetensors(opened: ExitStack, path: Path) -> dict[str, Stored]:
    try:
        file: Any = opened.enter_context(safe_open(path, framework="pt"))
    except (OSError, SafetensorError) as cause:
        raise CheckpointError(_unreadable(path, cause, "a whole safetensors file")) from cause

    def stored(name: str) -> Stored:
        return Stored(tuple(file.get_slice(name).get_shape()), lambda: file.get_tensor(name))

    return {name: stored(name) for name in file.keys()}  # noqa: SIM118 - no mapping


def _of_pickle(path: Path) -> dict[str, Stored]:
    """Of a dict of tensors, or of one that has such a dict under "model" or "state_dict" beside other things."""
    try:
        value: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as cause:
        raise CheckpointError(_unreadable(path, cause, "a pickle of tensors alone")) from cause
    for key in ("model", "state_dict"):
        if isinstance(value, dict) and isinstance(value.get(key), dict):
            value = value[key]
    if not isinstance(value, dict) or not all(isinstance(one, Tensor) for one in value.values()):
        remedy = "store the model's state_dict()"
        raise CheckpointError(message(f"weights: {path}", got="something else", wanted="named tensors", remedy=remedy))

    def stored(tensor: Tensor) -> Stored:
        return Stored(tuple(tensor.shape), lambda: tensor)

    return {str(name): stored(tensor) for name, tensor in value.items()}


def _unreadable(path: Path, cause: Exception, wanted: str) -> str:
    said = next(iter(str(cause).splitlines()), "")
    got = f"unreadable ({type(cause).__name__}: {said[:120]})"
    return message(f"weights: {path}", got=got, wanted=wanted, remedy="fetch or write it again")


def _twins(shelf: Mapping[str, Stored], wanted: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Names of what is not wanted and yet the same, bit for bit, as something that is."""

    def same(name: str, other: str) -> bool:
        a, b = shelf[name].read(), shelf[other].read()
        return a.dtype == b.dtype and torch.equal(a, b)

    more = [name for name in shelf if name not in wanted]
    pairs = [(name, other) for name in more for other in wanted if other in shelf]
    return {name for name, other in pairs if shelf[name].shape == shelf[other].shape and same(name, other)}

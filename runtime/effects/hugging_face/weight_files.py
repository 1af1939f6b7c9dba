"""Weights from a folder, in any stored format, as the tensors of a model: on one rank, or sharded over ranks."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ....core.errors import CheckpointError, message
from ..checkpoint.load import shard_like
from ..checkpoint.single import to_stderr
from .stored import Stored, some, stored

FOLLOWS = ".inv_freq"  # suffix of buffers that older libraries stored though they follow from the configuration
Shapes = Mapping[str, tuple[int, ...]]


def read_weights(
    path: str | Path, like: Mapping[str, Tensor], *, report: Callable[[str], None] = to_stderr
) -> dict[str, Tensor]:
    """Return the weights in a folder, under the names and with shapes and dtypes of `like`; a DTensor gets this rank's shard.

    The first of these is read: `model.safetensors`, the files of its index, `pytorch_model.bin`, the files of its index, a
    `.pt`; `path` may also name one of these files. A line to `report` names the file. Pickles are read as tensors alone: they
    cannot run anything.

    Raises: CheckpointError for a folder without weights, an absent file of several, and for weights that are absent, of
    another shape, or not the model's; each is named.
    """
    wanted = {name: tuple(leaf.shape) for name, leaf in like.items()}
    with stored(path) as (source, shelf):
        shapes = {name: one.shape for name, one in shelf.items()}
        check_weights(shapes, wanted, _twins(shelf, wanted), str(source))
        params = {name: shard_like(shelf[name].read().to(leaf.dtype), leaf) for name, leaf in like.items()}
    report(f"weights: {len(params)} tensors from {source}")
    return params


def _twins(shelf: Mapping[str, Stored], wanted: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Return the names of tensors that are not wanted but equal, bit for bit, to one that is."""

    def same(name: str, other: str) -> bool:
        a, b = shelf[name].read(), shelf[other].read()
        return a.dtype == b.dtype and torch.equal(a, b)

    more = [name for name in shelf if name not in wanted]
    pairs = [(name, other) for name in more for other in wanted if other in shelf]
    return {name for name, other in pairs if shelf[name].shape == shelf[other].shape and same(name, other)}


def check_weights(got: Shapes, wanted: Shapes, twins: Collection[str], where: str) -> None:
    """Raise CheckpointError, naming the first, for weights that are absent, of another shape or of another model.

    `twins` are names in `got` whose tensor is bit for bit one that is wanted: a tied weight that was stored twice.

    >>> check_weights({"a": (2,), "b": (3,)}, {"a": (2,)}, (), "folder")
    Traceback (most recent call last):
    purestep.core.errors.CheckpointError: weights: folder is with b [3], wanted no such weight; \
build the model that the folder's configuration names
    """
    remedy = "build the model that the folder's configuration names"
    absent = [name for name in wanted if name not in got]
    if absent:
        text = f"all {len(wanted)} weights"
        raise CheckpointError(message(f"weights: {where}", got=f"without {some(absent)}", wanted=text, remedy=remedy))
    for name, shape in wanted.items():
        if got[name] != shape:
            at = f"weights: {where}: {name}"
            raise CheckpointError(message(at, got=list(got[name]), wanted=list(shape), remedy=remedy))
    for name in got:
        if name not in wanted and name not in twins and not name.endswith(FOLLOWS):
            said = f"with {name} {list(got[name])}"
            raise CheckpointError(message(f"weights: {where}", got=said, wanted="no such weight", remedy=remedy))

"""What a checkpoint says of itself: a JSON file that can be checked before any tensor is read."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import evolve, frozen
from torch import Tensor

from ...core.errors import CheckpointError, message
from ...core.tree import leaf_names, leaves
from ..values import Json, decode, encode, line

SCHEMA = "purestep-checkpoint-1"
TENSORS, MANIFEST = "state.safetensors", "manifest.json"


class DamagedError(CheckpointError):
    """A checkpoint is half-written, changed or unreadable; the one before it may be good."""


@frozen
class Leaf:
    """One tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype}"


@frozen
class Manifest:
    """All that stands in manifest.json; `sequence` counts the checkpoints written in a run's folder, from 1."""

    step: int
    sequence: int
    leaves: tuple[Leaf, ...]
    sha256: str  # of the tensor file
    machine: Json  # the machine's state, encoded
    environment: Mapping[str, Any]  # what resumed bits depend on beside the state
    metadata: Mapping[str, Any]  # the user's own, such as a recipe's arguments


def named(where: str, tree: Any) -> dict[str, Tensor]:
    """The tree's leaves by name. Raises: CheckpointError for a leaf that is no dense tensor, or a name that is taken."""
    tensors: dict[str, Tensor] = {}
    for name, leaf in zip(leaf_names(tree), leaves(tree), strict=True):
        dense = isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_quantized
        if not dense:
            remedy = "put numbers and names in the machine's state or a static field, and () for what is absent"
            got = f"{leaf.layout} tensor" if isinstance(leaf, Tensor) else type(leaf).__name__
            raise CheckpointError(message(f"{where}: {name}", got=got, wanted="a dense tensor", remedy=remedy))
        if name in tensors or name == "__metadata__":
            remedy = "rename the dict key, and put no dots in keys"
            raise CheckpointError(
                message(f"{where}: {name}", got="a name that is taken", wanted="one leaf for each", remedy=remedy)
            )
        tensors[name] = leaf
    return tensors


def describe_leaves(tensors: Mapping[str, Tensor]) -> tuple[Leaf, ...]:
    """Name, shape and dtype of each.

    >>> [str(leaf) for leaf in describe_leaves({"a": torch.ones(2, 3)})]
    ['[2, 3] float32']
    """
    return tuple(Leaf(name, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in tensors.items())


def written(manifest: Manifest) -> bytes:
    """The manifest as the bytes of its file, with a checksum over all the rest.

    Raises: StructureError, ChoiceError for metadata that is not made of numbers, strings, tuples and dicts.
    """
    plain = {"environment": dict(manifest.environment), "metadata": dict(manifest.metadata)}
    for name, value in plain.items():
        decode(encode(value, name), where=name)
    leaf_rows = [{"name": leaf.name, "shape": list(leaf.shape), "dtype": leaf.dtype} for leaf in manifest.leaves]
    body = {
        "schema": SCHEMA,
        "step": manifest.step,
        "sequence": manifest.sequence,
        "sha256": manifest.sha256,
        "machine": manifest.machine,
        **{name: encode(value, name) for name, value in plain.items()},
        "leaves": leaf_rows,
    }
    return json.dumps({**body, "checksum": checksum_of(body)}, indent=1, allow_nan=False).encode()


def checksum_of(body: Json) -> str:
    """Over all of a manifest but this."""
    return hashlib.sha256(line(body).encode()).hexdigest()


def describe(path: Path) -> Manifest:
    """The manifest of the checkpoint in folder `path`; reads no tensor.

    Raises: CheckpointError for another schema, DamagedError for a manifest that is absent, torn or changed.
    """
    return manifest_of(body_of(path), path)


def body_of(path: Path) -> Json:
    """The JSON value in the manifest of folder `path`. Raises: DamagedError."""
    try:
        return json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError) as cause:
        got = f"unreadable ({type(cause).__name__})"
        raise DamagedError(damaged(path / MANIFEST, got, "a JSON manifest")) from cause


def manifest_of(body: Json, path: Path) -> Manifest:
    """What a manifest's JSON value says; `path` is for errors, which are those of `describe`."""
    schema = body.get("schema") if isinstance(body, dict) else type(body).__name__
    if schema != SCHEMA:
        remedy = "read it with the version of purestep that wrote it"
        raise CheckpointError(
            message(f"describe: schema of {path}", got=repr(schema), wanted=repr(SCHEMA), remedy=remedy)
        )
    body = dict(body)
    checksum = body.pop("checksum", None)
    if checksum != checksum_of(body):
        raise DamagedError(damaged(path / MANIFEST, f"of checksum {checksum}", checksum_of(body)))
    del body["schema"]
    fields = {field.name for field in attrs.fields(Manifest)}
    if body.keys() != fields:
        got, remedy = f"of fields {sorted(body)}", "read it with the version of purestep that wrote it"
        raise CheckpointError(message(f"describe: schema of {path}", got=got, wanted=sorted(fields), remedy=remedy))
    body["leaves"] = tuple(Leaf(row["name"], tuple(row["shape"]), row["dtype"]) for row in body["leaves"])
    manifest = Manifest(**body)
    return evolve(manifest, environment=decode(manifest.environment), metadata=decode(manifest.metadata))


def tensor_bytes(path: Path, manifest: Manifest) -> bytes:
    """The checkpoint's tensor file, if it has the hash its manifest states. Raises: DamagedError."""
    try:
        data = (path / TENSORS).read_bytes()
    except OSError as cause:
        got = f"unreadable ({type(cause).__name__})"
        raise DamagedError(damaged(path / TENSORS, got, f"sha256 {manifest.sha256}")) from cause
    digest = hashlib.sha256(data).hexdigest()
    if digest != manifest.sha256:
        raise DamagedError(damaged(path / TENSORS, f"{len(data)} bytes of sha256 {digest[:12]}", manifest.sha256[:12]))
    return data


def damaged(path: Path, got: str, wanted: str) -> str:
    """The line that a `DamagedError` carries."""
    return message(f"checkpoint {path}", got=got, wanted=wanted, remedy="use an older checkpoint")


def same_leaves(where: str, saved: Iterable[Leaf], wanted: Iterable[Leaf]) -> None:
    """Raises CheckpointError, naming the first leaf that is missing, extra or of another shape or dtype."""
    have, want = {leaf.name: leaf for leaf in saved}, {leaf.name: leaf for leaf in wanted}
    differing = [name for name in dict.fromkeys((*want, *have)) if have.get(name) != want.get(name)]
    if not differing:
        return
    name = differing[0]
    others = f" ({len(differing) - 1} more differ)" if len(differing) > 1 else ""
    raise CheckpointError(
        message(
            f"{where}: {name or 'the leaf'}",
            got=have.get(name, "absent from the checkpoint"),
            wanted=want.get(name, "no such leaf"),
            remedy=f"build the run's own architecture, from the arguments in its manifest{others}",
        )
    )

"""A checkpoint's manifest: a JSON file that can be checked before any tensor is read."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from ....core.errors import CheckpointError, PurestepError, message
from ....core.tree import leaf_names, leaves
from ...files.reading import MOST_JSON, parse_json, read_bounded, reason
from ...machine.json_codec import Json, decode, encode, json_line, short

SCHEMA = "purestep-checkpoint-2"
TENSORS, MANIFEST = "state.safetensors", "manifest.json"
LARGEST = 2**53  # of the whole numbers in a manifest
HEADER = 1 << 27  # bytes that a safetensors file may have besides its tensors


class DamagedError(CheckpointError):
    """Error for a checkpoint that is half-written, changed or unreadable; the one before it may be good."""


@frozen
class Leaf:
    """Name, shape and dtype of one tensor of a checkpoint."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype}"


@frozen
class Manifest:
    """The content of manifest.json; `sequence` counts the checkpoints written in a run's folder, from 1."""

    step: int
    sequence: int
    leaves: tuple[Leaf, ...]
    sha256: str  # of the tensor file
    machine: Json  # the machine's state, encoded
    environment: Mapping[str, Any]  # facts besides the state on which the bits of a resumed run depend
    metadata: Mapping[str, Any]  # the user's own, such as a recipe's arguments


def leaves_by_name(where: str, tree: Any) -> dict[str, Tensor]:
    """Return the tree's leaves by name. Raises: CheckpointError for a leaf that is no dense tensor, or a duplicate name."""
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
    """Return the name, shape and dtype of each tensor.

    >>> [str(leaf) for leaf in describe_leaves({"a": torch.ones(2, 3)})]
    ['[2, 3] float32']
    """
    return tuple(Leaf(name, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in tensors.items())


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the manifest as the bytes of its file, with a checksum over all the rest.

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
    """Return the checksum over all of a manifest but the checksum itself."""
    return hashlib.sha256(json_line(body).encode()).hexdigest()


def describe(path: Path) -> Manifest:
    """Return the manifest of the checkpoint in folder `path`, without reading a tensor.

    Raises: CheckpointError for another schema, DamagedError for a manifest that is absent, torn or changed.
    """
    return manifest_of(body_of(path), path)


def body_of(path: Path) -> Json:
    """Return the JSON value in the manifest of folder `path`. Raises: DamagedError."""
    file = path / MANIFEST
    if path.is_symlink():
        raise DamagedError(damaged(path, "a link", "a folder"))
    try:
        return parse_json(read_bounded(file, MOST_JSON, follow=False))
    except OSError as cause:
        raise DamagedError(damaged(file, f"unreadable ({reason(cause)})", "a JSON manifest")) from cause
    except ValueError as cause:
        said = str(cause) if str(cause).startswith("nested") else type(cause).__name__
        raise DamagedError(damaged(file, f"unreadable ({said})", "a JSON manifest")) from cause


def manifest_of(body: Json, path: Path) -> Manifest:
    """Return the manifest in a JSON value, after checking all types in it; `path` is for errors, which are as in `describe`."""
    body = checked_body(body, path, SCHEMA, {field.name for field in attrs.fields(Manifest)})
    for name, (fits, wanted) in FIELDS.items():
        if not fits(body[name]):
            raise DamagedError(damaged(path / MANIFEST, f"with {name} {short(body[name])}", wanted))
    body["leaves"] = tuple(Leaf(row["name"], tuple(row["shape"]), row["dtype"]) for row in body["leaves"])
    try:
        plain = {name: decode(body[name], where=name) for name in ("environment", "metadata")}
    except PurestepError as cause:
        raise DamagedError(
            damaged(path / MANIFEST, f"with a part that is none ({cause})", "numbers and texts")
        ) from cause
    return Manifest(**{**body, **plain})


def checked_body(body: Json, path: Path, schema: str, fields: set[str]) -> dict[str, Any]:
    """Return the fields of a description of this schema, after checking its checksum.

    Raises: CheckpointError for an intact one of another schema of ours, DamagedError otherwise.
    """
    file = path / MANIFEST
    if not isinstance(body, dict):
        raise DamagedError(damaged(file, f"{type(body).__name__}, no object", "a JSON object"))
    found, stated = body.get("schema"), body.get("checksum")
    rest = {name: value for name, value in body.items() if name != "checksum"}
    try:
        summed = checksum_of(rest)
    except ValueError:  # a number that JSON cannot write
        summed = "that of finite numbers"
    if stated != summed:
        raise DamagedError(damaged(file, f"of checksum {short(stated)}", summed))
    if found != schema:
        if not isinstance(found, str) or not OURS.fullmatch(found):
            raise DamagedError(damaged(file, f"of schema {short(found)}", repr(schema)))
        remedy = "read it with the version of purestep that wrote it"
        raise CheckpointError(
            message(f"describe: schema of {path}", got=repr(found), wanted=repr(schema), remedy=remedy)
        )
    del rest["schema"]
    if rest.keys() != fields:
        raise DamagedError(damaged(file, f"of fields {short(sorted(rest))}", str(sorted(fields))))
    return rest


OURS = re.compile(r"purestep-[a-z]{1,20}-[0-9]{1,6}")


def is_whole_number(value: Any, least: int = 0) -> bool:
    """Return whether a JSON value is a whole number that a checkpoint may have.

    >>> is_whole_number(3), is_whole_number(True), is_whole_number(-1), is_whole_number(3.0), is_whole_number(10**30)
    (True, False, False, False, False)
    """
    return type(value) is int and least <= value <= LARGEST


def is_sha256(value: Any) -> bool:
    """Return whether a JSON value is a digest in hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _are_leaves(rows: Any) -> bool:
    return (
        isinstance(rows, list)
        and all(isinstance(row, dict) and row.keys() == {"name", "shape", "dtype"} for row in rows)
        and all(isinstance(row["name"], str) and _is_dtype(row["dtype"]) for row in rows)
        and all(isinstance(row["shape"], list) and all(map(is_whole_number, row["shape"])) for row in rows)
        and len({row["name"] for row in rows}) == len(rows)
    )


def _is_dtype(name: Any) -> bool:
    return isinstance(name, str) and isinstance(getattr(torch, name, None), torch.dtype)


Check = tuple[Callable[[Any], bool], str]  # the check of a field, and a description of valid values
FIELDS: Mapping[str, Check] = {
    "step": (is_whole_number, "a whole number"),
    "sequence": (lambda value: is_whole_number(value, 1), "a whole number from 1 on"),
    "leaves": (_are_leaves, "a name, a shape and a dtype for each leaf"),
    "sha256": (is_sha256, "64 hexadecimal digits"),
    "environment": (lambda value: isinstance(value, dict), "an object"),
    "metadata": (lambda value: isinstance(value, dict), "an object"),
}


def tensor_bytes(path: Path, manifest: Manifest) -> bytes:
    """Return the checkpoint's tensor file, if it has the hash in its manifest. Raises: DamagedError."""
    most = HEADER + sum(16 * math.prod(leaf.shape) for leaf in manifest.leaves)
    try:
        data = read_bounded(path / TENSORS, most, follow=False)
    except OSError as cause:
        got = f"unreadable ({reason(cause)})"
        raise DamagedError(damaged(path / TENSORS, got, f"sha256 {manifest.sha256}")) from cause
    digest = hashlib.sha256(data).hexdigest()
    if digest != manifest.sha256:
        raise DamagedError(damaged(path / TENSORS, f"{len(data)} bytes of sha256 {digest[:12]}", manifest.sha256[:12]))
    return data


def damaged(path: Path, got: str, wanted: str) -> str:
    """Return the error text of a `DamagedError`."""
    return message(f"checkpoint {path}", got=got, wanted=wanted, remedy="use an older checkpoint")


def same_leaves(where: str, saved: Iterable[Leaf], wanted: Iterable[Leaf]) -> None:
    """Raise CheckpointError, naming the first leaf that is missing, extra or of another shape or dtype."""
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

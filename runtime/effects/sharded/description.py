"""What a checkpoint of several ranks says of itself: a manifest that can be checked before any tensor is read.

A full checkpoint has the manifest of `effects.manifest` and is one that a single process writes and reads as well. Others
add in which place each leaf lies, and size and hash of every file.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from ....core.errors import CheckpointError, message
from ..manifest import (
    MANIFEST,
    SCHEMA,
    TENSORS,
    DamagedError,
    Manifest,
    body_of,
    checksum_of,
    damaged,
    manifest_of,
    written,
)
from ..step_folders import steps
from .placing import FULL, STATE, File

SHARDED_SCHEMA = "purestep-sharded-1"
FIELDS = {"manifest", "form", "places", "files", "at"}
CHUNK = 1 << 24


@frozen
class Description:
    """All that stands in manifest.json."""

    manifest: Manifest
    form: str  # full, sharded or hugging_face
    places: Mapping[str, str]  # of each leaf: state, shards or model
    files: tuple[File, ...]  # all but the manifest; in a full checkpoint its sha256 says the same
    at: str = ""  # what the names of the model's leaves begin with, before a dot


def text_of(description: Description) -> bytes:
    """The description as the bytes of its file. Raises: StructureError, ChoiceError for metadata without JSON form."""
    inner = written(description.manifest)
    if description.form == FULL:
        return inner
    body = {
        "schema": SHARDED_SCHEMA,
        "form": description.form,
        "at": description.at,
        "places": dict(description.places),
        "files": [attrs.asdict(file) for file in description.files],
        "manifest": json.loads(inner),
    }
    return json.dumps({**body, "checksum": checksum_of(body)}, indent=1, allow_nan=False).encode()


def described(path: Path) -> Description:
    """The description of the checkpoint in folder `path`; reads no tensor.

    Raises: CheckpointError for another schema, DamagedError for a manifest that is absent, torn or changed.
    """
    body = body_of(path)
    if not isinstance(body, dict) or body.get("schema") != SHARDED_SCHEMA:
        manifest = manifest_of(body, path)
        places = {leaf.name: STATE for leaf in manifest.leaves}
        return Description(manifest, FULL, places, (File(TENSORS, -1, manifest.sha256),))
    stated = body.pop("checksum", None)
    if stated != checksum_of(body):
        raise DamagedError(damaged(path / MANIFEST, f"of checksum {stated}", checksum_of(body)))
    del body["schema"]
    if body.keys() != FIELDS:
        got, remedy = f"of fields {sorted(body)}", "read it with the version of purestep that wrote it"
        where = f"describe: schema of {path}"
        raise CheckpointError(message(where, got=got, wanted=f"{SCHEMA} or {sorted(FIELDS)}", remedy=remedy))
    return Description(
        manifest=manifest_of(body["manifest"], path),
        form=body["form"],
        places=body["places"],
        files=tuple(File(**row) for row in body["files"]),
        at=body["at"],
    )


def file_of(folder: Path, name: str) -> File:
    """A file's size and hash, read a piece at a time."""
    digest, size = hashlib.sha256(), 0
    with (folder / name).open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            size += len(piece)
    return File(name, size, digest.hexdigest())


def fault_of(folder: Path, wanted: File) -> str:
    """What is wrong with a file; "" when it is as it was. An absent one is named without reading anything."""
    path = folder / wanted.name
    try:
        size = path.stat().st_size
        if wanted.size not in (-1, size):
            return damaged(path, f"{size:,} bytes", f"{wanted.size:,} bytes")
        found = file_of(folder, wanted.name)
    except FileNotFoundError:
        return damaged(path, "absent", "one of the files its manifest names")
    except OSError as cause:
        return damaged(path, f"unreadable ({type(cause).__name__})", f"{wanted.size:,} bytes")
    same = found.sha256 == wanted.sha256
    return "" if same else damaged(path, f"of sha256 {found.sha256[:12]}", wanted.sha256[:12])


def names_below(folder: Path) -> list[str]:
    """All files in a folder and the folders in it, but the manifest."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in found if name != MANIFEST]


def ordered(root: Path, refuse: Callable[[CheckpointError], None]) -> list[tuple[int, Path]]:
    """(sequence, folder) of every checkpoint with a good manifest, newest first; `refuse` gets what is wrong with others."""
    found = []
    for folder in steps(root):
        try:
            found.append((described(folder).manifest.sequence, folder))
        except CheckpointError as fault:
            refuse(fault)
    return sorted(found, reverse=True)


def facts_of(size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The user's facts, and how many ranks there are: sums over ranks are not associative, so that bits depend on it.

    >>> facts_of(4, {"lowering": "eager"})
    {'ranks': 4, 'lowering': 'eager'}
    """
    return {"ranks": size, **given}

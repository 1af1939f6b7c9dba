"""The manifest of a checkpoint of several ranks, which can be checked before any tensor is read.

A full checkpoint has the manifest of `effects.manifest`, so a single process can write and read it as well. The other forms add
the place of each leaf, and size and hash of every file.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
from attrs import frozen

from ....core.errors import CheckpointError
from ...files.reading import open_file, reason
from ...machine.json_codec import short
from .directory import step_folders
from .layout import FORMATS, FULL, MODEL, SHARDS, STATE, File
from .manifest import (
    MANIFEST,
    TENSORS,
    DamagedError,
    Manifest,
    body_of,
    checked_body,
    checksum_of,
    damaged,
    is_sha256,
    is_whole_number,
    manifest_bytes,
    manifest_of,
)

SHARDED_SCHEMA = "purestep-sharded-2"
FIELDS = {"manifest", "form", "places", "files", "at"}
CHUNK = 1 << 24


@frozen
class Description:
    """The content of manifest.json."""

    manifest: Manifest
    form: str  # full, sharded or hugging_face
    places: Mapping[str, str]  # of each leaf: state, shards or model
    files: tuple[File, ...]  # all but the manifest; in a full checkpoint the manifest's sha256 stands for its only one
    at: str = ""  # the prefix of the names of the model's leaves, before a dot


def description_bytes(description: Description) -> bytes:
    """Return the description as the bytes of its file. Raises: StructureError, ChoiceError for metadata without JSON form."""
    inner = manifest_bytes(description.manifest)
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


def read_description(path: Path) -> Description:
    """Return the description of the checkpoint in folder `path`, without reading a tensor.

    Raises: CheckpointError for another schema, DamagedError for a manifest that is absent, torn or changed.
    """
    body = body_of(path)
    if not isinstance(body, dict) or body.get("schema") != SHARDED_SCHEMA:
        manifest = manifest_of(body, path)
        places = {leaf.name: STATE for leaf in manifest.leaves}
        return Description(manifest, FULL, places, (File(TENSORS, -1, manifest.sha256),))
    body = checked_body(body, path, SHARDED_SCHEMA, FIELDS)
    inner = body["manifest"]
    manifest = manifest_of(inner, path)
    names = {leaf.name for leaf in manifest.leaves}
    places, files, at = body["places"], body["files"], body["at"]
    checks = (
        ("form", body["form"] in FORMATS if isinstance(body["form"], str) else False, f"one of {FORMATS}"),
        ("at", isinstance(at, str), "a text"),
        (
            "places",
            isinstance(places, dict)
            and places.keys() == names
            and all(place in (STATE, SHARDS, MODEL) for place in places.values() if isinstance(place, str))
            and all(isinstance(place, str) for place in places.values()),
            "a place for each leaf",
        ),
        ("files", _are_files(files), "name, size and sha256 of each file below the folder"),
    )
    for name, fits, wanted in checks:
        if not fits:
            raise DamagedError(damaged(path / MANIFEST, f"with {name} {short(body[name])}", wanted))
    return Description(manifest, body["form"], places, tuple(File(**row) for row in files), at)


def _are_files(rows: Any) -> bool:
    return (
        isinstance(rows, list)
        and all(isinstance(row, dict) and row.keys() == {"name", "size", "sha256"} for row in rows)
        and all(is_whole_number(row["size"]) and is_sha256(row["sha256"]) and _is_below(row["name"]) for row in rows)
    )


def _is_below(name: Any) -> bool:
    """Return whether a name in a manifest is that of a file below the checkpoint's folder."""
    parts = PurePosixPath(name).parts if isinstance(name, str) and "\0" not in name else ()
    return bool(parts) and not parts[0].startswith("/") and ".." not in parts


def file_of(folder: Path, name: str) -> File:
    """Return a file's size and hash, reading it in chunks. Raises: OSError, also unless it is a regular file."""
    digest, size = hashlib.sha256(), 0
    with open_file(folder / name, follow=False) as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            size += len(piece)
    return File(name, size, digest.hexdigest())


def fault_of(folder: Path, wanted: File) -> str:
    """Return the error text for a damaged file; "" for an intact one. An absent file is reported without reading anything."""
    path = folder / wanted.name
    try:
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
        size = path.lstat().st_size
        if not inside:
            return damaged(path, "outside of the checkpoint", "a file in it")
        if wanted.size not in (-1, size) and not path.is_symlink():
            return damaged(path, f"{size:,} bytes", f"{wanted.size:,} bytes")
        found = file_of(folder, wanted.name)
    except FileNotFoundError:
        return damaged(path, "absent", "one of the files its manifest names")
    except OSError as cause:
        return damaged(path, f"unreadable ({reason(cause)})", f"{wanted.size:,} bytes")
    same = found.sha256 == wanted.sha256
    return "" if same else damaged(path, f"of sha256 {found.sha256[:12]}", wanted.sha256[:12])


def odd_one(folder: Path) -> str:
    """Return the error text for the first entry below a folder that is neither file nor folder (a link, a FIFO); else ""."""
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return damaged(path, "no regular file", "files and folders alone")
    return ""


def names_below(folder: Path) -> list[str]:
    """Return the names of all files in a folder and its subfolders, except the manifest."""
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in found if name != MANIFEST]


def ordered(root: Path, refuse: Callable[[CheckpointError], None]) -> list[tuple[int, Path]]:
    """Return (sequence, folder) of each checkpoint with a good manifest, newest first; `refuse` gets other errors."""
    found = []
    for folder in step_folders(root):
        try:
            found.append((read_description(folder).manifest.sequence, folder))
        except CheckpointError as fault:
            refuse(fault)
    return sorted(found, reverse=True)


def facts_and_ranks(size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's facts and the number of ranks: sums over ranks are not associative, so results depend on it.

    >>> facts_and_ranks(4, {"lowering": "eager"})
    {'ranks': 4, 'lowering': 'eager'}
    """
    return {"ranks": size, **given}

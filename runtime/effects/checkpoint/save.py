"""Checkpoints that several ranks write together, and that any number of ranks can read.

    RUN/checkpoints/step_000123/manifest.json       the description of the rest: see description.py
    RUN/checkpoints/step_000123/state.safetensors   every tensor that is equal on all ranks; in a full one, all tensors
    RUN/checkpoints/step_000123/shards/             tensors that are sharded over ranks, by torch.distributed.checkpoint
    RUN/checkpoints/step_000123/model/              in Hugging Face's form: the model, for `from_pretrained`
    RUN/checkpoints/latest                          the name of the newest

A DTensor is stored as it is sharded; a plain tensor must be the same on all ranks, and this is checked.
"""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from attrs import frozen
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.tensor import DTensor

from ....core.errors import CheckpointError, ChoiceError, message
from ...machine.json_codec import Json, encode
from . import dcp_storage
from .atomic_files import DISK, Files
from .description import Description, description_bytes, facts_and_ranks, file_of, names_below, ordered
from .directory import PARTIAL, free_name, make_temporary, prune, publish_folder, remove_remains, unwritten
from .formats import SHARDED, Form
from .group import ALONE, RankGroup, all_or_none, by_first, gather_values, together
from .layout import MODEL, SHARDS, STATE, File, assign_leaves, file_numbers, folders, one_tree
from .manifest import MANIFEST, TENSORS, Leaf, Manifest, describe_leaves, leaves_by_name
from .single import CHUNK, environment, ignore, storable

PIECES = "sharded"  # the writer of Hugging Face's form has ranks write here before it merges their files


@frozen
class Staged:
    """A checkpoint that is ready to be written during training."""

    step: int
    form: Form
    leaves: tuple[Leaf, ...]
    places: Mapping[str, str]
    whole: Mapping[str, Tensor]  # for the one file, on rank 0 alone; copies on the CPU
    parts: Mapping[str, Tensor]  # for the folders; each rank has its own shard
    machine: Json
    facts: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Return the bytes of all tensors."""
        return sum(_bytes(leaf) for leaf in self.leaves)


def save(
    run: Path,
    step: int,
    tree: Any,
    *,
    form: Form = SHARDED,
    machine: Any = (),
    facts: Mapping[str, Any] = {},
    metadata: Mapping[str, Any] = {},
    keep: int = 3,
    group: RankGroup = ALONE,
    files: Files = DISK,
) -> Path:
    """Write a checkpoint of `tree` (tensors) and of `machine` (a JSON value); return its folder. Every rank calls it.

    The arguments are as in `effects.checkpoint.save`. `group` is the result of `join_ranks()`, called once on each rank.

    Raises, on every rank: CheckpointError when it cannot be written (older checkpoints are then untouched), when a leaf is no
    dense tensor, or when a plain tensor differs between ranks; StructureError for a machine or metadata without JSON form.
    """
    given = staged(step, tree, form=form, machine=machine, facts=facts, metadata=metadata, group=group, copies=False)
    return write(run, given, keep=keep, group=group, files=files)


def staged(
    step: int,
    tree: Any,
    *,
    form: Form = SHARDED,
    machine: Any = (),
    facts: Mapping[str, Any] = {},
    metadata: Mapping[str, Any] = {},
    group: RankGroup = ALONE,
    copies: bool = True,
) -> Staged:
    """Return the argument for `write`: with `copies`, it is independent of later changes to the tree's tensors."""
    tensors, places, plain = all_or_none(group, lambda: _sorted_out(step, tree, form, group))
    leaves = describe_leaves(tensors)
    if group.size > 1:
        sums = {name: _digest(leaf) for name, leaf in plain.items()}
        one_tree(gather_values(group, {leaf.name: f"{leaf} {sums.get(leaf.name, 'divided')}" for leaf in leaves}))
    whole = {}
    for name, leaf in tensors.items():  # in the same order on all ranks, because gathering is a collective
        if places[name] == STATE:
            copy = storable(leaf.full_tensor()) if isinstance(leaf, DTensor) else plain[name]
            whole.update({name: copy} if group.rank == 0 else {})
    parts = {name: tensors[name].detach() for name, place in places.items() if place != STATE}
    return Staged(
        step=step,
        form=form,
        leaves=leaves,
        places=places,
        whole=whole,
        parts=_copied(parts) if copies and parts else parts,
        machine=all_or_none(group, lambda: encode(machine, "machine")),
        facts=facts,
        metadata=metadata,
    )


def _sorted_out(
    step: int, tree: Any, form: Form, group: RankGroup
) -> tuple[dict[str, Tensor], dict[str, str], dict[str, Tensor]]:
    """Return (all leaves, the place of each, copies of the unsharded ones that are written whole or compared)."""
    if step < 0:
        raise ChoiceError(message("save: step", got=step, wanted="0 or more", remedy="count steps from 0"))
    tensors = leaves_by_name("save", tree)
    plain = {name: leaf for name, leaf in tensors.items() if not isinstance(leaf, DTensor)}
    places = assign_leaves(tensors, tensors.keys() - plain.keys(), form.name, form.at)
    cut = len(form.at) + 1
    form.check({leaf.name[cut:]: leaf for leaf in describe_leaves(tensors) if places[leaf.name] == MODEL})
    wanted = [name for name in plain if group.size > 1 or places[name] == STATE]
    return tensors, places, {name: storable(plain[name]) for name in wanted}


def _digest(leaf: Tensor) -> str:
    data = leaf.reshape(-1).view(torch.uint8).numpy().tobytes() if leaf.numel() else b""
    return hashlib.sha256(data).hexdigest()[:12]


def _copied(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the CPU, whatever the device of a DTensor's mesh."""
    stager = DefaultStager(StagingOptions(False, False, False, False))
    copies: Any = stager.stage(dict(parts))
    stager.close()
    return dict(copies)


def write(run: Path, given: Staged, *, keep: int = 3, group: RankGroup = ALONE, files: Files = DISK) -> Path:
    """Write a staged checkpoint, and remove all but the `keep` newest. Every rank calls it. Raises: as `save`."""
    if keep < 1:
        raise ChoiceError(message("save: keep", got=keep, wanted="1 or more", remedy="keep at least the newest"))
    root = run / "checkpoints"
    try:
        beside, name, sequence = by_first(group, lambda: _begun(root, given.step, files))
        partial = root / beside
        _write_parts(partial, given, group, files)
        below = by_first(group, lambda: _write_state(partial, given.whole, files))
        sums = together(group, lambda: [file_of(partial, one) for one in below[group.rank :: group.size]])
        description = _description(given, sequence, [one for part in sums for one in part], group)
        return by_first(group, lambda: _finish(root, beside, name, description, keep, files))
    except BaseException as cause:
        if group.rank == 0:
            with suppress(OSError):
                remove_remains(root, files)
        if isinstance(cause, OSError):
            raise CheckpointError(unwritten(root, given.size, cause)) from cause
        raise


def _begun(root: Path, step: int, files: Files) -> tuple[str, str, int]:
    """Return the temporary folder, its final name, and the checkpoint's sequence number in the run.

    No two saves write to the same folder: a rank that was given up as lost may still be writing to its own.
    """
    name = free_name(root, step)
    beside = make_temporary(root, f"{name}.{secrets.token_hex(4)}", files)
    return beside.name, name, 1 + max((sequence for sequence, _ in ordered(root, ignore)), default=0)


def _write_parts(partial: Path, given: Staged, group: RankGroup, files: Files) -> None:
    shards = {name: leaf for name, leaf in given.parts.items() if given.places[name] == SHARDS}
    if shards:
        writer = FileSystemWriter(partial / SHARDS, sync_files=False)  # our own streams sync
        dcp_storage.write_shards(group, shards, writer, files)
    model = {name: leaf for name, leaf in given.parts.items() if given.places[name] == MODEL}
    if model:
        cut = len(given.form.at) + 1
        leaves = {leaf.name[cut:]: leaf for leaf in given.leaves if leaf.name in model}
        sizes = {name: _bytes(leaf) for name, leaf in leaves.items()}
        hugging = HuggingFaceStorageWriter(
            str(partial / MODEL),
            fqn_to_index_mapping=file_numbers(sizes, given.form.largest),
            save_distributed=True,
            enable_consolidation=True,
        )
        hugging.sync_files = False
        dcp_storage.write_shards(group, {name[cut:]: leaf for name, leaf in model.items()}, hugging, files)
        by_first(group, lambda: _furnish(partial / MODEL, given.form, leaves, files))


def _bytes(leaf: Leaf) -> int:
    return int(torch.Size(leaf.shape).numel() * getattr(torch, leaf.dtype).itemsize)


def _furnish(folder: Path, form: Form, leaves: Mapping[str, Leaf], files: Files) -> None:
    """Remove the ranks' pieces after the merge, add the other files of the folder, and sync them: no `Files` wrote them."""
    files.remove(folder / PIECES)
    form.furnish(folder, leaves)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files.sync(path)


def _write_state(partial: Path, whole: Mapping[str, Tensor], files: Files) -> list[str]:
    """Write the one file; sync all subfolders, and return the names of all files."""
    data = safetensors.torch.save(dict(whole))
    for start in range(0, len(data), CHUNK):
        files.append(partial / TENSORS, data[start : start + CHUNK])
    files.sync(partial / TENSORS)
    below = names_below(partial)
    for folder in folders(below):
        files.sync(partial / folder)
    return below


def _description(given: Staged, sequence: int, found: list[File], group: RankGroup) -> Description:
    return Description(
        manifest=Manifest(
            step=given.step,
            sequence=sequence,
            leaves=given.leaves,
            sha256=next(file.sha256 for file in found if file.name == TENSORS),
            machine=given.machine,
            environment={**environment(), **facts_and_ranks(group.size, given.facts)},
            metadata=given.metadata,
        ),
        form=given.form.name,
        places=given.places,
        files=tuple(sorted(found, key=lambda file: file.name)),
        at=given.form.at,
    )


def _finish(root: Path, beside: str, name: str, description: Description, keep: int, files: Files) -> Path:
    files.append(root / beside / MANIFEST, description_bytes(description))
    files.sync(root / beside / MANIFEST)
    files.rename(root / beside, root / f"{PARTIAL}{name}")
    folder = publish_folder(root, name, files)
    prune(root, [old for _, old in ordered(root, ignore)[keep:]], files)
    return folder

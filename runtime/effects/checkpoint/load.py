"""Loading of checkpoints on any number of ranks, whatever number wrote them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
import torch.utils._pytree as pytree
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.tensor import DTensor, distribute_tensor

from ....core.errors import CheckpointError
from . import dcp_storage
from .description import Description, fault_of, odd_one, ordered, read_description
from .group import ALONE, RankGroup, all_or_none, by_first, together
from .layout import MODEL, SHARDS, STATE, files_of_rank
from .manifest import TENSORS, DamagedError, describe_leaves, leaves_by_name, same_leaves
from .shards import ShardReader
from .single import Checkpoint, all_damaged, machine_of, not_as_stated, restore_tensor, to_stderr

T = TypeVar("T")
Names = Callable[[str], str | tuple[()]]


def latest(
    run: Path,
    *,
    group: RankGroup = ALONE,
    report: Callable[[str], None] = to_stderr,
    without: Collection[Path] = (),
) -> Path | None:
    """Return the folder of a run's newest good checkpoint, of any form, except those in `without`; None if none was finished.
    Every rank calls it.

    Ranks share the work of looking for damage. A damaged one is named in a line that rank 0 passes to `report`, and the one
    before it is tried.
    Raises: CheckpointError when there are some and none is good, or when one has an unknown schema: it may be the newest.
    """
    root = run / "checkpoints"
    names, faults = by_first(group, lambda: _listed(root))
    for fault in faults if group.rank == 0 else ():
        report(fault)
    for name in names:
        if root / name in without:
            faults = [*faults, name]
            continue
        fault = _damage(root / name, group)
        if not fault:
            return root / name
        faults = [*faults, fault]
        if group.rank == 0:
            report(fault)
    if faults:
        raise CheckpointError(all_damaged(root, len(faults)))
    return None


def _listed(root: Path) -> tuple[list[str], list[str]]:
    """Return the names of the folders with a good manifest, newest first, and the error texts of the others."""
    faults: list[str] = []

    def refuse(fault: CheckpointError) -> None:
        if not isinstance(fault, DamagedError):
            raise fault
        faults.append(str(fault))

    return [folder.name for _, folder in ordered(root, refuse)], faults


def _damage(path: Path, group: RankGroup) -> str:
    """Return the error text for the first damaged file; "" if all are intact."""

    def look() -> str:
        found = (fault_of(path, file) for file in files_of_rank(read_description(path).files, group.rank, group.size))
        return odd_one(path) or next((fault for fault in found if fault), "")

    return next((fault for fault in together(group, look) if fault), "")


def _itself(name: str) -> str:
    return name


def load(
    path: Path,
    like: T,
    *,
    classes: Iterable[type] = (),
    group: RankGroup = ALONE,
    names: Names = _itself,
) -> Checkpoint[T]:
    """Return the checkpoint in folder `path`, as a tree like `like`: its structure, shapes and dtypes, and for each leaf its
    device or, for a DTensor, its mesh and placements. Every rank calls it.

    `classes` are those of the machine's state; `names` maps the name of a leaf to that in the checkpoint, and to () where the
    leaf of `like` is taken. Raises: DamagedError, which names a file; CheckpointError for another schema
    or architecture, naming the first leaf that differs.

    >>> from tempfile import TemporaryDirectory
    >>> from purestep.runtime.effects.checkpoint.save import save
    >>> with TemporaryDirectory() as run:
    ...     path = save(Path(run), 7, {"w": torch.ones(2)}, machine=(3, "going"))
    ...     checkpoint = load(path, {"w": torch.zeros(2)})
    >>> checkpoint.step, checkpoint.tree, checkpoint.machine
    (7, {'w': tensor([1., 1.])}, (3, 'going'))
    """
    leaves_of = leaves_by_name("load", like)
    before = {name: names(name) for name in leaves_of}
    wanted = {name: leaves_of[now] for now, name in before.items() if isinstance(name, str)}
    description = all_or_none(group, lambda: _fitting(path, wanted))
    fault = _damage(path, group)
    if fault:
        raise DamagedError(fault)
    at = {place: [name for name in wanted if description.places[name] == place] for place in (STATE, SHARDS, MODEL)}
    found = all_or_none(group, lambda: _from_state(path / TENSORS, {name: wanted[name] for name in at[STATE]}))
    blank = {name: torch.empty_like(wanted[name].detach()) for name in (*at[SHARDS], *at[MODEL])}
    if at[SHARDS]:
        dcp_storage.read_shards(group, {name: blank[name] for name in at[SHARDS]}, ShardReader(path / SHARDS))
    if at[MODEL]:
        cut = len(description.at) + 1
        reader = HuggingFaceStorageReader(str(path / MODEL))
        dcp_storage.read_shards(group, {name[cut:]: blank[name] for name in at[MODEL]}, reader)
    machine = machine_of(path, description.manifest.machine, classes)
    read = {**found, **blank}
    tensors = [read[name] if isinstance(name, str) else leaves_of[now].detach().clone() for now, name in before.items()]
    return Checkpoint(
        step=description.manifest.step,
        tree=pytree.tree_unflatten(tensors, pytree.tree_structure(like)),
        machine=machine,
        manifest=description.manifest,
    )


load_checkpoint = load  # its name in `purestep`, where `load` opens the policy of a run


def _fitting(path: Path, wanted: Mapping[str, Tensor]) -> Description:
    """Return the checkpoint's description, if its leaves are those wanted. Raises: CheckpointError."""
    description = read_description(path)
    same_leaves(f"load: {path.name}", description.manifest.leaves, describe_leaves(wanted))
    return description


def _from_state(path: Path, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the leaves in the state file, read one after the other, so that at most one is in memory as a whole."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: shard_like(file.get_tensor(name), leaf) for name, leaf in wanted.items()}
    except (OSError, SafetensorError, RuntimeError, ValueError) as cause:
        raise DamagedError(not_as_stated(path, cause)) from cause


def shard_like(stored: Tensor, like: Tensor) -> Tensor:
    """Return a whole tensor in the layout of `like`: on its device or, for a DTensor, this rank's shard."""
    if not isinstance(like, DTensor):
        return restore_tensor(stored, like).clone()  # the tensor that was read may be a map of the file itself
    whole = stored.view(like.dtype).reshape(like.shape).to(like.device)
    part = distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
    return part.clone()  # a shard may be a view, which would keep the whole in memory

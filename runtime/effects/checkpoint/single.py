"""Whole-run checkpoints: the complete state of a run, in one folder that appears complete or not at all.

    RUN/checkpoints/step_000123/state.safetensors   every tensor leaf, under its dotted name
    RUN/checkpoints/step_000123/manifest.json       the leaves' types, the machine's state, the environment, the user's metadata
    RUN/checkpoints/latest                          the name of the newest, for people and other programs

A folder is written under a temporary name, synced, renamed, and only then are older ones removed. A step saved twice (a run
that went back) gets a second folder, step_000123-2: nothing is ever overwritten, and the manifest's `sequence` orders the two.
"""

import hashlib
import platform
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import safetensors.torch
import torch
import torch.utils._pytree as pytree
from attrs import frozen
from safetensors import SafetensorError
from torch import Tensor

from ....core.errors import CheckpointError, ChoiceError, PurestepError, TrustError, message
from ....core.tree import leaf_names, leaves
from ...machine.json_codec import TAG, Json, decode, encode, short
from ..folder import existing
from .atomic_files import DISK, Files
from .directory import free_name, make_temporary, prune, publish_folder, remove_remains, step_folders, unwritten
from .manifest import (
    MANIFEST,
    TENSORS,
    DamagedError,
    Manifest,
    damaged,
    describe,
    describe_leaves,
    leaves_by_name,
    manifest_bytes,
    same_leaves,
    tensor_bytes,
)

T = TypeVar("T")

CHUNK = 1 << 24
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
STORED = {*INTEGERS, *FLOATS}  # every other dtype is stored as bytes
_saving = threading.Lock()  # two saves of one process, from two of a driver's threads, run one after the other


@frozen
class Checkpoint(Generic[T]):
    """A loaded checkpoint: the values that were passed to `save`."""

    step: int
    tree: T
    machine: Any
    manifest: Manifest


@cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's architecture, and where the system says so maker, family and model.

    Libraries choose their kernels by these: two processors with the same instructions gave sums that differ in the last bit.

    >>> processor(Path("nowhere")) == platform.machine()
    True
    """
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        lines = []
    known = {name.strip(): value.strip() for name, _, value in reversed(lines)}  # the first processor's
    return " ".join(
        [platform.machine(), *(known[name] for name in ("vendor_id", "cpu family", "model") if name in known)]
    )


def environment() -> dict[str, Any]:
    """Return the facts besides a run's state that affect its exact numbers, as far as they can be measured here."""
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each fact that changed: a run resumed under it need not have the bits of one that never stopped.

    >>> differences({"threads": 1, "torch": "2.13.0"}, {"threads": 2, "torch": "2.13.0"})
    ('threads: 1 when saved, 2 now',)
    """
    both = [(name, saved.get(name, "unknown"), now.get(name, "unknown")) for name in sorted({*saved, *now})]
    return tuple(f"{name}: {before} when saved, {after} now" for name, before, after in both if before != after)


def save(
    run: Path,
    step: int,
    tree: Any,
    *,
    machine: Any = (),
    facts: Mapping[str, Any] = {},
    metadata: Mapping[str, Any] = {},
    keep: int = 3,
    files: Files = DISK,
) -> Path:
    """Write a checkpoint of `tree` (tensors of any dtype and stride) and of `machine` (a JSON value); return its folder.

    `facts` are added to the environment: the lowering, the compiled artefact's key. Afterwards only the `keep` newest are kept.

    Raises: CheckpointError when it cannot be written (older checkpoints are then untouched), or when a leaf is no dense tensor;
    StructureError for a machine or metadata without JSON form.
    """
    if keep < 1 or step < 0:
        remedy = "keep at least the newest, and count steps from 0"
        raise ChoiceError(message("save: (step, keep)", got=(step, keep), wanted="step >= 0, keep >= 1", remedy=remedy))
    tensors = leaves_by_name("save", tree)
    data = safetensors.torch.save({name: storable(leaf) for name, leaf in tensors.items()})
    with _saving:
        root = run / "checkpoints"
        manifest = Manifest(
            step=step,
            sequence=1 + max((sequence for sequence, _ in _ordered(root, ignore)), default=0),
            leaves=describe_leaves(tensors),
            sha256=hashlib.sha256(data).hexdigest(),
            machine=encode(machine, "machine"),
            environment={**environment(), **facts},
            metadata=metadata,
        )
        text = manifest_bytes(manifest)
        try:
            return _write(root, free_name(root, step), data, text, keep, files)
        except OSError as cause:
            raise CheckpointError(unwritten(root, len(data) + len(text), cause)) from cause


def storable(leaf: Tensor) -> Tensor:
    """Return a copy on the CPU that shares no storage, of a dtype that safetensors stores, or as bytes."""
    copy = leaf.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copy if copy.dtype in STORED else copy.reshape(-1).view(torch.uint8)


def _write(root: Path, name: str, data: bytes, text: bytes, keep: int, files: Files) -> Path:
    try:
        partial = make_temporary(root, name, files)
        for start in range(0, len(data), CHUNK):
            files.append(partial / TENSORS, data[start : start + CHUNK])
        files.sync(partial / TENSORS)
        files.append(partial / MANIFEST, text)
        files.sync(partial / MANIFEST)
        folder = publish_folder(root, name, files)
        prune(root, [old for _, old in _ordered(root, ignore)[keep:]], files)
    except BaseException:
        with suppress(OSError):
            remove_remains(root, files)
        raise
    return folder


def _ordered(root: Path, refuse: Callable[[CheckpointError], None]) -> list[tuple[int, Path]]:
    """Return (sequence, folder) of each checkpoint with a good manifest, newest first; `refuse` gets other errors."""
    found = []
    for folder in step_folders(root):
        try:
            found.append((describe(folder).sequence, folder))
        except CheckpointError as fault:
            refuse(fault)
    return sorted(found, reverse=True)


def ignore(fault: CheckpointError) -> None:
    """Ignore a checkpoint that cannot be read: a save does not depend on older ones."""


def to_stderr(text: str) -> None:
    """Print a line on standard error, so that it does not mix with a program's output."""
    print(text, file=sys.stderr)


def latest(run: Path, *, report: Callable[[str], None] = to_stderr, without: Collection[Path] = ()) -> Path | None:
    """Return the folder of a run's newest good checkpoint except those in `without`; None when none was ever finished.

    A damaged one is named in a line passed to `report`, and the one before it is tried.
    Raises: CheckpointError when there are some and none is good, or when one has an unknown schema: it may be the newest.
    """
    root, faults = run / "checkpoints", 0

    def refuse(fault: CheckpointError) -> None:
        nonlocal faults
        if not isinstance(fault, DamagedError):
            raise fault
        faults += 1
        report(str(fault))

    for _, folder in _ordered(root, refuse):
        if folder in without:
            faults += 1
            continue
        try:
            tensor_bytes(folder, describe(folder))
            return folder
        except DamagedError as fault:
            refuse(fault)
    if faults:
        raise CheckpointError(all_damaged(root, faults))
    return None


def all_damaged(root: Path, number: int) -> str:
    """Return the error text for a run without a good checkpoint."""
    got, remedy = f"{number} checkpoints, all damaged", "move them away to begin anew"
    return message(f"latest: {root}", got=got, wanted="a good one", remedy=remedy)


Find = Callable[[Callable[[str], None], Collection[Path]], Path | None]  # as `latest`: (report, without)


def newest_usable(find: Find, use: Callable[[Path], T], *, report: Callable[[str], None] = to_stderr) -> T | None:
    """Return the result of `use` on the newest checkpoint that it can use; None when none was ever finished.

    A checkpoint whose damage shows only in `use` is named in a line passed to `report`, and the one before it is tried. If none
    can be used, the exception that `use` raised at the newest of them is raised, unless all are damaged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     for step in (1, 2):
    ...         _ = save(Path(run), step, {}, machine=step)
    ...     def find(report, without):
    ...         return latest(Path(run), report=report, without=without)
    ...     newest_usable(find, lambda path: 1 // (2 - int(path.name[-1])), report=lambda text: print("unusable" in text))
    True
    1
    """
    said: set[str] = set()
    unusable: dict[Path, Exception] = {}

    def report_once(text: str) -> None:
        if text not in said:
            said.add(text)
            report(text)

    while True:
        try:
            where = find(report_once, unusable)
        except CheckpointError as none_left:
            refused = [fault for fault in unusable.values() if not isinstance(fault, DamagedError)]
            raise refused[0] if refused else none_left from None
        if where is None:
            return None
        try:
            found = use(where)
        except TrustError:
            raise
        except Exception as fault:
            unusable[where] = fault
            if isinstance(fault, DamagedError):
                report_once(str(fault))
            continue
        for path, cause in unusable.items():
            if not isinstance(cause, DamagedError):
                report_once(_unusable(path, cause))
        return found


def use_newest(
    run: Path,
    use: Callable[[Path], T],
    *,
    remedy: str,
    find: Callable[..., Path | None] = latest,
    report: Callable[[str], None] = to_stderr,
) -> T:
    """Return `use(where)` at the newest usable checkpoint of a run. Raises: CheckpointError, and any exception of `use`.

    `find` has the signature of `latest`; `remedy` ends the line of the error if the run has no checkpoint.
    """
    existing(run)
    found = newest_usable(lambda report, without: find(run, report=report, without=without), use, report=report)
    if found is None:
        raise CheckpointError(message(str(run), got="without a checkpoint", wanted="a run with one", remedy=remedy))
    return found


def _unusable(path: Path, fault: Exception) -> str:
    said = (
        " ".join(str(fault).split())
        if isinstance(fault, PurestepError)
        else f"{type(fault).__name__}: {short(str(fault))}"
    )
    return damaged(path / MANIFEST, f"unusable ({said})", "a checkpoint of this run")


def read_checkpoint(path: Path, like: T, *, classes: Iterable[type] = ()) -> Checkpoint[T]:
    """Return the checkpoint in folder `path`, as a tree with the structure, shapes, dtypes and devices of `like`.

    `classes` are those of the machine's state. Raises: DamagedError; CheckpointError for another schema or architecture,
    naming the first leaf that differs.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as run:
    ...     path = save(Path(run), 7, {"w": torch.ones(2)}, machine=(3, "going"))
    ...     checkpoint = read_checkpoint(path, {"w": torch.zeros(2)})
    >>> checkpoint.step, checkpoint.tree, checkpoint.machine
    (7, {'w': tensor([1., 1.])}, (3, 'going'))
    """
    manifest = describe(path)
    wanted = leaves_by_name("load", like)
    same_leaves(f"load: {path.name}", manifest.leaves, describe_leaves(wanted))
    machine = machine_of(path, manifest.machine, classes)
    data = tensor_bytes(path, manifest)
    try:
        stored = safetensors.torch.load(data)
        tensors = [restore_tensor(stored[name], leaf) for name, leaf in wanted.items()]
    except (SafetensorError, KeyError, RuntimeError, ValueError) as cause:
        raise DamagedError(not_as_stated(path / TENSORS, cause)) from cause
    return Checkpoint(
        step=manifest.step,
        tree=pytree.tree_unflatten(tensors, pytree.tree_structure(like)),
        machine=machine,
        manifest=manifest,
    )


def machine_of(path: Path, machine: Json, classes: Iterable[type]) -> Any:
    """Return the machine's state that the manifest in folder `path` holds. Raises: DamagedError; CheckpointError without
    classes for it, as for the checkpoint of a run.
    """
    table = tuple(classes)
    if not table and isinstance(machine, dict) and TAG in machine:
        got, wanted = f"one with the state of a {short(machine[TAG])}", "a checkpoint of your own, or classes for it"
        remedy = f"purestep.load({str(path.parent.parent)!r}) opens a run's policy"
        raise CheckpointError(message(str(path), got=got, wanted=wanted, remedy=remedy))
    try:
        return decode(machine, table, "machine")
    except (PurestepError, TypeError, ValueError) as cause:
        got, wanted = (
            f"with a state that is none ({' '.join(str(cause).split())})",
            f"one of {[one.__name__ for one in table]}",
        )
        raise DamagedError(damaged(path / MANIFEST, got, wanted)) from cause


def not_as_stated(path: Path, cause: Exception) -> str:
    """Return the error text for a tensor file with the right hash and without the tensors of the manifest."""
    said = short(next(iter(str(cause).splitlines()), ""))
    return damaged(path, f"without the manifest's tensors ({type(cause).__name__}: {said})", "its leaves")


def check_finite(path: Path, tree: Any, name: str) -> None:
    """Refuse parameters with NaN or infinite numbers: no run saves such. Raises: DamagedError, naming the first leaf.

    Leaves that are sharded over ranks are not checked, because all ranks would have to do that together.

    >>> check_finite(Path("step_000001"), {"w": torch.ones(2)}, "params")
    """
    for leaf_name, leaf in zip(leaf_names(tree), leaves(tree), strict=True):
        if type(leaf) is Tensor and not bool(leaf.isfinite().all()):
            where = f"with NaN or infinite numbers in {'.'.join(filter(None, (name, leaf_name)))}"
            raise DamagedError(damaged(path / TENSORS, where, "finite parameters"))


def restore_tensor(stored: Tensor, like: Tensor) -> Tensor:
    """Return the tensor that `storable` stored, on the device of `like` and with its shape and dtype."""
    return stored.view(like.dtype).reshape(like.shape).to(like.device)

"""Laws of checkpoints (C1 to C3): no data is lost, a crash leaves the old or the new one, another schema is refused."""

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core.errors import CheckpointError
from ...core.record import record
from ...core.tree import leaf_names, tree_map
from ...runtime.effects.checkpoint import single
from ...runtime.effects.checkpoint.atomic_files import Files
from ..framework.compare import bits, require, same
from ..framework.crash import Crash, CrashingFiles
from ..framework.law import Broken, Law, Mutant, Seen, Suite, always
from ..strategies.values import flags, integers, raw

# --- mutants ---
# Common mistakes in checkpoint stores: each wraps a correct one.


def through_float16(store: Any) -> Any:
    """Store bfloat16 as float16, and -0.0 as 0.0."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        narrowed = tree_map(lambda x: x.half().to(x.dtype) if x.dtype == torch.bfloat16 else x, tree)
        return store.save(run, step, tree_map(_not_negative_zero, narrowed), files)

    return attrs.evolve(store, save=save)


def _not_negative_zero(x: torch.Tensor) -> torch.Tensor:
    return x + 0 if x.dtype == torch.bfloat16 else x


def loses_strides(store: Any) -> Any:
    """Write a view's memory in storage order."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        return store.save(run, step, tree_map(_as_it_lies, tree), files)

    return attrs.evolve(store, save=save)


def _as_it_lies(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided(x.shape, torch.empty(x.shape).stride()) if x.numel() and 0 not in x.stride() else x


def largest_step(store: Any) -> Any:
    """Take the checkpoint with the largest step as the newest: a save of an earlier step has no effect."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        kept = run / "kept.txt"
        best = int(kept.read_text()) if kept.exists() else -1
        if step < best:
            return None
        made = store.save(run, step, tree, files)
        kept.write_text(str(step))
        return made

    return attrs.evolve(store, save=save)


def removes_first(store: Any) -> Any:
    """Remove the old checkpoints before the new one is written."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        for folder in sorted((run / "checkpoints").glob("step_*")):
            files.remove(folder)
        return store.save(run, step, tree, files)

    return attrs.evolve(store, save=save)


def never_syncs(store: Any) -> Any:
    """Rename files without a sync, when their data may not be on the disk yet."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        return store.save(run, step, tree, attrs.evolve(files, sync=lambda path: None))

    return attrs.evolve(store, save=save)


def makes_fit(store: Any) -> Any:
    """Return `like` for a checkpoint of another schema, instead of refusing it."""

    def newest(run: Path, like: Any) -> Any:
        folder = single.latest(run, report=lambda fault: None)
        if folder is None:
            return None
        try:
            return single.load(folder, like).tree
        except CheckpointError:
            return like

    return attrs.evolve(store, newest=newest)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "never syncs a file before it renames": never_syncs,
    "writes views in the order in which their memory lies": loses_strides,
}


# --- laws ---


SOURCE = "design: a whole-run checkpoint is one value, and resumed is never stopped"
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool)
LAYOUTS = ("plain", "empty", "transposed", "strided", "scalar", "expanded", "empty")


@frozen
class TreeStore:
    """Functions that save and load trees: `save(run, step, tree, files)`, `newest(run, like)` (None if there is none)."""

    save: Callable[[Path, int, Any, Files], Any]
    newest: Callable[[Path, Any], Any]


def _newest(run: Path, like: Any) -> Any:
    folder = single.latest(run, report=lambda fault: None)
    return None if folder is None else single.load(folder, like).tree


def own_store() -> TreeStore:
    """Return the store of `runtime.effects.checkpoint.single`, which keeps one checkpoint."""
    return TreeStore(
        save=lambda run, step, tree, files: single.save(run, step, tree, keep=1, files=files), newest=_newest
    )


@record
class Inner:
    """A record inside the saved tree."""

    weight: Tensor
    shared: Tensor  # shares its storage with `weight`


@st.composite
def _leaf(draw: DrawFn) -> Tensor:
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))
    whole = draw(raw((2, 4), dtype)) if dtype != torch.bool else draw(flags((2, 4)))
    views = {
        "plain": whole,
        "transposed": whole.T,
        "strided": whole[:, ::2],
        "empty": whole[:0],
        "scalar": whole[0, 0],
        "expanded": whole[:1].expand(3, 4),
    }
    return views[layout]


@st.composite
def trees(draw: DrawFn) -> dict[str, Any]:
    """Trees of all dtypes and layouts, with shared storage and an absent part."""
    weight = draw(_leaf())
    return {
        "leaf": draw(_leaf()),
        "part": Inner(weight=weight, shared=weight),
        "none": (),
        "count": draw(integers((), 0, 9)),
    }


def checkpoint_laws() -> Suite:
    """Return the laws of a Store."""
    return Suite("checkpoint_laws", (_nothing_lost(), _newest_wins(), _crash_safe(), _other_shape_refused()))


def _law(
    name: str,
    claim: str,
    mutant: Mutant,
    inputs: SearchStrategy[Any],
    check: Callable[[TreeStore, Any, Seen, Path], None],
    *needs: str,
) -> Law:
    def in_folder(store: TreeStore, drawn: Any, seen: Seen) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(store, drawn, seen, Path(folder))

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(inputs),
        check=in_folder,
        mutant=mutant,
        needs=needs,
        most=200,
    )


def _as_bits(tree: Any) -> Any:
    return tree_map(bits, tree)


def _blank(tree: Any) -> Any:
    return tree_map(torch.zeros_like, tree)


def _nothing_lost() -> Law:
    def check(store: TreeStore, tree: Any, seen: Seen, run: Path) -> None:
        for leaf in (tree["leaf"], tree["part"].weight):
            seen("bfloat16", leaf.dtype == torch.bfloat16)
            seen("a leaf that is not contiguous", not leaf.is_contiguous())
            seen("an empty leaf", leaf.numel() == 0)
        store.save(run, 1, tree, CrashingFiles(-1).files)
        same("what was loaded", _as_bits(store.newest(run, _blank(tree))), _as_bits(tree))

    return _law(
        "nothing_is_lost",
        "load(save(x)) = x, bit for bit: every dtype and layout, empty and shared leaves.",
        Mutant("stores bfloat16 as float16", through_float16),
        trees(),
        check,
        "bfloat16",
        "a leaf that is not contiguous",
        "an empty leaf",
    )


def _small(value: int) -> dict[str, Tensor]:
    return {"value": torch.tensor(value), "block": torch.full((8,), float(value))}


def _newest_wins() -> Law:
    def check(store: TreeStore, steps: list[int], seen: Seen, run: Path) -> None:
        seen("a step that goes back", any(b <= a for a, b in itertools.pairwise(steps)))
        for i, step in enumerate(steps):
            store.save(run, step, _small(i), CrashingFiles(-1).files)
            same(f"the newest after save {i + 1}", store.newest(run, _small(-1)), _small(i))

    return _law(
        "newest_is_last_saved",
        "The newest checkpoint is the last one saved, also when a run went back to an earlier step.",
        Mutant("takes the largest step for the newest", largest_step),
        st.lists(st.integers(0, 3), min_size=1, max_size=4),
        check,
        "a step that goes back",
    )


@attrs.frozen
class CrashAt:
    """One checkpoint is complete; the save of the second is interrupted after `operations` file operations."""

    operations: int
    torn: bool  # half of the interrupted append is written
    forgets: bool  # unsynced data is lost


def _crash_safe() -> Law:
    def check(store: TreeStore, crash: CrashAt, seen: Seen, run: Path) -> None:
        store.save(run, 1, _small(1), CrashingFiles(-1).files)
        fragile = CrashingFiles(crash.operations, torn=crash.torn, forgets=crash.forgets)
        finished = True
        try:
            store.save(run, 2, _small(2), fragile.files)
        except (Crash, CheckpointError):
            finished = False
        fragile.power_fails()
        seen("a crash", not finished)
        seen("a finished save", finished)
        got = store.newest(run, _small(-1))
        require(got is not None, f"after {crash.operations} operations there is no checkpoint at all")
        if not finished and int(got["value"]) == 1:
            same("the old checkpoint", got, _small(1))
        else:
            same("the new checkpoint" if finished else "the checkpoint, old or new", got, _small(2))

    inputs = st.builds(CrashAt, operations=st.integers(0, 20), torn=st.booleans(), forgets=st.booleans())
    return _law(
        "crash_leaves_old_or_new",
        "After any prefix of the file operations, the newest checkpoint is the old one or the new one, whole.",
        Mutant("removes the old checkpoint before it writes the new one", removes_first),
        inputs,
        check,
        "a crash",
        "a finished save",
    )


def _other_shape_refused() -> Law:
    def check(store: TreeStore, change: str, seen: Seen, run: Path) -> None:
        store.save(run, 1, _small(1), CrashingFiles(-1).files)
        like: dict[str, Tensor] = _small(0)
        changed = {
            "shape": {"value": like["value"], "block": torch.zeros(9)},
            "dtype": {"value": like["value"], "block": torch.zeros(8, dtype=torch.float64)},
            "missing": {"value": like["value"]},
            "extra": {**like, "block_2": torch.zeros(1)},
        }[change]
        try:
            store.newest(run, changed)
        except CheckpointError as error:
            name = "block_2" if change == "extra" else "block"
            require(name in str(error), f"the refusal does not name {name}: {error}")
            return
        raise Broken(f"a checkpoint of {leaf_names(like)} was taken for one of another {change}")

    return _law(
        "another_schema_is_refused",
        "A checkpoint of other leaves, shapes or dtypes is refused, and the refusal names the leaf.",
        Mutant("converts dtypes and shapes to fit", makes_fit),
        st.sampled_from(("shape", "dtype", "missing", "extra")),
        check,
    )

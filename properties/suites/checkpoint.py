"""Laws of checkpoints (C1 to C3): no data is lost, a crash leaves the old or the new one, another schema is refused."""

import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy
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
from ..framework.compare import bits_of, require, same
from ..framework.crash import Crash, CrashingFiles
from ..framework.law import Broken, Law, Mutant, Seen, Suite, always, instead
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
            return single.read_checkpoint(folder, like).tree
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
    return None if folder is None else single.read_checkpoint(folder, like).tree


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
    return tree_map(bits_of, tree)


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


# --- whole trainers ---


class SmallTrainer:
    """A small trainer: a linear model, Adam, a decaying rate, and batches from the global generator."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.model = torch.nn.Linear(2, 1)
        for param in self.model.parameters():
            torch.nn.init.uniform_(param, -1.0, 1.0, generator=generator)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.steps = 0
        torch.manual_seed(seed)

    def train(self, steps: int) -> None:
        """Take so many steps."""
        for _ in range(steps):
            x = torch.randn(4, 2)
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 / (1 + self.steps)
            loss = (self.model(x)[:, 0] - x.sum(-1)).square().mean()
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            self.steps += 1

    def save(self, path: Path) -> None:
        """Write all of it."""
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**parts, "steps": self.steps, "generator": torch.get_rng_state()}, path)

    def load(self, path: Path) -> None:
        """Read all of it."""
        saved = torch.load(path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.steps = saved["steps"]
        torch.set_rng_state(saved["generator"])


class ForgetsOptimizer(SmallTrainer):
    """Begin with new moments."""

    def load(self, path: Path) -> None:
        super().load(path)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)


class ForgetsCount(SmallTrainer):
    """Begin the schedule again."""

    def load(self, path: Path) -> None:
        super().load(path)
        self.steps = 0


class ForgetsGenerator(SmallTrainer):
    """Draw other batches."""

    def load(self, path: Path) -> None:
        before = torch.get_rng_state()
        super().load(path)
        torch.set_rng_state(before)


class RoundsWeights(SmallTrainer):
    """Store weights in bfloat16."""

    def load(self, path: Path) -> None:
        super().load(path)
        self.model.load_state_dict({name: w.bfloat16().float() for name, w in self.model.state_dict().items()})


class DrawsInSave(SmallTrainer):
    """Draw a number for a file name."""

    def save(self, path: Path) -> None:
        super().save(path)
        torch.rand(1)


class KeepsFirst(SmallTrainer):
    """Do not write over a file."""

    def save(self, path: Path) -> None:
        if not path.exists():
            super().save(path)


RESUME: dict[str, Callable[[Any], Any]] = {
    "begins the schedule again": instead(ForgetsCount),
    "draws other batches": instead(ForgetsGenerator),
}


@frozen
class InterruptedRun:
    """Seeds of two trainers, and steps before and after a save."""

    seed: int
    other: int
    before: int
    after: int


def model_tensors(trainer: Any) -> Any:
    """Return the tensors of a trainer's model: its `model`, `policy`, `network` or itself, by `state_dict` or as it is."""
    found = next(
        (getattr(trainer, name) for name in ("model", "policy", "network", "params") if hasattr(trainer, name)), trainer
    )
    state = getattr(found, "state_dict", None)
    held: Any = state() if callable(state) else found
    return dict(held) if callable(state) else held


def resume_laws(*, observe: Callable[[Any], Any] = model_tensors) -> Suite:
    """Return the laws of trainers: `make(seed)` returns one with `train(steps)`, `save(path)` and `load(path)`.

    `observe(trainer)` returns what is compared, a tree of tensors, with equal bits. The global generators of torch, numpy and
    random are seeded before each run and again before each load: a trainer that draws from them saves their states.

    >>> from purestep.properties import verify
    >>> verify(resume_laws(), ForgetsOptimizer)["resumed_is_uninterrupted"].outcome
    'broken'
    """
    return Suite("resume_laws", (_resumed(observe), _loaded(observe), _undisturbed(observe), _last_save(observe)))


def _interrupted() -> SearchStrategy[InterruptedRun]:
    few = st.sampled_from((2, 3, 1))
    return st.builds(InterruptedRun, seed=st.integers(0, 9), other=st.integers(10, 19), before=few, after=few)


def _begun(make: Callable[[int], Any], seed: int) -> Any:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    return make(seed)


def _resume_law(
    name: str,
    claim: str,
    mutant: tuple[str, Any],
    check: Callable[[Callable[[int], Any], InterruptedRun, Path], None],
) -> Law:
    def in_folder(make: Callable[[int], Any], drawn: InterruptedRun, seen: Seen) -> None:
        numbers, before = random.getstate(), numpy.random.get_state()
        try:
            with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
                check(make, drawn, Path(folder) / "saved")
        finally:
            random.setstate(numbers)
            numpy.random.set_state(before)

    source = "NeMo-RL 3171, brax 655, ms-swift 9935: state that a resumed run lacked"
    made = Mutant(mutant[0], instead(mutant[1]))
    inputs = always(_interrupted())
    return Law(name=name, claim=claim, source=source, inputs=inputs, check=in_folder, mutant=made, most=20)


def _copied(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, tree)


def _resumed(observe: Callable[[Any], Any]) -> Law:
    def check(make: Callable[[int], Any], drawn: InterruptedRun, path: Path) -> None:
        whole = _begun(make, drawn.seed)
        whole.train(drawn.before + drawn.after)
        wanted = _copied(observe(whole))
        first = _begun(make, drawn.seed)
        first.train(drawn.before)
        first.save(path)
        second = _begun(make, drawn.other)
        second.load(path)
        second.train(drawn.after)
        same(f"after {drawn.before} steps, a load and {drawn.after} more", _copied(observe(second)), wanted)

    claim = "A trainer that was saved, made anew, loaded and trained on has the bits of one never stopped."
    return _resume_law("resumed_is_uninterrupted", claim, ("begins with new moments", ForgetsOptimizer), check)


def _loaded(observe: Callable[[Any], Any]) -> Law:
    def check(make: Callable[[int], Any], drawn: InterruptedRun, path: Path) -> None:
        first = _begun(make, drawn.seed)
        first.train(drawn.before)
        first.save(path)
        wanted = _copied(observe(first))
        second = _begun(make, drawn.other)
        second.load(path)
        same("after a load", _copied(observe(second)), wanted)

    claim = "A load gives what was saved, bit for bit."
    return _resume_law("load_gives_what_was_saved", claim, ("stores weights in bfloat16", RoundsWeights), check)


def _undisturbed(observe: Callable[[Any], Any]) -> Law:
    def check(make: Callable[[int], Any], drawn: InterruptedRun, path: Path) -> None:
        runs = []
        for saves in (False, True):
            trainer = _begun(make, drawn.seed)
            trainer.train(drawn.before)
            if saves:
                trainer.save(path)
            trainer.train(drawn.after)
            runs.append(_copied(observe(trainer)))
        same("a run with a save against one without", runs[1], runs[0])

    claim = "A save does not change the run."
    return _resume_law("save_changes_nothing", claim, ("draws a number in save", DrawsInSave), check)


def _last_save(observe: Callable[[Any], Any]) -> Law:
    def check(make: Callable[[int], Any], drawn: InterruptedRun, path: Path) -> None:
        first = _begun(make, drawn.seed)
        first.train(drawn.before)
        first.save(path)
        first.train(drawn.after)
        first.save(path)
        wanted = _copied(observe(first))
        second = _begun(make, drawn.other)
        second.load(path)
        same("after a load of a path saved twice", _copied(observe(second)), wanted)

    claim = "A second save to the same path replaces the first."
    return _resume_law("last_save_counts", claim, ("does not write over a file", KeepsFirst), check)

"""Stores as people get them wrong, each an edit around a right one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import torch

from ...core.errors import CheckpointError
from ...core.tree import tree_map
from ...runtime.effects import checkpoint
from ...runtime.effects.files import Files


def through_float16(store: Any) -> Any:
    """Knows one half-precision format only."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        narrowed = tree_map(lambda x: x.half().to(x.dtype) if x.dtype == torch.bfloat16 else x, tree)
        return store.save(run, step, tree_map(_not_negative_zero, narrowed), files)

    return attrs.evolve(store, save=save)


def _not_negative_zero(x: torch.Tensor) -> torch.Tensor:
    return x + 0 if x.dtype == torch.bfloat16 else x


def loses_strides(store: Any) -> Any:
    """Writes a view's memory in the order in which it lies."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        return store.save(run, step, tree_map(_as_it_lies, tree), files)

    return attrs.evolve(store, save=save)


def _as_it_lies(x: torch.Tensor) -> torch.Tensor:
    return x.as_strided(x.shape, torch.empty(x.shape).stride()) if x.numel() and 0 not in x.stride() else x


def largest_step(store: Any) -> Any:
    """Sorts folders by the number in their name."""

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
    """Makes room before it needs it."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        for folder in sorted((run / "checkpoints").glob("step_*")):
            files.remove(folder)
        return store.save(run, step, tree, files)

    return attrs.evolve(store, save=save)


def never_syncs(store: Any) -> Any:
    """Trusts the disk: renames what may not be there yet."""

    def save(run: Path, step: int, tree: Any, files: Files) -> Any:
        return store.save(run, step, tree, attrs.evolve(files, sync=lambda path: None))

    return attrs.evolve(store, save=save)


def makes_fit(store: Any) -> Any:
    """Loads what has the name, as whatever is wanted."""

    def newest(run: Path, like: Any) -> Any:
        folder = checkpoint.latest(run, report=lambda fault: None)
        if folder is None:
            return None
        try:
            return checkpoint.load(folder, like).tree
        except CheckpointError:
            return like

    return attrs.evolve(store, newest=newest)


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "never syncs a file before it renames": never_syncs,
    "writes views in the order in which their memory lies": loses_strides,
}

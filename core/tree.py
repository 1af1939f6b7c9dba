"""Trees of tensors: the few operations steps need on records, dicts and tuples alike."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .errors import StructureError, message

T = TypeVar("T")


def tree_map(function: Callable[..., Any], tree: T, *rest: T) -> T:
    """Applies `function` leaf by leaf to trees of one structure."""
    mapped: T = pytree.tree_map(function, tree, *rest)
    return mapped


def leaves(tree: Any) -> list[Any]:
    """The leaves, in the tree's own order."""
    return pytree.tree_leaves(tree)


def leaf_names(tree: Any) -> list[str]:
    """A dotted name for each leaf.

    >>> leaf_names({"a": torch.ones(1), "b": (torch.ones(1), torch.ones(1))})
    ['a', 'b.0', 'b.1']
    """
    return [".".join(_word(key) for key in path) for path, _ in pytree.tree_flatten_with_path(tree)[0]]


def _word(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def same_structure(where: str, got: Any, wanted: Any) -> None:
    """Raises StructureError, naming the first difference, unless both trees have one structure, shapes and dtypes."""
    got_leaves, wanted_leaves = leaves(got), leaves(wanted)
    if pytree.tree_structure(got) != pytree.tree_structure(wanted):
        differing = sorted(set(leaf_names(got)) ^ set(leaf_names(wanted)))
        detail = f"leaves {differing[:4]} differ" if differing else "containers or static fields differ"
        raise StructureError(message(where, got="another structure", wanted="the one it had", remedy=detail))
    for name, a, b in zip(leaf_names(got), got_leaves, wanted_leaves, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise StructureError(
                message(
                    f"{where} at {name or 'the leaf'}",
                    got=f"{list(a.shape)} {a.dtype}",
                    wanted=f"{list(b.shape)} {b.dtype}",
                    remedy="a step must keep every shape and dtype",
                )
            )


def all_finite(tree: Any) -> Tensor:
    """A bool tensor [] that is true when no floating-point leaf holds NaN or infinity.

    >>> bool(all_finite({"a": torch.ones(2), "b": torch.tensor(3)}))
    True
    """
    checks = [torch.isfinite(leaf).all() for leaf in leaves(tree) if leaf.is_floating_point()]
    return torch.stack(checks).all() if checks else torch.ones((), dtype=torch.bool)


def clone(tree: T) -> T:
    """A copy of every leaf, sharing no storage with the original."""
    return tree_map(torch.clone, tree)


def size(tree: Any) -> int:
    """How many numbers the tree holds."""
    return sum(leaf.numel() for leaf in leaves(tree))

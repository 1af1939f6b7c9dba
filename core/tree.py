"""Operations on trees of tensors: records, dicts and tuples."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .errors import StructureError, message

T = TypeVar("T")


def tree_map(function: Callable[..., Any], tree: T, *rest: T) -> T:
    """Apply `function` leaf by leaf to trees of one structure.

    >>> tree_map(torch.add, {"a": torch.tensor(1)}, {"a": torch.tensor(2)})
    {'a': tensor(3)}
    """
    mapped: T = pytree.tree_map(function, tree, *rest)
    return mapped


def leaves(tree: Any) -> list[Any]:
    """Return the leaves, in the tree's own order.

    >>> leaves({"b": torch.tensor(1), "a": ((), torch.tensor(2))})
    [tensor(1), tensor(2)]
    """
    return pytree.tree_leaves(tree)


def leaf_paths(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[str, ...]]:
    """Return the path to each leaf, as words: fields, keys, positions.

    >>> leaf_paths({"a": torch.ones(1), "b": (torch.ones(1), torch.ones(1))})
    [('a',), ('b', '0'), ('b', '1')]
    """
    return [tuple(_word(key) for key in path) for path, _ in pytree.tree_flatten_with_path(tree, is_leaf)[0]]


def leaf_names(tree: Any) -> list[str]:
    """Return a dotted name for each leaf.

    >>> leaf_names({"a": torch.ones(1), "b": (torch.ones(1), torch.ones(1))})
    ['a', 'b.0', 'b.1']
    """
    return [".".join(path) for path in leaf_paths(tree)]


def _word(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def same_structure(where: str, got: Any, wanted: Any) -> None:
    """Raise StructureError, with the first difference, unless both trees have the same structure, shapes and dtypes.

    >>> same_structure("step: state", {"n": torch.tensor(1.0)}, {"n": torch.tensor(1)})
    Traceback (most recent call last):
    purestep.core.errors.StructureError: step: state.n is [] torch.float32, wanted [] torch.int64; keep shape and dtype
    """
    if pytree.tree_structure(got) != pytree.tree_structure(wanted):
        differing = sorted(set(leaf_names(got)) ^ set(leaf_names(wanted)))
        detail = (
            f"leaves {differing[:4]} differ" if differing else "containers, the order of keys or static fields differ"
        )
        raise StructureError(message(where, got="another structure", wanted="the one it had", remedy=detail))
    for i, (a, b) in enumerate(zip(leaves(got), leaves(wanted), strict=True)):
        if not (isinstance(a, Tensor) and isinstance(b, Tensor)) or (a.shape, a.dtype) != (b.shape, b.dtype):
            remedy = "keep shape and dtype" if isinstance(a, Tensor) else "make it a tensor"
            at = ".".join((where, *leaf_paths(got)[i]))
            raise StructureError(message(at, got=_describe(a), wanted=_describe(b, "a tensor"), remedy=remedy))


def _describe(leaf: Any, otherwise: str = "") -> str:
    if isinstance(leaf, Tensor):
        return f"{list(leaf.shape)} {leaf.dtype}"
    return otherwise or type(leaf).__name__


def all_finite(tree: Any) -> Tensor:
    """Return a bool tensor [] that is true if no floating-point leaf has NaN or infinity.

    >>> bool(all_finite({"a": torch.ones(2), "b": torch.tensor(3)}))
    True
    """
    checks = [torch.isfinite(leaf).all() for leaf in leaves(tree) if leaf.is_floating_point()]
    return torch.stack(checks).all() if checks else torch.ones((), dtype=torch.bool)


def clone(tree: T) -> T:
    """Return a copy of every leaf, without shared storage.

    >>> old = torch.zeros(2)
    >>> new = clone(old)
    >>> torch.equal(new, old), new.data_ptr() == old.data_ptr()
    (True, False)
    """
    return tree_map(torch.clone, tree)


def to_device(tree: T, device: torch.device | str) -> T:
    """Return the tree with its tensors on `device`; those that are there already are not copied.

    >>> here = {"weight": torch.ones(2)}
    >>> to_device(here, "cpu")["weight"] is here["weight"], to_device(here, "meta")["weight"].device
    (True, device(type='meta'))
    """
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, tree)


def size(tree: Any) -> int:
    """Return the number of tensor elements in the tree.

    >>> size({"weight": torch.ones(2, 3), "bias": torch.ones(3)})
    9
    """
    return sum(leaf.numel() for leaf in leaves(tree))

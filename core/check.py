"""Checks that a record's tensors have the shapes and dtypes its class declares: made where a user's value enters."""

from collections.abc import Sequence
from typing import Any, TypeVar

import attrs
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .errors import DtypeError, ShapeError, StructureError, message
from .tree import leaf_paths

R = TypeVar("R")
Axes = tuple[int, ...]

KINDS: dict[str, tuple[torch.dtype, ...]] = {
    "float": (torch.float32, torch.float64, torch.bfloat16, torch.float16),
    "bool": (torch.bool,),
    "int": (torch.int64, torch.int32),
    "key": (torch.int64,),
    "": (),
}


def is_record(value: object) -> bool:
    """Return whether `value` is an instance of a class made by `record` (instances of subclasses are no pytrees: False).

    >>> is_record(torch.ones(1))
    False
    """
    return "__record_fields__" in vars(type(value))


def check(value: R, batch: Sequence[int] | None = None) -> R:
    """Return `value` if every field has the shape and dtype its class declares; `batch` fixes the leading axes.

    Trees inside it hold tensors only, and the leading axes of all fields begin with the record's own: a record [B] may hold
    a trajectory [B, T]. A named size is shared by the fields of one record, but not with records inside it.

    Raises: StructureError, DtypeError, ShapeError; for the first fault found, in one line.

    >>> check((1.0, 2.0))
    Traceback (most recent call last):
    purestep.core.errors.StructureError: check: value is tuple, wanted a record; pass one
    """
    if not is_record(value):
        raise StructureError(message("check: value", got=type(value).__name__, wanted="a record", remedy="pass one"))
    _check_record(type(value).__name__, value, {} if batch is None else {"*": tuple(batch)}, ())
    return value


def check_tensor(where: str, item: Any, lead: Axes) -> Tensor:
    """Return `item` if it is a tensor whose leading axes are `lead`. Raises: StructureError, ShapeError.

    >>> check_tensor("x", torch.ones(2, 3), (2,)).shape
    torch.Size([2, 3])
    """
    if not isinstance(item, Tensor):
        remedy = "use () for absent" if item is None else "wrap it in torch.tensor, or make the field static"
        raise StructureError(message(where, got=type(item).__name__, wanted="a tensor", remedy=remedy))
    if tuple(item.shape[: len(lead)]) != lead:
        remedy = "give it the record's leading axes"
        raise ShapeError(message(where, got=list(item.shape), wanted=_axes(lead), remedy=remedy))
    return item


def _check_record(where: str, value: Any, sizes: dict[str, Axes], owner: Axes) -> None:
    """Check a record; `sizes` maps the words of its shapes to the sizes found so far, `owner` is its owner's leading axes."""
    fields = [field for field in attrs.fields(type(value)) if not field.metadata.get("static")]
    for field in fields:
        if "shape" in field.metadata:
            _check_field(f"{where}.{field.name}", getattr(value, field.name), field.metadata, sizes, owner)
    lead = sizes.get("*", owner)
    for field in fields:
        if "shape" not in field.metadata:
            _check_tree(f"{where}.{field.name}", getattr(value, field.name), lead)


def _check_tree(where: str, item: Any, lead: Axes) -> None:
    parts, paths = pytree.tree_leaves(item, is_leaf=is_record), leaf_paths(item, is_leaf=is_record)
    for path, part in zip(paths, parts, strict=True):
        at = ".".join((where, *path))
        if is_record(part):
            _check_record(at, part, {}, lead)
        else:
            check_tensor(at, part, lead)


def _check_field(where: str, item: Any, declared: Any, sizes: dict[str, Axes], owner: Axes) -> None:
    if isinstance(item, tuple) and not item:
        return
    tensor = check_tensor(where, item, ())
    shape, kind = declared["shape"], declared["kind"]
    if kind and tensor.dtype not in KINDS[kind]:
        remedy = f"convert it, e.g. with .to({KINDS[kind][0]})"
        raise DtypeError(message(where, got=tensor.dtype, wanted=kind, remedy=remedy))
    known = {word: str(size[0]) if word != "*" else str(list(size)) for word, size in sizes.items()}
    if owner:
        known.setdefault("*", _axes(owner))
    if not _fits(tensor, shape, sizes, owner):
        where_known = ", ".join(f"{word} = {known[word]}" for word in shape.split() if word in known)
        wanted = f"[{shape}]" + (f" with {where_known}" if where_known else "")
        raise ShapeError(message(where, got=list(tensor.shape), wanted=wanted, remedy="reshape it or the other fields"))


def _fits(item: Tensor, shape: str, sizes: dict[str, Axes], owner: Axes) -> bool:
    """Return whether the tensor has the declared shape, and record the sizes of its words in `sizes`."""
    words = [word for word in shape.split() if word != "*"]
    lead = tuple(item.shape[: max(item.ndim - len(words), 0)])
    fits = item.ndim >= len(words)
    if shape.startswith("*"):
        fits = fits and sizes.setdefault("*", lead) == lead and lead[: len(owner)] == owner
    else:
        fits = fits and not lead
    for word, size in zip(words[::-1], tuple(item.shape)[::-1], strict=False):
        expected = (int(word),) if word.isdigit() else sizes.setdefault(word, (size,))
        fits = fits and expected == (size,)
    return fits


def _axes(lead: Axes) -> str:
    return f"[{', '.join([*map(str, lead), '...'])}]"

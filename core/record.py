"""Records: immutable values made of tensors, usable wherever PyTorch takes a tree of tensors.

A record is a frozen class of tensors and other records, registered as a pytree, so that vmap, grad, scan and a full-graph
compile take and give it. Constructors never validate (transformations build records of non-tensors); `check` does, where
a user's value enters. An absent field is `()`, never None.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, cast, dataclass_transform

import attrs
import torch
import torch.utils._pytree as pytree
from tensordict import TensorDict
from torch import Tensor

from .errors import DtypeError, ShapeError, StructureError, message

R = TypeVar("R")
C = TypeVar("C", bound=type)

KINDS: dict[str, tuple[torch.dtype, ...]] = {
    "float": (torch.float32, torch.float64, torch.bfloat16, torch.float16),
    "bool": (torch.bool,),
    "int": (torch.int64, torch.int32),
    "key": (torch.int64,),
}


def tensor(shape: str = "*", kind: str = "") -> Any:
    """A field holding one tensor.

    `shape` is a list of words: `*` stands for the record's leading axes (the same for all its fields), a number for that
    size, a name for a size that every field of the record using the name shares. `kind` is "float", "bool", "int", "key"
    (of dtype int64) or "" for any dtype.
    """
    return attrs.field(metadata={"shape": shape, "kind": kind})


def static(**options: Any) -> Any:
    """A field that is no tensor (an int, a string, a function): it becomes part of the tree's structure, not a leaf."""
    return attrs.field(metadata={"static": True}, **options)


def _write_once(self: Any, name: str, value: Any) -> None:
    if name in self.__dict__:
        raise attrs.exceptions.FrozenInstanceError
    object.__setattr__(self, name, value)


def _refuse_delete(self: Any, name: str) -> None:
    raise attrs.exceptions.FrozenInstanceError


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field, tensor, static))
def record(cls: C) -> C:
    """Makes a class a record: keyword-only, write-once attributes, a pytree.

    >>> @record
    ... class Point:
    ...     x: Tensor = tensor("*", "float")
    ...     label: str = static(default="p")
    >>> Point(x=torch.ones(2)).label
    'p'
    """
    cls.__setattr__ = _write_once  # type: ignore[method-assign,assignment]
    cls.__delattr__ = _refuse_delete  # type: ignore[method-assign,assignment]
    made: Any = attrs.define(cls, kw_only=True, slots=False, eq=False)
    fields = attrs.fields(made)
    names = tuple(f.name for f in fields if not f.metadata.get("static"))
    fixed = tuple(f.name for f in fields if f.metadata.get("static"))

    def context(value: Any) -> tuple[Any, ...]:
        return tuple(getattr(value, name) for name in fixed)

    def flatten(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(value, name) for name in names], context(value)

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        return [(pytree.GetAttrKey(name), getattr(value, name)) for name in names], context(value)

    def unflatten(leaves: Any, statics: Any) -> Any:
        return made(**dict(zip(names, leaves, strict=True)), **dict(zip(fixed, statics, strict=True)))

    pytree.register_pytree_node(
        made,
        flatten,
        unflatten,
        flatten_with_keys_fn=flatten_with_keys,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
    )
    made.__record__ = True
    return cast(C, made)


def is_record(value: object) -> bool:
    """Whether `value` is an instance of a class made by `record`."""
    return getattr(type(value), "__record__", False)


def replace(value: R, **changes: Any) -> R:
    """The same record with some fields changed."""
    changed: R = attrs.evolve(cast(Any, value), **changes)
    return changed


def stack(values: Sequence[R], axis: int = 0) -> R:
    """Stacks equal trees leaf by leaf along a new axis."""
    return cast(R, pytree.tree_map(lambda *leaves: torch.stack(leaves, axis), *values))


def take(value: R, index: Any) -> R:
    """Indexes every leaf: `take(trajectory, t)` is the transition at time t."""
    return cast(R, pytree.tree_map(lambda leaf: leaf[index], value))


def select(mask: Tensor, where_true: R, where_false: R) -> R:
    """Leaf by leaf `torch.where`; `mask` [*] is stretched over a leaf's trailing axes.

    >>> select(torch.tensor([True, False]), torch.tensor([[1, 1], [2, 2]]), torch.zeros(2, 2, dtype=torch.int64))
    tensor([[1, 1],
            [0, 0]])
    """

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return cast(R, pytree.tree_map(pick, where_true, where_false))


def to_tensordict(value: Any, batch_size: Sequence[int] = ()) -> TensorDict:
    """A record as a TensorDict for replay, queues and files. Static fields and empty ones are left out."""
    if not is_record(value):
        raise StructureError(
            message("to_tensordict: value", got=type(value).__name__, wanted="a record", remedy="pass one")
        )
    entries: dict[str, Any] = {}
    for field in attrs.fields(type(value)):
        item = getattr(value, field.name)
        if is_record(item):
            entries[field.name] = to_tensordict(item, batch_size)
        elif isinstance(item, Tensor):
            entries[field.name] = item
    return TensorDict(entries, batch_size=list(batch_size))


def from_tensordict(like: R, source: TensorDict) -> R:
    """The record with the structure of `like` and the tensors of `source`. Raises: StructureError for a missing field."""
    changes: dict[str, Any] = {}
    for field in attrs.fields(type(cast(Any, like))):
        item = getattr(like, field.name)
        if not (is_record(item) or isinstance(item, Tensor)):
            continue
        if field.name not in source.keys():  # noqa: SIM118
            where = f"from_tensordict: {type(like).__name__}.{field.name}"
            raise StructureError(message(where, got="absent", wanted="a tensor", remedy="add it to the TensorDict"))
        entry = source[field.name]
        changes[field.name] = from_tensordict(item, entry) if is_record(item) else entry
    return replace(like, **changes)


def check(value: R, batch: Sequence[int] | None = None) -> R:
    """Returns `value` if every field has the shape and dtype its class declares; `batch` fixes the leading axes.

    Raises: StructureError, DtypeError, ShapeError; the first fault found, in one line.
    """
    if not is_record(value):
        raise StructureError(message("check: value", got=type(value).__name__, wanted="a record", remedy="pass one"))
    sizes: dict[str, tuple[int, ...]] = {} if batch is None else {"*": tuple(batch)}
    for field in attrs.fields(type(cast(Any, value))):
        item = getattr(value, field.name)
        where = f"{type(value).__name__}.{field.name}"
        if is_record(item):
            check(item, None if batch is None else batch)
        elif "shape" in field.metadata:
            _check_field(where, item, field.metadata["shape"], field.metadata["kind"], sizes)
    return value


def _check_field(where: str, item: Any, shape: str, kind: str, sizes: dict[str, tuple[int, ...]]) -> None:
    if not isinstance(item, Tensor):
        if isinstance(item, tuple) and not item:
            return
        raise StructureError(
            message(where, got=type(item).__name__, wanted="a tensor", remedy="wrap it in torch.tensor")
        )
    if kind and item.dtype not in KINDS[kind]:
        remedy = f"convert it, e.g. with .to({KINDS[kind][0]})"
        raise DtypeError(message(where, got=item.dtype, wanted=kind, remedy=remedy))
    words = shape.split()
    trailing = len(words) - ("*" in words)
    if "*" in words:
        lead = tuple(item.shape[: max(item.ndim - trailing, 0)])
        agrees = sizes.setdefault("*", lead) == lead and item.ndim >= trailing
    else:
        agrees = item.ndim == trailing
    for word, size in zip([w for w in words if w != "*"][::-1], item.shape[::-1], strict=False):
        expected = (int(word),) if word.isdigit() else sizes.setdefault(word, (size,))
        agrees = agrees and expected == (size,)
    if not agrees:
        known = {name: list(size) for name, size in sizes.items()}
        wanted = f"[{shape}]" + (f" with {known}" if known else "")
        raise ShapeError(
            message(where, got=list(item.shape), wanted=wanted, remedy="reshape it or fix the other fields")
        )

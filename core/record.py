"""Records: immutable values made of tensors, usable wherever PyTorch accepts a tree of tensors.

A record is a frozen class of tensors and other records, registered as a pytree, so that vmap, grad, scan and full-graph
compilation accept and return it. Constructors do not validate (transformations build records of non-tensors); `check` does,
where a user's value enters. An absent field is `()`, not None.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, dataclass_transform

import attrs
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .check import KINDS, check_tensor
from .check import check as check
from .check import is_record as is_record
from .errors import FrozenError, ShapeError, StructureError, choose, message
from .tree import leaf_paths, leaves, same_structure

if TYPE_CHECKING:
    from tensordict import TensorDict  # imports the compiler, which takes a second

R = TypeVar("R")
C = TypeVar("C", bound=type)


def tensor(shape: str = "*", kind: str = "", default: float | None = None) -> Any:
    """Return a field holding one tensor.

    `shape` is a list of words: `*` stands for the record's leading axes (the same for all its fields), a number for that
    size, a name for a size shared by all fields of the record with this name. `kind` is "float", "bool", "int", "key"
    (of dtype int64) or "" for any dtype; `default` is a number for `with_defaults`.
    Raises: ChoiceError, ShapeError, when the class is defined.

    >>> @record
    ... class Layer:
    ...     weight: Tensor = tensor("* out in", "float")
    ...     bias: Tensor = tensor("* out", "float")
    >>> check(Layer(weight=torch.ones(2, 3), bias=torch.ones(3)))
    Traceback (most recent call last):
    purestep.core.errors.ShapeError: Layer.bias is [3], wanted [* out] with * = [], out = 2; reshape it or the other fields
    """
    choose("tensor: kind", kind, KINDS)
    if "*" in shape.split()[1:]:
        raise ShapeError(message("tensor: shape", got=repr(shape), wanted="* first", remedy="name the other axes"))
    return attrs.field(metadata={"shape": shape, "kind": kind, "default": default})


def with_defaults(kind: type[R], **numbers: float) -> R:
    """Return a record of tensors []: the numbers, and the defaults of its other fields. Raises: TypeError without either.

    >>> @record
    ... class Rod:
    ...     mass: Tensor = tensor("*", "float", 1.0)
    ...     length: Tensor = tensor("*", "float", 0.5)
    >>> with_defaults(Rod, mass=2.0)
    Rod(mass=tensor(2.), length=tensor(0.5000))
    """
    known = {field.name: field.metadata.get("default") for field in attrs.fields(cast(Any, kind))}
    given = {name: number for name, number in (known | numbers).items() if number is not None}
    return kind(**{name: torch.tensor(number) for name, number in given.items()})


def static(**options: Any) -> Any:
    """Return a field that is not a tensor (an int, a string, a function): part of the tree's structure, not a leaf.

    >>> @record
    ... class Named:
    ...     x: Tensor
    ...     name: str = static(default="a")
    >>> leaves(Named(x=torch.tensor(1)))
    [tensor(1)]
    """
    return attrs.field(metadata={"static": True}, **options)


def _write_once(self: Any, name: str, value: Any) -> None:
    if name in self.__dict__ or name not in self.__record_fields__:
        raise _frozen(self, name)
    object.__setattr__(self, name, value)


def _refuse_delete(self: Any, name: str) -> None:
    raise _frozen(self, name)


def _frozen(value: Any, name: str) -> FrozenError:
    where, remedy = f"{type(value).__name__}.{name}", f"use replace(value, {name}=...)"
    error: FrozenError = FrozenError(message(where, got="frozen", wanted="no write", remedy=remedy))
    return error


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field, tensor, static))
def record(cls: C) -> C:
    """Turn a class into a record: keyword-only, write-once attributes, a pytree.

    >>> @record
    ... class Point:
    ...     x: Tensor = tensor("*", "float")
    ...     label: str = static(default="p")
    >>> torch.vmap(lambda point: replace(point, x=2 * point.x))(Point(x=torch.ones(2)))
    Point(x=tensor([2., 2.]), label='p')
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
    made.__record_fields__ = (*names, *fixed)
    return cast(C, made)


def replace(value: R, **changes: Any) -> R:
    """Return the record with some fields changed.

    >>> @record
    ... class Point:
    ...     x: Tensor
    ...     y: Tensor
    >>> replace(Point(x=torch.tensor(1), y=torch.tensor(2)), y=torch.tensor(3))
    Point(x=tensor(1), y=tensor(3))
    """
    changed: R = attrs.evolve(cast(Any, value), **changes)
    return changed


def stack(values: Sequence[R], axis: int = 0) -> R:
    """Stack trees of the same structure leaf by leaf along a new axis. Raises: StructureError.

    >>> stack([(torch.tensor(1), ()), (torch.tensor(2), ())])
    (tensor([1, 2]), ())
    """
    if not values:
        raise StructureError(message("stack: values", got="empty", wanted="one or more", remedy="pass at least one"))
    for i, value in enumerate(values[1:], 1):
        same_structure(f"stack: values[{i}]", value, values[0])
    return cast(R, pytree.tree_map(lambda *group: torch.stack(group, axis), *values))


def take(value: R, index: Any) -> R:
    """Index every leaf: `take(trajectory, t)` is the transition at time t.

    >>> take({"a": torch.tensor([1, 2]), "b": torch.tensor([[3], [4]])}, 1)
    {'a': tensor(2), 'b': tensor([4])}
    """
    return cast(R, pytree.tree_map(lambda leaf: leaf[index], value))


def select(mask: Tensor, where_true: R, where_false: R) -> R:
    """Apply `torch.where` leaf by leaf; `mask` [*] is broadcast over a leaf's trailing axes.

    Raises: StructureError (different trees), ShapeError (leaves whose leading axes differ from the mask's).

    >>> select(torch.tensor([True, False]), torch.tensor([[1, 1], [2, 2]]), torch.zeros(2, 2, dtype=torch.int64))
    tensor([[1, 1],
            [0, 0]])
    """
    same_structure("select: where_false", where_false, where_true)

    def pick(a: Tensor, b: Tensor) -> Tensor:
        if a.shape[: mask.ndim] != mask.shape:
            got, wanted = list(mask.shape), f"the leading axes of {list(a.shape)}"
            raise ShapeError(message("select: mask", got=got, wanted=wanted, remedy="one flag for each row"))
        return torch.where(mask.reshape(mask.shape + (1,) * (a.ndim - mask.ndim)), a, b)

    return cast(R, pytree.tree_map(pick, where_true, where_false))


def to_tensordict(value: Any, batch_size: Sequence[int] = ()) -> "TensorDict":
    """Return a record as a TensorDict of the same tensors, for replay, queues and files.

    Trees inside it are nested: a tuple's entries are named "0", "1", ... Static fields and empty ones are omitted.
    Raises: StructureError, ShapeError.

    >>> @record
    ... class Pair:
    ...     both: tuple[Tensor, Tensor]
    >>> to_tensordict(Pair(both=(torch.ones(2), torch.zeros(2))), [2])["both", "0"]
    tensor([1., 1.])
    """
    from tensordict import TensorDict

    if not is_record(value):
        raise StructureError(
            message("to_tensordict: value", got=type(value).__name__, wanted="a record", remedy="pass one")
        )
    result, batch = TensorDict({}, batch_size=list(batch_size)), tuple(batch_size)
    for path, leaf in zip(leaf_paths(value), leaves(value), strict=True):
        check_tensor(".".join((type(value).__name__, *path)), leaf, batch)
        result[path] = leaf
    return result


def from_tensordict(like: R, source: "TensorDict") -> R:
    """Return a record with the structure of `like` and the tensors of `source`. Raises: StructureError for a missing field.

    >>> from tensordict import TensorDict
    >>> @record
    ... class Point:
    ...     x: Tensor
    >>> from_tensordict(Point(x=torch.ones(())), TensorDict({"x": torch.zeros(2)}, [2]))
    Point(x=tensor([0., 0.]))
    """
    keys = source.keys(include_nested=True, leaves_only=True)
    found = {(key,) if isinstance(key, str) else tuple(key) for key in keys}
    entries = []
    for path in leaf_paths(like):
        if path not in found:
            where = f"from_tensordict: {'.'.join((type(like).__name__, *path))}"
            raise StructureError(message(where, got="absent", wanted="a tensor", remedy="add it to the TensorDict"))
        entries.append(source[path])
    return cast(R, pytree.tree_unflatten(entries, pytree.tree_structure(like)))

"""Other ways to call a subject that was not written for torch tensors: with numpy arrays, lists, tensor settings or copies.

A law calls its subject with tensors and Python numbers. Where the subject refuses that, or writes into what it was given, `run`
tries these ways in turn, and the report says which one was used.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from .law import NotHere

NO_GRADIENT = "the subject returns numbers without a graph, so it has no gradient to look at"


def _plain(convert: Callable[[Tensor], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def way(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            tensors = [x for x in pytree.tree_leaves((arguments, named)) if isinstance(x, Tensor)]
            if any(x.requires_grad for x in tensors):
                raise NotHere(NO_GRADIENT)
            floats = [x.dtype for x in tensors if x.is_floating_point()]
            given, words = pytree.tree_map_only(Tensor, convert, (arguments, named))
            return as_tensors(function(*given, **words), floats[0] if floats else torch.float32)

        return called

    return way


def as_tensors(result: Any, dtype: torch.dtype) -> Any:
    """Return a result of numpy arrays, lists of numbers or numbers as tensors, floats in the dtype given.

    >>> as_tensors([0.5, 1.0], torch.float32)
    tensor([0.5000, 1.0000])
    """
    if isinstance(result, Tensor):
        return result
    array = hasattr(result, "__array__")  # of numpy or JAX
    if (array or isinstance(result, (float, int))) and not isinstance(result, bool):
        made = torch.as_tensor(np.array(result))
        return made.to(dtype) if made.is_floating_point() else made
    if isinstance(result, list) and result and all(isinstance(x, (int, float, np.generic)) for x in result):
        return as_tensors(np.array(result), dtype)
    if isinstance(result, (tuple, list)) and not hasattr(result, "_fields"):
        return type(result)(as_tensors(x, dtype) for x in result)
    if isinstance(result, dict):
        return {name: as_tensors(x, dtype) for name, x in result.items()}
    return result


def _numbers_as_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **named: Any) -> Any:
        words = {k: torch.tensor(v) if type(v) is float else v for k, v in named.items()}
        return function(*arguments, **words)

    return called


def _copies(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any, **named: Any) -> Any:
        given, words = pytree.tree_map_only(Tensor, torch.clone, (arguments, named))
        return function(*given, **words)

    return called


WAYS: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "copies, since it writes into its arguments": _copies,
    "numpy arrays": _plain(lambda x: x.detach().numpy().copy()),
    "lists": _plain(lambda x: x.tolist()),
    "settings as tensors": _numbers_as_tensors,
}
COPIES, *OTHERS = WAYS


def called_with(way: str, subject: Any) -> Any:
    """Return the subject to be called in this way: a function, or an attrs object whose functions are replaced.

    >>> called_with("numpy arrays", np.cumsum)(torch.tensor([1.0, 2.0]))
    tensor([1., 3.])
    """
    if hasattr(subject, "with_function"):
        return subject.with_function(called_with(way, subject.function))
    if attrs.has(type(subject)) and not callable(subject):
        parts = {f.name: getattr(subject, f.name) for f in attrs.fields(type(subject)) if f.init}
        return attrs.evolve(subject, **{k: _renamed(WAYS[way](v), v) for k, v in parts.items() if callable(v)})
    return _renamed(WAYS[way](subject), subject)


def _renamed(made: Callable[..., Any], function: Any) -> Callable[..., Any]:
    made.__name__ = getattr(function, "__name__", None) or type(function).__name__
    made.__module__ = getattr(function, "__module__", "") or ""
    return made


def is_callable(subject: Any) -> bool:
    """Return whether a subject, or a field of an attrs object, is a function that other ways can call."""
    if isinstance(subject, type):
        return False
    held = attrs.has(type(subject)) and any(
        callable(getattr(subject, f.name, None)) for f in attrs.fields(type(subject))
    )
    return callable(subject) or held

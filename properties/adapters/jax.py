"""Functions of JAX as subjects, through numpy: optimizers of optax, and returns, advantages and targets of rlax."""

import importlib
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..suites.optimizer import RULES


def _jax() -> Any:
    return importlib.import_module("jax")


def to_arrays(*parts: Tensor) -> tuple[Any, ...]:
    """Return tensors as arrays of JAX."""
    arrays = _jax().numpy
    return tuple(arrays.asarray(part.detach().numpy()) for part in parts)


def to_tensor(found: Any, like: Tensor) -> Tensor:
    """Return an array as a tensor of the dtype of `like`."""
    return torch.tensor(np.asarray(found)).to(like.dtype)


def with_discounts(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    """Return rewards and discounts [T] for a library that knows no truncation: the value beyond one is paid out.

    >>> one, no, yes = torch.ones(1), torch.tensor([False]), torch.tensor([True])
    >>> with_discounts(one, 4 * one, no, yes, 0.5)
    (tensor([3.]), tensor([0.]))
    """
    beyond = torch.where(truncated & ~terminated, gamma * next_values, torch.zeros_like(rewards))
    return rewards + beyond, gamma * (~(terminated | truncated)).to(rewards.dtype)


def optimizer(make: Callable[..., Any], **options: Any) -> Callable[[float], Any]:
    """Return a function `make(learning_rate)` of gradient transformations as one of pairs of tensors, for `optimizer_laws`.

    Arrays of JAX cannot be written into: leave out the law `inputs_stay`, which has nothing to look at.
    """
    jax = _jax()

    def outside(tree: Any) -> Any:
        return jax.tree.map(lambda x: torch.tensor(np.asarray(x)), tree)

    def inside(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.numpy.asarray(x.detach().numpy()), tree)

    def made(learning_rate: float) -> Any:
        pair = make(learning_rate, **options)

        def update(gradients: Any, state: Any, params: Any) -> Any:
            updates, after = pair.update(inside(gradients), state, inside(params))
            return outside(updates), after

        return SimpleNamespace(init=lambda params: pair.init(inside(params)), update=update)

    return made


def rule(make: Callable[..., Any]) -> dict[str, Any]:
    """Return the rule that an optimizer is named after, and its weight decay, as keywords of `optimizer_laws`."""
    name = str(getattr(make, "__name__", "adam"))
    decay = inspect.signature(make).parameters.get("weight_decay")
    found = {"weight_decay": decay.default} if decay is not None and isinstance(decay.default, float) else {}
    return {"rule": name if name in RULES else "adam", **found}


def advantages(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return f(r_t, discount_t, lambda_, values [T + 1]) as an estimator, for `estimator_laws`."""
    compiled = _jax().jit(function)

    def estimator(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        rewards, discounts = to_arrays(*with_discounts(r, after, term, trunc, gamma))
        (values,) = to_arrays(torch.cat([v, after[-1:]]))
        return torch.tensor(np.asarray(compiled(rewards, discounts, lambda_, values)))

    return estimator


def lambda_returns(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return f(r_t, discount_t, v_t, lambda_), v_t the value after r_t, for `lambda_return_laws`."""
    compiled = _jax().jit(function)

    def returns(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        del v
        columns = to_arrays(*with_discounts(r, after, term, trunc, gamma), after)
        return torch.tensor(np.asarray(compiled(*columns, lambda_)))

    return returns


def n_step_returns(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return f(r_t, discount_t, v_t, n), v_t the value after r_t, for `n_step_laws`."""

    def returns(r: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, n: int) -> Tensor:
        columns = to_arrays(*with_discounts(r, after, term, trunc, gamma), after)
        return to_tensor(function(*columns, min(n, len(r))), r)

    return returns


def q_target(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return the target in a temporal difference f(q_tm1, a_tm1, r_t, discount_t, *q_t), for `target_laws`.

    Its q_tm1 is 0. Two columns of values, those that choose and those that are taken, are given in the package's order.
    """
    jax = _jax()

    def target(r: Tensor, *values: Tensor, gamma: float) -> Tensor:
        *after, term = values
        arrays = to_arrays(r, gamma * (~term).to(r.dtype), *reversed(after))
        zero = jax.numpy.zeros_like(arrays[2])
        return to_tensor(jax.vmap(function)(zero, jax.numpy.zeros(len(r), int), *arrays), r)

    return target

"""Muon as people get it wrong."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core.optim import Optimizer
from purestep.core.record import replace


@frozen
class Turning:
    """What the laws of Muon judge: `muon(learning_rate, **numbers)` and `orthogonal(matrix)`."""

    muon: Callable[..., Optimizer]
    orthogonal: Callable[..., Tensor]


def _edited(change: Callable[[Optimizer, Any, Any, Any], tuple[Any, Any]]) -> Callable[[Turning], Turning]:
    """An edit of the update."""

    def make(subject: Turning) -> Turning:
        def muon(*given: Any, **numbers: Any) -> Optimizer:
            right = subject.muon(*given, **numbers)

            def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
                return change(right, gradients, state, params)

            return Optimizer(init=right.init, update=update)

        return evolve(subject, muon=muon)

    return make


def _coupled(right: Optimizer, gradient: Tensor, state: Any, param: Tensor) -> tuple[Any, Any]:
    decay = state.hyperparameters["weight_decay"].to(param.dtype)
    numbers = {**state.hyperparameters, "weight_decay": torch.zeros_like(state.hyperparameters["weight_decay"])}
    updates, after = right.update(gradient + decay * param, replace(state, hyperparameters=numbers), param)
    return updates, replace(after, hyperparameters=state.hyperparameters)


def _forgetful(right: Optimizer, gradient: Tensor, state: Any, param: Tensor) -> tuple[Any, Any]:
    updates, _ = right.update(gradient, state, param)
    return updates, state


def _plain(right: Optimizer, gradient: Tensor, state: Any, param: Tensor) -> tuple[Any, Any]:
    _, after = right.update(gradient, state, param)
    still = {**state.hyperparameters, "momentum": torch.zeros_like(state.hyperparameters["momentum"])}
    updates, _ = right.update(after.velocity, replace(state, hyperparameters=still), param)
    return updates, after


def _unscaled(right: Optimizer, gradient: Tensor, state: Any, param: Tensor) -> tuple[Any, Any]:
    updates, after = right.update(gradient, state, param)
    rows, columns = gradient.shape
    return updates / max(1.0, rows / columns) ** 0.5, after


def _turned_over(right: Optimizer, gradient: Tensor, state: Any, param: Tensor) -> tuple[Any, Any]:
    updates, after = right.update(gradient, state, param)
    rows, columns = gradient.shape
    return updates * (max(1.0, columns / rows) / max(1.0, rows / columns)) ** 0.5, after


coupled_decay, forgets = _edited(_coupled), _edited(_forgetful)
no_look_ahead, unscaled = _edited(_plain), _edited(_unscaled)


def sees_size(subject: Turning) -> Turning:
    """Keeps some of the gradient's size, as an iteration does that divides by too little."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        kept: Tensor = subject.orthogonal(matrix, **given) * (1.0 + 0.1 * torch.tanh(matrix.abs().amax() / 8.0))
        return kept

    return evolve(subject, orthogonal=orthogonal)


def normalized_only(subject: Turning) -> Turning:
    """Divides by the norm and iterates no further."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        short: Tensor = matrix / torch.linalg.vector_norm(matrix).clamp_min(1e-7)
        return short

    return evolve(subject, orthogonal=orthogonal)


def entry_by_entry(subject: Turning) -> Turning:
    """Takes the sign of each entry, as Lion does; that is no function of the singular values."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        signs: Tensor = matrix.sign() / max(matrix.shape) ** 0.5
        return signs

    return evolve(subject, orthogonal=orthogonal)


def wide_alone(subject: Turning) -> Turning:
    """Turns a tall matrix round and does not turn it back, wherever that fits."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        right = subject.orthogonal(matrix, **given)
        return right.mT.reshape(right.shape) if matrix.shape[0] > matrix.shape[1] else right

    return evolve(subject, orthogonal=orthogonal)


MUTANTS: dict[str, Callable[[Turning], Turning]] = {
    "scales wide matrices in place of tall ones": _edited(_turned_over),
    "takes signs entry by entry": entry_by_entry,
}

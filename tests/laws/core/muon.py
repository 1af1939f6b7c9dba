"""Laws of Muon; the subject is `Turning`: muon(learning_rate, **numbers) -> Optimizer, and orthogonal(matrix)."""

import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.core import keys
from purestep.core.optim.interface import Optimizer
from purestep.core.record import replace
from purestep.properties.framework.compare import Tolerance, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds

# --- mutants ---
# Common errors in Muon.


@frozen
class Turning:
    """The subject of the laws of Muon: `muon(learning_rate, **numbers)` and `orthogonal(matrix)`."""

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
    """Keep some of the gradient's size, as an iteration does that divides by too little."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        kept: Tensor = subject.orthogonal(matrix, **given) * (1.0 + 0.1 * torch.tanh(matrix.abs().amax() / 8.0))
        return kept

    return evolve(subject, orthogonal=orthogonal)


def normalized_only(subject: Turning) -> Turning:
    """Divide by the norm, without any iteration."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        short: Tensor = matrix / torch.linalg.vector_norm(matrix).clamp_min(1e-7)
        return short

    return evolve(subject, orthogonal=orthogonal)


def entry_by_entry(subject: Turning) -> Turning:
    """Take the sign of each entry, as Lion does; that is no function of the singular values."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        signs: Tensor = matrix.sign() / max(matrix.shape) ** 0.5
        return signs

    return evolve(subject, orthogonal=orthogonal)


def wide_alone(subject: Turning) -> Turning:
    """Return the transpose of a tall matrix's result where the shapes allow it."""

    def orthogonal(matrix: Tensor, **given: Any) -> Tensor:
        right = subject.orthogonal(matrix, **given)
        return right.mT.reshape(right.shape) if matrix.shape[0] > matrix.shape[1] else right

    return evolve(subject, orthogonal=orthogonal)


MUTANTS: dict[str, Callable[[Turning], Turning]] = {
    "scales wide matrices in place of tall ones": _edited(_turned_over),
    "takes signs entry by entry": entry_by_entry,
}


# --- laws ---


SOURCE = "Jordan et al. 2024, kellerjordan.github.io/posts/muon"
CLOSE = Tolerance("a few products of small matrices", relative=1e-3, absolute=1e-4)
SHAPES = ((3, 3), (2, 5), (6, 2))
NUMBERS = {"precision": torch.float32}


@frozen
class Push:
    """A matrix, its gradients of successive steps, and the numbers of the optimiser."""

    param: Tensor
    gradients: Tensor  # [T, N, M], of full rank
    rate: float
    momentum: float
    weight_decay: float


@st.composite
def pushes(draw: DrawFn) -> Push:
    """Draw gradients with singular values from 1 to 4, so that none is lost in rounding."""
    rows, columns = draw(st.sampled_from(SHAPES))
    key, least = keys.key(draw(seeds())), min(rows, columns)
    one, other, three = keys.split(key, 3)
    left, _ = torch.linalg.qr(keys.normal(one, (3, rows, least)))
    right, _ = torch.linalg.qr(keys.normal(other, (3, columns, least)))
    values = 1.0 + 3.0 * keys.uniform(three, (3, least))
    return Push(
        param=keys.normal(keys.fold_in(three, 1), (rows, columns)),
        gradients=(left * values[:, None, :]) @ right.mT,
        rate=draw(st.sampled_from((0.5, 0.25))),
        momentum=draw(st.sampled_from((0.5, 0.75))),
        weight_decay=draw(st.sampled_from((0.0, 0.25))),
    )


def muon_laws() -> Suite:
    """The laws of momentum made orthogonal."""
    return Suite("muon_laws", (_values(), _size(), _turns(), _sides(), _memory(), _ahead(), _decay(), _shapes()))


_law = law_constructor(pushes, SOURCE)


def _values() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        values = torch.linalg.svdvals(subject.orthogonal(push.gradients[0]))
        found = f"singular values from {float(values.min()):.2f} to {float(values.max()):.2f}"
        require(bool(((values > 0.6) & (values < 1.3)).all()), f"{found}, wanted from 0.6 to 1.3")
        require(not bool(subject.orthogonal(torch.zeros_like(push.param)).any()), "0 does not stay 0")

    claim = "The singular values of a direction are near 1, whatever those of the gradient; 0 stays 0."
    return _law("singular_values_near_one", claim, ("divides by the norm alone", normalized_only), check)


def _size() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        wanted = subject.orthogonal(push.gradients[0])
        for factor in (0.25, 64.0):
            same(f"of {factor} times the gradient", subject.orthogonal(factor * push.gradients[0]), wanted, CLOSE)
        same("of the gradient turned round", subject.orthogonal(-push.gradients[0]), -wanted, CLOSE)

    claim = "A gradient's size does not matter, and its sign is the direction's."
    return _law("size_does_not_matter", claim, ("keeps some of the gradient's size", sees_size), check)


def _turns() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        one, other, _ = push.gradients
        left, right = torch.linalg.qr(one @ one.mT)[0], torch.linalg.qr(other.mT @ other)[0]
        wanted = left @ subject.orthogonal(push.gradients[2]) @ right
        same("of the gradient in other axes", subject.orthogonal(left @ push.gradients[2] @ right), wanted, CLOSE)

    claim = "In other axes, orthogonal ones, the direction is the same: f(Q G R) = Q f(G) R."
    return _law("axes_do_not_matter", claim, ("takes signs entry by entry", entry_by_entry), check)


def _sides() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        seen("a tall matrix", push.param.shape[0] > push.param.shape[1])
        wanted = subject.orthogonal(push.gradients[0]).mT
        same("of the transpose", subject.orthogonal(push.gradients[0].mT), wanted, CLOSE)

    claim = "The direction of a transpose is the transpose of the direction."
    return _law("transposes", claim, ("does not turn tall matrices back", wide_alone), check, "a tall matrix")


def _after(subject: Turning, push: Push, gradients: Tensor, **numbers: float) -> Tensor:
    """The last of the updates that these gradients, one after the other, give."""
    optimizer = subject.muon(push.rate, **{"momentum": push.momentum, "weight_decay": 0.0, **NUMBERS, **numbers})
    state, update = optimizer.init(push.param), push.param
    for gradient in gradients:
        update, state = optimizer.update(gradient, state, push.param)
    return update


def _sized(push: Push) -> float:
    rows, columns = push.param.shape
    return push.rate * math.sqrt(max(1.0, rows / columns))


def _memory() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        optimizer = subject.muon(push.rate, momentum=push.momentum, **NUMBERS)
        state, wanted = optimizer.init(push.param), torch.zeros_like(push.param)
        for gradient in push.gradients:
            _, state = optimizer.update(gradient, state, push.param)
            wanted = push.momentum * wanted + (1.0 - push.momentum) * gradient
        same("the velocity", state.velocity, wanted, CLOSE)

    claim = "The velocity is the decaying mean of all gradients: v' = momentum v + (1 - momentum) g."
    return _law("velocity_is_a_mean", claim, ("forgets earlier gradients", forgets), check)


def _ahead() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        velocity = torch.zeros_like(push.param)
        for gradient in push.gradients:
            velocity = push.momentum * velocity + (1.0 - push.momentum) * gradient
        ahead = (1.0 - push.momentum) * push.gradients[-1] + push.momentum * velocity
        wanted = -_sized(push) * subject.orthogonal(ahead)
        # If the look-ahead has a small singular value, rounding in the mean is visible in the direction.
        values = torch.linalg.svdvals(ahead)
        clear = bool(values[-1] > 0.05 * values[0])
        seen("a clear direction", clear)
        if clear:
            same("the third update", _after(subject, push, push.gradients), wanted, CLOSE)

    claim = "An update follows g + momentum (v' - g), the mean one step ahead."
    return _law("looks_ahead", claim, ("follows the mean alone", no_look_ahead), check, "a clear direction")


def _decay() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        seen("decay", push.weight_decay > 0)
        first = push.gradients[:1]
        still, moved = _after(subject, push, first), _after(subject, push, first, weight_decay=push.weight_decay)
        same("what decay adds", moved - still, -push.rate * push.weight_decay * push.param, CLOSE)

    claim = "Decay takes learning_rate weight_decay params, and no gradient sees it."
    return _law("decay_apart", claim, ("adds decay to the gradient", coupled_decay), check, "decay")


def _shapes() -> Law:
    def check(subject: Turning, push: Push, seen: Seen) -> None:
        seen("a tall matrix", push.param.shape[0] > push.param.shape[1])
        wanted = -_sized(push) * subject.orthogonal(push.gradients[0])
        same("the first update", _after(subject, push, push.gradients[:1]), wanted, CLOSE)

    claim = "The first update has singular values near learning_rate sqrt(max(1, rows / columns))."
    return _law("tall_matrices_move_more", claim, ("scales all alike", unscaled), check, "a tall matrix")

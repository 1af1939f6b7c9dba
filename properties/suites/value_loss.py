"""Laws of losses of values: f(value, target), or clipped f(value, behaviour_value, target, *, clip); per step or reduced.

    test_mine = check(value_loss_laws(), my_clipped_value_loss)                          # 1/2 max(...), per step
    test_mean = check(value_loss_laws(clipped=False, scale=1.0, reduction="mean"), torch.nn.functional.mse_loss)

>>> from purestep.properties import value_loss_laws, verify
>>> mean_of_squares = lambda value, target: (value - target).square()
>>> verify(value_loss_laws(clipped=False), mean_of_squares)["squared_error"].outcome  # its scale is 1, not 1/2
'broken'
"""

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.errors import ChoiceError, message
from ..framework.compare import ROUNDING, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import dyadic

Loss = Callable[..., Tensor]

# --- mutants ---
# Common mistakes in value losses; each wraps a correct one.


def _clip_of(value: Tensor, anchor: Tensor, clip: float) -> Tensor:
    return anchor + (value - anchor).clamp(-clip, clip)


def without_the_half(loss: Loss) -> Loss:
    """Leave out the half."""
    return lambda *columns, **named: 2.0 * loss(*columns, **named)


def target_attached(loss: Loss) -> Loss:
    """Leave the target attached, so that it is drawn to the value."""
    return lambda *columns, **named: loss(*columns, **named) + 0.25 * (columns[-1] - columns[-1].detach()).sum()


def takes_smaller(loss: Loss) -> Loss:
    """Take the smaller of the two errors."""

    def wrong(value: Tensor, anchor: Tensor, target: Tensor, *, clip: float) -> Tensor:
        near = _clip_of(value, anchor.detach(), clip)
        both = loss(value, value.detach(), target, clip=math.inf), loss(near, near.detach(), target, clip=math.inf)
        return torch.minimum(*both)

    return wrong


def clipped_only(loss: Loss) -> Loss:
    """Take the clipped error alone, so that a value far away gets no gradient back."""

    def wrong(value: Tensor, anchor: Tensor, target: Tensor, *, clip: float) -> Tensor:
        near = _clip_of(value, anchor.detach(), clip)
        return loss(near, near.detach(), target, clip=math.inf)

    return wrong


def clips_target(loss: Loss) -> Loss:
    """Clip around the target instead of the old value."""
    return lambda value, anchor, target, *, clip: loss(value, target, target, clip=clip)


def ignores_clip(loss: Loss) -> Loss:
    """Never clip."""
    return lambda value, anchor, target, *, clip: loss(value, anchor, target, clip=math.inf)


def broadcasts(loss: Loss) -> Loss:
    """Compare each value with all targets: [N, 1] minus [N]."""

    def wrong(*columns: Tensor, **named: Any) -> Tensor:
        *others, target = columns
        return loss(*others, target.mean().expand_as(target), **named)

    return wrong


# --- laws ---

PPO2 = "the PPO2 code of OpenAI baselines (2017); Schulman et al. 2015, arXiv:1506.02438, for the squared error"
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda x: x, "mean": Tensor.mean, "sum": Tensor.sum}


@attrs.frozen
class Values:
    """Values, values of the behaviour policy, targets [N], and the clip."""

    value: Tensor
    behaviour_value: Tensor
    target: Tensor
    clip: float


@st.composite
def dyadic_values(draw: DrawFn) -> Values:
    """Up to four values, multiples of 1/4 that differ by more or less than the clip."""
    count = draw(st.sampled_from((4, 3, 1)))
    value, behaviour_value, target = (draw(dyadic((count,), limit=limit)) for limit in (2, 1, 4))
    return Values(value, behaviour_value, target, draw(st.sampled_from((0.5, 0.25, 1.0))))


@attrs.frozen
class ValueLossClaims:
    """Arguments of `value_loss_laws`."""

    clipped: bool
    scale: float
    reduction: str
    largest: bool

    def ask(self, loss: Loss, drawn: Values, **changes: Any) -> Tensor:
        """Return the subject's loss."""
        d = attrs.evolve(drawn, **changes)
        return loss(d.value, d.behaviour_value, d.target, clip=d.clip) if self.clipped else loss(d.value, d.target)

    def wanted(self, drawn: Values) -> Tensor:
        """Return the loss of each step."""
        plain = (drawn.value - drawn.target).square()
        if not self.clipped:
            return self.scale * plain
        near = (_clip_of(drawn.value, drawn.behaviour_value, drawn.clip) - drawn.target).square()
        return self.scale * (torch.maximum(plain, near) if self.largest else near)

    def slopes(self, drawn: Values) -> Tensor:
        """Return the gradient of each step's loss in its value."""
        plain = 2.0 * self.scale * (drawn.value - drawn.target)
        if not self.clipped:
            return plain
        near = _clip_of(drawn.value, drawn.behaviour_value, drawn.clip)
        outside = near != drawn.value
        if not self.largest:
            return torch.where(outside, 0.0, plain)
        return torch.where(outside & ((near - drawn.target).abs() > (drawn.value - drawn.target).abs()), 0.0, plain)


def value_loss_laws(
    *,
    clipped: bool = True,
    scale: float = 0.5,
    reduction: str = "none",
    largest: bool = True,
    detached: bool = True,
    quantiles: bool = False,
) -> Suite:
    """Return the laws of a loss of values: `scale` times the squared error, reduced as "none", "mean" or "sum".

    A `clipped` loss takes (value, behaviour_value, target, clip=) and is the larger of the errors of the value and of the value
    clipped around its old one; `largest=False`: the latter alone. `detached`: target and old value get no gradient.
    `quantiles`: it is a quantile loss, Huber's or not, f(quantiles [B, N], targets [B, N]) -> loss, of levels (i + 1/2) / N.
    Raises: ChoiceError.

    >>> from purestep.properties import verify
    >>> def pinball(quantiles, targets):
    ...     levels = (torch.arange(quantiles.shape[1]) + 0.5) / quantiles.shape[1]
    ...     error = targets[:, None, :] - quantiles[:, :, None]
    ...     return (torch.where(error < 0, levels[:, None] - 1, levels[:, None]) * error).mean()
    >>> bool(verify(value_loss_laws(quantiles=True), pinball))
    True
    """
    if quantiles:
        return Suite("value_loss_laws", (_levels(), _own_row()))
    if reduction not in REDUCTIONS:
        wanted, remedy = f"one of {sorted(REDUCTIONS)}", "say how it reduces"
        raise ChoiceError(message("value_loss_laws: reduction", got=reduction, wanted=wanted, remedy=remedy))
    how = ValueLossClaims(clipped, scale, reduction, largest)
    laws = [_squared(how), _gradient_law(how)]
    laws += [_constants(how)] if detached else []
    laws += [_own_target(how)]
    laws += [_wide(how), _binds(how)] if clipped else []
    laws += [_pessimistic(how)] if clipped and largest else []
    return Suite("value_loss_laws", tuple(laws))


_law = law_constructor(dyadic_values, PPO2, numeric=True)


def _slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    leaf = at.detach().clone().requires_grad_()
    value = function(leaf).sum()
    if not value.requires_grad:
        return torch.zeros_like(at)
    return torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)[0]


def _squared(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        near = attrs.evolve(drawn, behaviour_value=drawn.value)
        seen("an error", bool((drawn.value != drawn.target).any()))
        same("the loss of values at their old ones", how.ask(loss, near), _reduced(how, how.wanted(near)), ROUNDING)

    claim = f"Where the value is the old one the loss is {how.scale} times the squared error."
    return _law("squared_error", claim, ("doubles the scale", without_the_half), check, "an error")


def _reduced(how: ValueLossClaims, losses: Tensor) -> Tensor:
    return REDUCTIONS[how.reduction](losses)


def _gradient_law(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        off = (drawn.value - drawn.behaviour_value).abs() - drawn.clip
        near = _clip_of(drawn.value, drawn.behaviour_value, drawn.clip)
        tie = (off == 0) | ((near - drawn.target).abs() == (drawn.value - drawn.target).abs()) & (off > 0)
        seen("an error", bool((how.slopes(drawn) != 0).any()))
        got = _slope(lambda x: how.ask(loss, drawn, value=x), drawn.value)
        wanted = how.slopes(drawn) / (len(drawn.value) if how.reduction == "mean" else 1)
        if how.clipped:
            got, wanted = got[~tie], wanted[~tie]  # at a tie either branch is right
        same("the gradient in the value", got, wanted, ROUNDING)

    claim = "The gradient is the scaled error, and 0 where the clipped error counts."
    return _law("gradient", claim, ("doubles the scale", without_the_half), check, "an error")


def _constants(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        names = ("behaviour_value", "target") if how.clipped else ("target",)
        for name in names:
            got = _slope(lambda x, name=name: how.ask(loss, drawn, **{name: x}), getattr(drawn, name))  # type: ignore[misc]
            require(not bool(got.any()), f"the gradient in {name} is {got.tolist()}, wanted 0")

    claim = "Targets and old values are constants."
    return _law("constants", claim, ("leaves the target attached", target_attached), check)


def _own_target(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        seen("several targets", len(set(drawn.target.tolist())) > 1)
        parts = [
            how.ask(
                loss,
                Values(drawn.value[i : i + 1], drawn.behaviour_value[i : i + 1], drawn.target[i : i + 1], drawn.clip),
            )
            for i in range(len(drawn.value))
        ]
        alone = torch.cat([part.reshape(1) for part in parts])
        same("the loss of a batch against its steps", how.ask(loss, drawn), _reduced(how, alone), ROUNDING)

    claim = "Each value is compared with its own target."
    return _law("own_target", claim, ("compares with the mean target", broadcasts), check, "several targets")


def _wide(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        seen("an error", bool((drawn.value != drawn.target).any()))
        wanted = _reduced(how, how.scale * (drawn.value - drawn.target).square())
        same("the loss with a clip of 1000", how.ask(loss, drawn, clip=1000.0), wanted, ROUNDING)

    claim = "With a wide clip it is the squared error."
    return _law("wide_clip", claim, ("doubles the scale", without_the_half), check, "an error")


def _binds(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        seen("a clip that counts", bool((how.wanted(drawn) > how.scale * (drawn.value - drawn.target).square()).any()))
        seen("a clip that does not", bool(((drawn.value - drawn.behaviour_value).abs() > drawn.clip).any()))
        same("the loss", how.ask(loss, drawn), _reduced(how, how.wanted(drawn)), ROUNDING)

    claim = "The value is clipped around its old one, by `clip`."
    mutant = ("clips around the target", clips_target)
    return _law("clipped_around_old_value", claim, mutant, check, "a clip that counts", "a clip that does not")


def _pessimistic(how: ValueLossClaims) -> Law:
    def check(loss: Loss, drawn: Values, seen: Seen) -> None:
        plain = how.scale * (drawn.value - drawn.target).square()
        seen("a clipped value nearer to its target", bool((how.wanted(drawn) == plain).any() & (plain > 0).any()))
        got = how.ask(loss, drawn)
        require(
            got >= _reduced(how, plain) - 1e-6, f"the loss {got.tolist()} is below the squared error {plain.tolist()}"
        )

    claim = "Clipping never lowers the loss."
    mutant = ("takes the smaller error", takes_smaller)
    return _law("clipping_never_helps", claim, mutant, check, "a clipped value nearer to its target")


MUTANTS: dict[str, Callable[[Loss], Loss]] = {
    "takes the clipped error alone": clipped_only,
    "never clips": ignores_clip,
}


# --- quantiles ---

QUANTILES = "Dabney et al. 2018, arXiv:1710.10044, equation 10"
FAR = 16.0  # of a target from all quantiles, beyond the threshold of Huber's loss


def levels_reversed(loss: Loss) -> Loss:
    """Give the first quantile the highest level."""
    return lambda quantiles, targets: loss(quantiles.flip(1), targets)


def mean_of_batch(loss: Loss) -> Loss:
    """Compare with the targets of the whole batch."""
    return lambda quantiles, targets: loss(quantiles, targets.mean(0, keepdim=True).expand_as(targets))


@attrs.frozen
class Quantiles:
    """Quantiles [B, N], and which of the targets [B, N] lie far below all of them, the others far above."""

    quantiles: Tensor
    below: Tensor

    def targets(self) -> Tensor:
        """Return the targets."""
        return torch.where(self.below, -FAR, FAR) + torch.arange(self.below.shape[1]) / 4


@st.composite
def _quantiles(draw: DrawFn) -> Quantiles:
    rows, count = draw(st.sampled_from((2, 1))), draw(st.sampled_from((4, 2, 5)))
    below = draw(st.lists(st.booleans(), min_size=rows * count, max_size=rows * count))
    return Quantiles(draw(dyadic((rows, count), limit=1)), torch.tensor(below).reshape(rows, count))


_quantile_law = law_constructor(_quantiles, QUANTILES)


def _directions(loss: Loss, drawn: Quantiles, targets: Tensor) -> Tensor:
    """Return the gradient [B, N] over its scale, which is that for targets far above all quantiles."""
    above = _slope(lambda x: loss(x, torch.full_like(targets, FAR)), drawn.quantiles)
    scale = -2.0 * above.sum(1, keepdim=True) / above.shape[1]
    require(scale > 0, f"targets above all quantiles raise them, the gradient is {above.tolist()}")
    return _slope(lambda x: loss(x, targets), drawn.quantiles) / scale


def _levels() -> Law:
    def check(loss: Loss, drawn: Quantiles, seen: Seen) -> None:
        share = drawn.below.float().mean(1, keepdim=True)
        seen("targets on both sides", ((share > 0) & (share < 1)).any())
        count = drawn.quantiles.shape[1]
        levels = (torch.arange(count) + 0.5) / count
        got = _directions(loss, drawn, drawn.targets())
        same("the gradient for far targets, over its scale", got, share - levels, ROUNDING)

    claim = "The gradient of a quantile is, up to a scale, the share of targets below it less its own level."
    return _quantile_law("levels", claim, ("reverses the levels", levels_reversed), check, "targets on both sides")


def _own_row() -> Law:
    def check(loss: Loss, drawn: Quantiles, seen: Seen) -> None:
        seen("rows with other targets", len(drawn.below) > 1 and (drawn.below[0] != drawn.below[-1]).any())
        targets = drawn.targets()
        got = _directions(loss, drawn, targets)
        for row in range(len(targets)):
            one = Quantiles(drawn.quantiles[row : row + 1], drawn.below[row : row + 1])
            same(
                f"the gradient of row {row} alone", _directions(loss, one, one.targets()), got[row : row + 1], ROUNDING
            )

    claim = "Each row is compared with its own targets."
    mutant = ("compares with the targets of the batch", mean_of_batch)
    return _quantile_law("own_targets", claim, mutant, check, "rows with other targets")

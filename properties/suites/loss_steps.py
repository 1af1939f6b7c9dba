"""Laws of any policy loss of one number a step (L1, L5, L6 and the gradients of S7)."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ..framework.compare import CURVATURE, ROUNDING, require, same
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.values import POISON, dyadic, log_prob_pairs, smooth
from . import loss_mutants as mutants
from .loss_mutants import Batch, Loss

CLIPS = (0.25, 0.0, 0.5)
PPO = "Schulman et al. 2017, arXiv:1707.06347, section 3"
PADDING = "objectives: a step that does not count must not count, whatever stands in it"


@st.composite
def batches(draw: DrawFn, size: int = 4) -> Batch:
    """Up to `size` on- and off-policy steps, ratios from exp(-2) to exp(2)."""
    count = draw(st.sampled_from((1, 2, size, size)))
    log_prob, behaviour = draw(log_prob_pairs((count,)))
    return Batch(log_prob, behaviour, draw(dyadic((count,))), draw(st.sampled_from(CLIPS)))


def judge(loss: Loss, batch: Batch, clipped: bool, **changes: Any) -> Tensor:
    """The subject's losses on a batch, some of its fields exchanged."""
    batch = attrs.evolve(batch, **changes)
    named = {"clip": batch.clip} if clipped else {}
    return loss(batch.log_prob, batch.behaviour_log_prob, batch.advantage, **named)


def gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """The gradient of the sum, by autograd."""
    leaf = at.detach().clone().requires_grad_()
    value = function(leaf).sum()
    if not value.requires_grad:
        return torch.zeros_like(at)
    return torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)[0]


def mapped(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with every tensor changed."""
    return Batch(change(batch.log_prob), change(batch.behaviour_log_prob), change(batch.advantage), batch.clip)


def law_of(
    name: str,
    claim: str,
    mutant: tuple[str, Loss],
    check: Callable[[Loss, Any, Seen], None],
    *needs: str,
    inputs: SearchStrategy[Any] | None = None,
    source: str = PPO,
) -> Law:
    """A law whose mutant is a whole function of its own."""
    edited = Mutant(mutant[0], lambda subject: mutant[1])
    drawn = batches() if inputs is None else inputs
    return Law(name=name, claim=claim, source=source, inputs=always(drawn), check=check, mutant=edited, needs=needs)


def per_step(clipped: bool) -> Law:
    """No reduction inside."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        got = judge(loss, batch, clipped)
        seen("several steps", len(batch.advantage) > 1)
        require(got.shape == batch.advantage.shape, f"got {list(got.shape)}, wanted {list(batch.advantage.shape)}")

    mutant = ("reduces to a mean inside", mutants.reduced)
    return law_of("per_step", "A loss gives one number for each step and leaves reducing to others.", mutant, check)


def policy_gradient(clipped: bool) -> Law:
    """L1, the gradient."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        on_policy = attrs.evolve(batch, behaviour_log_prob=batch.log_prob.clone())
        got = gradient(lambda x: judge(loss, on_policy, clipped, log_prob=x), batch.log_prob)
        seen("a bad action", (batch.advantage < 0).any())
        same("the gradient at ratio 1", got, -batch.advantage, ROUNDING)

    return law_of(
        "on_policy_gradient",
        "At ratio 1 the gradient is the policy gradient, -A, whatever the clip.",
        ("drops steps of negative advantage", mutants.ignores_bad_actions),
        check,
        "a bad action",
    )


def constants(clipped: bool) -> Law:
    """S7, what gets no gradient."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        slopes = {
            "behaviour_log_prob": gradient(
                lambda x: judge(loss, batch, clipped, behaviour_log_prob=x), batch.behaviour_log_prob
            ),
            "advantage": gradient(lambda x: judge(loss, batch, clipped, advantage=x), batch.advantage),
        }
        for name, got in slopes.items():
            require(not bool(got.any()), f"the gradient with respect to {name} is {got.tolist()}, wanted 0")

    return law_of(
        "constants",
        "No gradient flows into advantages and behaviour log-probs.",
        ("forgets to detach the advantage", mutants.live_advantage),
        check,
        source="Sutton et al. 2000: the theorem differentiates log pi alone",
    )


@st.composite
def _poisoned(draw: DrawFn) -> tuple[Batch, Tensor, float]:
    batch = draw(batches())
    rows = draw(st.lists(st.booleans(), min_size=len(batch.advantage), max_size=len(batch.advantage)))
    return batch, torch.tensor(rows), draw(st.sampled_from(POISON))


def _kept_slope(loss: Loss, batch: Batch, clipped: bool, kept: Tensor) -> Tensor:
    return gradient(lambda x: judge(loss, batch, clipped, log_prob=x)[kept], batch.log_prob)


def padding(clipped: bool) -> Law:
    """L5, for a loss that does not reduce."""

    def check(loss: Loss, inputs: tuple[Batch, Tensor, float], seen: Seen) -> None:
        batch, padded, poison = inputs
        kept = ~padded
        seen("a padded step beside a real one", padded.any() & kept.any())
        other = mapped(batch, lambda x: torch.where(padded, poison, x))
        wanted, got = judge(loss, batch, clipped), judge(loss, other, clipped)
        same(f"the loss beside {poison}", got[kept], wanted[kept])
        slopes = [_kept_slope(loss, one, clipped, kept) for one in (batch, other)]
        same(f"the gradient beside {poison}", slopes[1][kept], slopes[0][kept])

    return law_of(
        "padding",
        "A step's loss and gradient ignore what stands at other steps, NaN and infinity included.",
        ("centres the advantages over the batch, padding included", mutants.centred),
        check,
        "a padded step beside a real one",
        inputs=_poisoned(),
        source=PADDING,
    )


@st.composite
def _permuted(draw: DrawFn) -> tuple[Batch, list[int]]:
    batch = draw(batches())
    return batch, draw(st.permutations(range(len(batch.advantage))))


def permutation(clipped: bool) -> Law:
    """L6."""

    def check(loss: Loss, inputs: tuple[Batch, list[int]], seen: Seen) -> None:
        batch, order = inputs
        seen("another order", order != sorted(order))
        other = mapped(batch, lambda x: x[order])
        same("the permuted batch's loss", judge(loss, other, clipped), judge(loss, batch, clipped)[order])

    return law_of(
        "permutation",
        "Permuting the steps permutes the losses.",
        ("shifts the behaviour log-probs by one step", mutants.shifted),
        check,
        "another order",
        inputs=_permuted(),
        source="derived: a sum over steps has no order",
    )


@st.composite
def _smooth_points(draw: DrawFn) -> Batch:
    log_prob, behaviour = -draw(smooth((2,))).abs(), -draw(smooth((2,))).abs()
    return Batch(log_prob, behaviour, draw(smooth((2,))), draw(st.sampled_from((0.25, 0.5))))


def slope(clipped: bool) -> Law:
    """S7, autograd against finite differences."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        step = 1e-6
        got = gradient(lambda x: judge(loss, batch, clipped, log_prob=x), batch.log_prob)
        up, down = (judge(loss, batch, clipped, log_prob=batch.log_prob + sign * step) for sign in (1, -1))
        same("the gradient against finite differences", got, (up - down) / (2 * step), CURVATURE)

    return law_of(
        "gradient_is_the_slope",
        "The gradient autograd gives is the slope of the loss.",
        ("detaches the ratio where the clip does not bind", mutants.detached),
        check,
        inputs=_smooth_points(),
        source="derived: central differences in float64, away from kinks",
    )

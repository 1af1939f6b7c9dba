"""Laws of policy losses, one number per step (L1 to L3, L5, L6 and the gradients of S7).

The subject: f(log_prob, behaviour_log_prob, advantage, *, clip) -> loss [*] or its mean, to be minimised; a loss without a clip
is called without `clip`. The laws of a loss over padded sequences are in masked_loss_laws.
"""

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ..framework.compare import CURVATURE, ROUNDING, require, same
from ..framework.law import Broken, Law, Seen, Suite, law_constructor
from ..strategies.values import POISON, dyadic, log_prob_pairs, smooth

# --- mutants ---
# Common errors in policy losses, each the reference with one edit.


Loss = Callable[..., Tensor]


@attrs.frozen
class Batch:
    """The arguments of a policy loss: three tensors [*], and the clip."""

    log_prob: Tensor
    behaviour_log_prob: Tensor
    advantage: Tensor
    clip: float


def reference(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """max(-A r, -A clip(r)): the definition."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    scale = -advantage.detach()
    return torch.maximum(scale * ratio, scale * ratio.clamp(1 - clip, 1 + clip))


def mean_loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Correct: the mean over the steps, and advantages detached by the caller."""
    ratio = torch.exp(log_prob - behaviour_log_prob)
    return -torch.min(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).mean()


def dual_clip_loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Correct: the ratio of a bad action is at most 3."""
    loss = reference(log_prob, behaviour_log_prob, advantage, clip=clip)
    return torch.where(advantage < 0, torch.min(loss, -3.0 * advantage), loss)


def reduced_to_mean(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Return the mean over the steps instead of one loss per step."""
    return reference(log_prob, behaviour_log_prob, advantage, clip=clip).mean()


def ignores_bad_actions(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Set the loss of steps with a negative advantage to 0."""
    return reference(log_prob, behaviour_log_prob, advantage, clip=clip) * (advantage > 0)


def log_prob_for_ratio(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Return the value of another loss, with the right gradient on policy."""
    surrogate = reference(log_prob, behaviour_log_prob, advantage, clip=clip)
    return surrogate + advantage.detach() * (1 - log_prob.detach())


def optimistic(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Take min instead of max: the sign of the loss was changed, but the minimum was kept."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    scale = -advantage.detach()
    return torch.minimum(scale * ratio, scale * ratio.clamp(1 - clip, 1 + clip))


def clips_both_sides(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Return the clipped term alone, without the unclipped one."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    return -advantage.detach() * ratio.clamp(1 - clip, 1 + clip)


def ratio_to_itself(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Take the ratio to the current policy, not to the behaviour policy."""
    return reference(log_prob, log_prob.detach(), advantage, clip=clip)


def live_advantage(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Leave the advantage attached, so that the policy loss has a gradient in the value network."""
    ratio = torch.exp(log_prob - behaviour_log_prob.detach())
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))


def centred(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Centre the advantages inside the loss."""
    return reference(log_prob, behaviour_log_prob, advantage - advantage.mean(), clip=clip)


def shifted(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Shift the behaviour log-probs by one step against the log-probs."""
    return reference(log_prob, behaviour_log_prob.roll(1, -1), advantage, clip=clip)


def detached(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """A straight-through estimate: right value, right gradient on policy, wrong gradient elsewhere."""
    value = reference(log_prob, behaviour_log_prob, advantage, clip=clip).detach()
    through = -advantage.detach() * (log_prob - log_prob.detach())
    return value + through


def squared_ratio(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    """Multiply by the ratio a loss that contains it already."""
    ratio = torch.exp(log_prob - behaviour_log_prob).detach()
    return ratio * reference(log_prob, behaviour_log_prob, advantage, clip=clip)


MUTANTS: dict[str, Loss] = {"weighs the clipped loss by the ratio once more": squared_ratio}


# --- steps ---
# Laws of any policy loss that returns one number per step (L1, L5, L6 and the gradients of S7).


CLIPS = (0.25, 0.03125, 0.125)  # above 0, where frameworks halve the gradient of a tie at ratio 1
PPO = "Schulman et al. 2017, arXiv:1707.06347, section 3"
LARGE = (1024.0, -1024.0)  # finite padding, larger than any step
NAN = ", NaN and infinity included"  # in claims
PADDING = "objectives: a step that does not count must not count, whatever stands in it"


@st.composite
def batches(draw: DrawFn, size: int = 4) -> Batch:
    """Draw up to `size` on- and off-policy steps, with ratios from exp(-2) to exp(2)."""
    count = draw(st.sampled_from((1, 2, size, size)))
    log_prob, behaviour = draw(log_prob_pairs((count,)))
    return Batch(log_prob, behaviour, draw(dyadic((count,))), draw(st.sampled_from(CLIPS)))


@attrs.frozen
class LossForm:
    """The form of a policy loss, as `loss_laws` declares it."""

    clipped: bool = True
    dual_clip: float | None = None
    mean: bool = False
    poison: tuple[float, ...] = LARGE

    def ratio(self, batch: Batch) -> Tensor:
        """Return the ratio that weights a step without the clip: for a bad action at most `dual_clip`."""
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        most = math.inf if self.dual_clip is None else self.dual_clip
        return torch.where(batch.advantage < 0, ratio.clamp(max=most), ratio)

    def capped(self, batch: Batch) -> Tensor:
        """Return the steps at which `dual_clip` binds."""
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        most = math.inf if self.dual_clip is None else self.dual_clip
        return (batch.advantage < 0) & (ratio > most)


def loss_of_batch(loss: Loss, batch: Batch, form: LossForm) -> Tensor:
    """Return what the subject gives for a batch."""
    named = {"clip": batch.clip} if form.clipped else {}
    return loss(batch.log_prob, batch.behaviour_log_prob, batch.advantage, **named)


def losses_of(loss: Loss, batch: Batch, form: LossForm, **changes: Any) -> Tensor:
    """Return the subject's loss of each step, after replacing the fields in `changes`; of a mean, step by step."""
    batch = attrs.evolve(batch, **changes)
    if not form.mean:
        return loss_of_batch(loss, batch, form)
    steps = [map_batch(batch, lambda x, i=i: x[i : i + 1]) for i in range(len(batch.advantage))]  # type: ignore[misc]
    return torch.stack([loss_of_batch(loss, step, form).reshape(()) for step in steps])


def gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """The gradient of the sum of `function(at)`, by autograd."""
    leaf = at.detach().clone().requires_grad_()
    value = function(leaf).sum()
    if not value.requires_grad:
        return torch.zeros_like(at)
    return torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)[0]


def map_batch(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with `change` applied to every tensor."""
    return Batch(change(batch.log_prob), change(batch.behaviour_log_prob), change(batch.advantage), batch.clip)


law_of = law_constructor(batches, PPO, replaced=True, numeric=True)


def per_step_law(form: LossForm) -> Law:
    """The law that a loss does no reduction."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        got = losses_of(loss, batch, form)
        seen("several steps", len(batch.advantage) > 1)
        require(got.shape == batch.advantage.shape, f"got {list(got.shape)}, wanted {list(batch.advantage.shape)}")

    mutant = ("reduces to a mean inside", reduced_to_mean)
    return law_of("per_step", "A loss gives one number for each step and leaves reducing to others.", mutant, check)


def policy_gradient_law(form: LossForm) -> Law:
    """L1 for the gradient: at ratio 1 it is the policy gradient."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        on_policy = attrs.evolve(batch, behaviour_log_prob=batch.log_prob.clone())
        got = gradient(lambda x: losses_of(loss, on_policy, form, log_prob=x), batch.log_prob)
        seen("a bad action", (batch.advantage < 0).any())
        same("the gradient at ratio 1", got, -batch.advantage, ROUNDING)

    return law_of(
        "on_policy_gradient",
        "At ratio 1 the gradient is the policy gradient, -A, whatever the clip.",
        ("drops steps of negative advantage", ignores_bad_actions),
        check,
        "a bad action",
    )


def constants(form: LossForm) -> Law:
    """S7: no gradient with respect to advantages and behaviour log-probs."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        slopes = {
            "behaviour_log_prob": gradient(
                lambda x: losses_of(loss, batch, form, behaviour_log_prob=x), batch.behaviour_log_prob
            ),
            "advantage": gradient(lambda x: losses_of(loss, batch, form, advantage=x), batch.advantage),
        }
        for name, got in slopes.items():
            require(not bool(got.any()), f"the gradient with respect to {name} is {got.tolist()}, wanted 0")

    return law_of(
        "constants",
        "No gradient flows into advantages and behaviour log-probs.",
        ("forgets to detach the advantage", live_advantage),
        check,
        source="Sutton et al. 2000: the theorem differentiates log pi alone",
    )


@st.composite
def _poisoned(draw: DrawFn, poison: tuple[float, ...]) -> tuple[Batch, Tensor, float]:
    batch = draw(batches())
    rows = draw(st.lists(st.booleans(), min_size=len(batch.advantage), max_size=len(batch.advantage)))
    return batch, torch.tensor(rows), draw(st.sampled_from(poison))


def _kept_slope(loss: Loss, batch: Batch, form: LossForm, kept: Tensor) -> Tensor:
    return gradient(lambda x: losses_of(loss, batch, form, log_prob=x)[kept], batch.log_prob)


def padding(form: LossForm) -> Law:
    """L5 for a loss without reduction: padding does not affect the other steps."""

    def check(loss: Loss, inputs: tuple[Batch, Tensor, float], seen: Seen) -> None:
        batch, padded, poison = inputs
        kept = ~padded
        seen("a padded step beside a real one", padded.any() & kept.any())
        other = map_batch(batch, lambda x: torch.where(padded, poison, x))
        wanted, got = losses_of(loss, batch, form), losses_of(loss, other, form)
        same(f"the loss beside {poison}", got[kept], wanted[kept])
        slopes = [_kept_slope(loss, one, form, kept) for one in (batch, other)]
        same(f"the gradient beside {poison}", slopes[1][kept], slopes[0][kept])

    return law_of(
        "padding",
        f"A step's loss and gradient ignore what stands at other steps{NAN if form.poison is POISON else ''}.",
        ("centres the advantages over the batch, padding included", centred),
        check,
        "a padded step beside a real one",
        inputs=_poisoned(form.poison),
        source=PADDING,
    )


@st.composite
def _permuted(draw: DrawFn) -> tuple[Batch, list[int]]:
    batch = draw(batches())
    return batch, draw(st.permutations(range(len(batch.advantage))))


def permutation_law(form: LossForm) -> Law:
    """L6: permuting the steps permutes the losses."""

    def check(loss: Loss, inputs: tuple[Batch, list[int]], seen: Seen) -> None:
        batch, order = inputs
        seen("another order", order != sorted(order))
        other = map_batch(batch, lambda x: x[order])
        same("the permuted batch's loss", losses_of(loss, other, form), losses_of(loss, batch, form)[order])

    return law_of(
        "permutation",
        "Permuting the steps permutes the losses.",
        ("shifts the behaviour log-probs by one step", shifted),
        check,
        "another order",
        inputs=_permuted(),
        source="derived: a sum over steps has no order",
    )


@st.composite
def _smooth_points(draw: DrawFn) -> Batch:
    log_prob, behaviour = -draw(smooth((2,))).abs(), -draw(smooth((2,))).abs()
    return Batch(log_prob, behaviour, draw(smooth((2,))), draw(st.sampled_from((0.25, 0.5))))


def slope(form: LossForm) -> Law:
    """S7: autograd against finite differences."""

    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        step = 1e-6
        got = gradient(lambda x: losses_of(loss, batch, form, log_prob=x), batch.log_prob)
        up, down = (losses_of(loss, batch, form, log_prob=batch.log_prob + sign * step) for sign in (1, -1))
        same("the gradient against finite differences", got, (up - down) / (2 * step), CURVATURE)

    return law_of(
        "gradient_is_the_slope",
        "The gradient autograd gives is the slope of the loss.",
        ("detaches the ratio where the clip does not bind", detached),
        check,
        inputs=_smooth_points(),
        source="derived: central differences in float64, away from kinks",
    )


# --- laws ---


def loss_laws(
    clipped: bool = True,
    *,
    dual_clip: float | None = None,
    mean: bool = False,
    detached: bool = False,
    nan_padding: bool = False,
) -> Suite:
    """The laws of a policy loss. A `clipped` loss takes `clip`; the laws of clipping are added.

    `dual_clip` bounds the ratio of a bad action (Ye et al. 2020, arXiv:1912.09729). `mean`: the loss of a batch is one number,
    the mean over its steps. `detached`: the loss itself detaches advantages and behaviour log-probs, which many leave to the
    caller. `nan_padding`: it claims that NaN and infinity at one step stay there.
    """
    form = LossForm(clipped, dual_clip, mean, POISON if nan_padding else LARGE)
    always = [_mean_of_steps] if mean else [per_step_law, padding, permutation_law]
    always += [policy_gradient_law, slope, *([constants] if detached else [])]
    only_clipped = [_surrogate, _pessimism, _gradient_stops, _unclipped] if clipped else []
    return Suite("loss_laws", tuple(law(form) for law in (*always, *only_clipped)))


def _centred_mean(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, *, clip: float) -> Tensor:
    return centred(log_prob, behaviour_log_prob, advantage, clip=clip).mean()


def _mean_of_steps(form: LossForm) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        seen("several steps that differ", len(set(batch.advantage.tolist())) > 1)
        got = loss_of_batch(loss, batch, form)
        require(got.numel() == 1, f"got {list(got.shape)}, wanted one number")
        same("the loss of the batch", got.reshape(()), losses_of(loss, batch, form).mean(), ROUNDING)

    return law_of(
        "mean_of_steps",
        "The loss of a batch is the mean of the losses of its steps.",
        ("centres the advantages over the batch", _centred_mean),
        check,
        "several steps that differ",
        source="derived: a mean over steps",
    )


def _surrogate(form: LossForm) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        on_policy = attrs.evolve(batch, behaviour_log_prob=batch.log_prob.clone())
        same("the loss at ratio 1", losses_of(loss, on_policy, form), -batch.advantage)

    mutant = ("maximises log pi A inside the clip, not the ratio", log_prob_for_ratio)
    return law_of("on_policy_value", "At ratio 1 the loss is -A.", mutant, check)


def _pessimism(form: LossForm) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        objective, bound = -losses_of(loss, batch, form), form.ratio(batch) * batch.advantage
        outside = (ratio > 1 + batch.clip) | (ratio < 1 - batch.clip)
        seen("a ratio outside the clip", (outside & (batch.advantage != 0)).any())
        above = objective > bound + 1e-5 * bound.abs()
        if bool(above.any()):
            i = int(above.nonzero()[0])
            promised, unclipped = float(objective[i]), float(bound[i])
            raise Broken(f"the objective of step {i} is {promised}, above ratio times advantage, {unclipped}")

    return law_of(
        "pessimism",
        "The objective never promises more than ratio times advantage.",
        ("takes the larger of the two objectives", optimistic),
        check,
        "a ratio outside the clip",
    )


def _gradient_stops(form: LossForm) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        above, below = ratio > 1 + batch.clip, ratio < 1 - batch.clip
        good, bad = batch.advantage > 0, batch.advantage < 0
        stops = (good & above) | (bad & below) | form.capped(batch)
        names = {"above, A > 0": good & above, "below, A < 0": bad & below, "above, A < 0": bad & above}
        for name, where in names.items():
            seen(f"a ratio {name}", where.any())
        got = gradient(lambda x: losses_of(loss, batch, form, log_prob=x), batch.log_prob)
        wanted = torch.where(stops, 0.0, -ratio * batch.advantage)
        same("the gradient", got, wanted, ROUNDING)
        require(not bool(got[stops].any()), "a clipped step has a gradient")

    return law_of(
        "gradient_stops_at_the_clip",
        "The gradient is 0 exactly where A > 0 and the ratio is above, or A < 0 and it is below; elsewhere -A ratio.",
        ("clips on both sides, whatever the sign of A", clips_both_sides),
        check,
        "a ratio above, A > 0",
        "a ratio below, A < 0",
        "a ratio above, A < 0",
    )


def _unclipped(form: LossForm) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        seen("an off-policy step", ((ratio != 1) & (batch.advantage != 0)).any())
        wanted = -form.ratio(batch) * batch.advantage
        same("the loss without a clip", losses_of(loss, batch, form, clip=math.inf), wanted, ROUNDING)

    return law_of(
        "no_clip_is_importance_weighting",
        "With an infinite clip the loss is -A times the ratio to the behaviour policy.",
        ("takes the ratio to its own detached log-prob: it is always 1", ratio_to_itself),
        check,
        "an off-policy step",
        source=f"{PPO}; TRL 2769",
    )

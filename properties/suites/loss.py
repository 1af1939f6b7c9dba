"""Laws of policy losses, one number a step (L1 to L3, L5, L6 and the gradients of S7).

The subject: f(log_prob, behaviour_log_prob, advantage, *, clip) -> loss [*], to be minimised; a loss without a clip is asked
without one. A loss that reduces has laws of its own, in masked_loss_laws.
"""

import math

import attrs
import torch

from ..framework.compare import ROUNDING, require, same
from ..framework.law import Broken, Law, Seen, Suite
from . import loss_mutants as mutants
from .loss_mutants import Batch, Loss
from .loss_steps import PPO, constants, gradient, judge, law_of, padding, per_step, permutation, policy_gradient, slope


def loss_laws(clipped: bool = True) -> Suite:
    """The laws of a policy loss of one number a step; `clipped` says whether it takes `clip` and so has the laws of one."""
    always = (per_step, policy_gradient, constants, padding, permutation, slope)
    only_clipped = (_surrogate, _pessimism, _gradient_stops, _unclipped) if clipped else ()
    return Suite("loss_laws", tuple(law(clipped) for law in (*always, *only_clipped)))


def _surrogate(clipped: bool) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        on_policy = attrs.evolve(batch, behaviour_log_prob=batch.log_prob.clone())
        same("the loss at ratio 1", judge(loss, on_policy, clipped), -batch.advantage)

    mutant = ("maximises log pi A inside the clip, not the ratio", mutants.log_prob_for_ratio)
    return law_of("on_policy_value", "At ratio 1 the loss is -A.", mutant, check)


def _pessimism(clipped: bool) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        objective = -judge(loss, batch, clipped)
        outside = (ratio > 1 + batch.clip) | (ratio < 1 - batch.clip)
        seen("a ratio outside the clip", (outside & (batch.advantage != 0)).any())
        above = objective > ratio * batch.advantage
        if bool(above.any()):
            i = int(above.nonzero()[0])
            promised, unclipped = float(objective[i]), float((ratio * batch.advantage)[i])
            raise Broken(f"the objective of step {i} is {promised}, above ratio times advantage, {unclipped}")

    return law_of(
        "pessimism",
        "The objective never promises more than ratio times advantage.",
        ("takes the larger of the two objectives", mutants.optimistic),
        check,
        "a ratio outside the clip",
    )


def _gradient_stops(clipped: bool) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        above, below = ratio > 1 + batch.clip, ratio < 1 - batch.clip
        good, bad = batch.advantage > 0, batch.advantage < 0
        stops = (good & above) | (bad & below)
        names = {"above, A > 0": good & above, "below, A < 0": bad & below, "above, A < 0": bad & above}
        for name, where in names.items():
            seen(f"a ratio {name}", where.any())
        got = gradient(lambda x: judge(loss, batch, clipped, log_prob=x), batch.log_prob)
        wanted = torch.where(stops, 0.0, -ratio * batch.advantage)
        same("the gradient", got, wanted, ROUNDING)
        require(not bool(got[stops].any()), "a clipped step has a gradient")

    return law_of(
        "gradient_stops_at_the_clip",
        "The gradient is 0 exactly where A > 0 and the ratio is above, or A < 0 and it is below; elsewhere -A ratio.",
        ("clips on both sides, whatever the sign of A", mutants.clips_both_sides),
        check,
        "a ratio above, A > 0",
        "a ratio below, A < 0",
        "a ratio above, A < 0",
    )


def _unclipped(clipped: bool) -> Law:
    def check(loss: Loss, batch: Batch, seen: Seen) -> None:
        ratio = torch.exp(batch.log_prob - batch.behaviour_log_prob)
        seen("an off-policy step", ((ratio != 1) & (batch.advantage != 0)).any())
        same("the loss without a clip", judge(loss, batch, clipped, clip=math.inf), -ratio * batch.advantage, ROUNDING)

    return law_of(
        "no_clip_is_importance_weighting",
        "With an infinite clip the loss is -A times the ratio to the behaviour policy.",
        ("takes the ratio to its own detached log-prob: it is always 1", mutants.ratio_to_itself),
        check,
        "an off-policy step",
        source=f"{PPO}; TRL 2769",
    )

"""PPO with two anchors as people get it wrong: each is what is right, written once more with one mistake."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled import interpolation
from purestep.algorithms.decoupled_ppo import FIGURES, Versioned, proximal_log_prob
from purestep.algorithms.importance import effective_fraction
from purestep.algorithms.policy_losses import ppo_clip
from purestep.algorithms.ppo_passes import METRICS, Sample, Settings, learner, prepared
from purestep.core.optim import Optimizer
from purestep.core.policy import ActorCritic
from purestep.core.record import replace

Make = Callable[..., Algorithm]  # what `decoupled_ppo` is
Row = tuple[Tensor, Tensor, Tensor, Tensor]  # log-probs p, q, b of the rows, and the share of each


@frozen
class _Choices:
    """Where mistakes are made."""

    near: Callable[[Row], Tensor] = lambda row: row[1]  # around what the ratio is clipped
    weighed: Callable[[Tensor], Tensor] = lambda weight: weight  # of the weights
    share: Callable[[Tensor, Tensor], Tensor] = interpolation  # (version, current)


def _written(choices: _Choices) -> Callable[[Make], Make]:
    def mutant(right: Make) -> Make:
        return partial(_made, choices)

    return mutant


def _made(choices: _Choices, model: ActorCritic, optimizer: Optimizer, **given: Any) -> Algorithm:
    proximal, weights = given.pop("proximal"), given.pop("weights")
    usual = {"gamma": 0.99, "lambda_": 0.95, "clip": 0.2, "value_clip": math.inf, "epochs": 4, "minibatches": 4}
    others = {"value_coefficient": 0.5, "entropy_coefficient": 0.01, "target_kl": math.inf, "advantages": "minibatch"}
    numbers = Settings(**(usual | others | given))  # type: ignore[arg-type]

    def samples_of(params: Any, told: Any, step: Tensor) -> Sample:
        played = told.trajectory if isinstance(told, Versioned) else told
        recomputed = proximal_log_prob(model, params, played)
        share = (
            choices.share(told.version, step) if proximal == "interpolated" else torch.full_like(recomputed, math.nan)
        )
        return replace(prepared(model, params, played, numbers), anchor=(recomputed.flatten(0, 1), share.flatten(0, 1)))

    def surrogate(log_prob: Tensor, sample: Sample, advantage: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        (recomputed, share), played, now = sample.anchor, sample.behaviour_log_prob, log_prob.detach()
        q = torch.where(share.isnan(), recomputed, played + share.nan_to_num() * (now - played))
        near = choices.near((now, q, played, share))
        weight = choices.weighed(weights(q, played, torch.ones_like(q, dtype=torch.bool)))
        loss = weight * ppo_clip(log_prob, near, advantage, clip=numbers.clip)
        return loss, near, (weight.mean(), effective_fraction(weight, torch.ones_like(q, dtype=torch.bool)))

    return learner(model, optimizer, numbers, surrogate, samples_of, (*METRICS, *FIGURES))


right = _written(_Choices())
current_is_proximal = _written(_Choices(near=lambda row: row[0]))
clips_around_sampler = _written(_Choices(near=lambda row: row[2]))
unweighted = _written(_Choices(weighed=torch.ones_like))
inverse_weight = _written(_Choices(weighed=lambda weight: 1 / weight))
of_those_kept = _written(_Choices(weighed=lambda weight: weight / (weight > 0).to(weight.dtype).mean().clamp(min=1e-6)))
one_more = _written(_Choices(share=lambda version, current: interpolation(version, current + 1)))
the_other_end = _written(_Choices(share=lambda version, current: _turned(interpolation(version, current))))


def _turned(share: Tensor) -> Tensor:
    return torch.where(share > 0, 1 - share, share)


def old_values(right: Make) -> Make:
    """Counts its updates twice, so that everything looks one update older than it is."""

    def make(*given: Any, **named: Any) -> Algorithm:
        algorithm = right(*given, **named)

        def update(state: Any, told: Any, key: Any) -> Any:
            return algorithm.update(replace(state, step=2 * state.step), told, key)

        return evolve(algorithm, update=update)

    return make


MUTANTS: dict[str, Callable[[Make], Make]] = {
    "weighs by the inverse": inverse_weight,
    "counts its updates twice": old_values,
}

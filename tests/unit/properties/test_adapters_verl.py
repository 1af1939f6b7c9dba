"""Functions of verl's form keep the laws through its adapters, and one with a mistake breaks a law."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import Tensor

from purestep.properties import (
    Broken,
    Suite,
    aggregate_laws,
    group_laws,
    kl_laws,
    loss_laws,
    run,
    token_gae_laws,
    value_loss_laws,
    verify,
)
from purestep.properties.adapters import verl
from purestep.properties.framework.profiles import named_profile
from purestep.properties.framework.report import BROKEN

FEWER = evolve(named_profile("quick"), examples=12)
Row = tuple[Suite, Any]


def agg_loss(loss: Tensor, mask: Tensor, mode: str) -> Tensor:
    """A loss of tokens as one number, in a mode named with verl's words."""
    kept = torch.where(mask > 0, loss, 0.0)
    own, count = kept.sum(-1), mask.sum(-1)
    rows = (count > 0).sum()
    return {
        "token-mean": own.sum() / count.sum(),
        "token-sum": own.sum(),
        "seq-mean-token-sum": own.sum() / rows,
        "seq-mean-token-mean": (own / count.clamp(min=1)).sum() / rows,
    }[mode]


def over_all(loss: Tensor, mask: Tensor, mode: str) -> Tensor:
    """The mean over all columns, of padding too."""
    return (loss * mask).mean()


def grouped(name: str, centre: Callable[[Tensor], Tensor], alone: float = 1.0) -> Callable[..., Any]:
    """An outcome advantage f(token rewards, mask, group names); a group of one keeps this share of its reward."""

    def advantage(rewards: Tensor, mask: Tensor, index: Any) -> tuple[Tensor, Tensor]:
        score, names = rewards.sum(-1), torch.as_tensor(index)
        found = alone * score
        for one in torch.unique(names):
            own = names == one
            if int(own.sum()) > 1:
                found[own] = centre(score[own])
        return found[:, None] * mask, found[:, None] * mask

    advantage.__name__ = name
    return advantage


def centred(own: Tensor) -> Tensor:
    return own - own.mean()


def left_out(own: Tensor) -> Tensor:
    return centred(own) * len(own) / (len(own) - 1)


grpo = grouped("compute_grpo_outcome_advantage", lambda own: centred(own) / (own.std() + 1e-6))
uncorrected = grouped("compute_grpo_outcome_advantage", lambda own: centred(own) / (own.std(correction=0) + 1e-6))
rloo = grouped("compute_rloo_outcome_advantage", left_out)
vectorized = grouped("compute_rloo_vectorized_outcome_advantage", left_out, alone=0.0)
with_itself = grouped("compute_rloo_outcome_advantage", centred)


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float, *, skips: bool = True) -> Any:
    """Whitened advantages, and returns; with `skips`, tokens outside of the mask take no time."""
    after, following = torch.zeros(2, len(rewards), dtype=values.dtype)
    found = torch.zeros_like(values)
    for t in reversed(range(rewards.shape[1])):
        live = (mask[:, t] > 0) | (not skips)
        delta = rewards[:, t] + gamma * following - values[:, t]
        after = torch.where(live, delta + gamma * lam * after, after)
        following = torch.where(live, values[:, t], following)
        found[:, t] = after
    kept = found[mask > 0]
    return (found - kept.mean()) / kept.std(), found + values


def policy_loss(old: Tensor, new: Tensor, advantage: Tensor, mask: Tensor, mode: str, config: Any) -> Any:
    """The clipped loss, bounded where the advantage is negative, and the share of clipped ratios."""
    ratio = (new - old).exp()
    near = ratio.clamp(1 - config.clip_ratio_low, 1 + config.clip_ratio_high)
    loss = torch.maximum(-advantage * ratio, -advantage * near)
    bounded = torch.minimum(loss, -advantage * config.get("clip_ratio_c", 3.0))
    return agg_loss(torch.where(advantage < 0, bounded, loss), mask, mode), (ratio != near).float().mean()


def unbounded(old: Tensor, new: Tensor, advantage: Tensor, mask: Tensor, mode: str, config: Any) -> Any:
    """The same without a bound."""
    config.get = lambda name, default: torch.inf
    return policy_loss(old, new, advantage, mask, mode, config)


def kl_penalty(log_prob: Tensor, ref_log_prob: Tensor, kind: str) -> Tensor:
    off = log_prob - ref_log_prob
    return {"k1": off, "k2": off.square() / 2, "k3": (-off).exp() + off - 1, "turned": off.exp() - off - 1}[kind]


def value_loss(
    found: Tensor, returns: Tensor, values: Tensor, mask: Tensor, clip: float, mode: str, *, pick: Any = torch.maximum
) -> Any:
    """Half of the larger of two squared errors, and a share."""
    near = torch.minimum(torch.maximum(found, values - clip), values + clip)
    loss = pick((found - returns) ** 2, (near - returns) ** 2)
    return 0.5 * agg_loss(loss, mask, mode), torch.zeros(())


def aggregated(function: Any, mode: str) -> Row:
    return aggregate_laws(**verl.weights(function, mode=mode)), verl.aggregation(function, mode=mode)


def estimated(function: Any) -> Row:
    return group_laws(**verl.group(function)), verl.group_advantage(function)


def valued(function: Any) -> Row:
    return value_loss_laws(**verl.value_claims(function)), verl.value_loss(function)


dual = loss_laws(mean=True, dual_clip=3.0)
RIGHT: dict[str, Row] = {
    **{mode: aggregated(agg_loss, mode) for mode in verl.MODES},
    "grpo": estimated(grpo),
    "rloo": estimated(rloo),
    "rloo, vectorized": estimated(vectorized),
    "gae": (token_gae_laws(), verl.token_gae(gae)),
    "policy loss": (dual, verl.policy_loss(policy_loss)),
    "k1": (kl_laws(never_negative=False), verl.kl(kl_penalty, kind="k1")),
    "k3": (kl_laws(), verl.kl(kl_penalty)),
    "value loss": valued(value_loss),
}
WRONG: dict[str, tuple[Row, str]] = {
    "the mean over padding": (aggregated(over_all, "token-mean"), "declared_weights"),
    "a spread of all": (estimated(uncorrected), "definition"),
    "a mean with itself": (estimated(with_itself), "definition"),
    "padding that takes time": ((token_gae_laws(), verl.token_gae(partial(gae, skips=False))), "context_takes_no_time"),
    "no second bound": ((dual, verl.policy_loss(unbounded)), "no_clip_is_importance_weighting"),
    "k3 turned around": ((kl_laws(), verl.kl(kl_penalty, kind="turned")), "expectation"),
    "the smaller of two": (valued(partial(value_loss, pick=torch.minimum)), "clipping_never_helps"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_function_of_its_form_keeps_the_laws_that_are_declared_for_it(name: str) -> None:
    suite, subject = RIGHT[name]
    report = verify(suite, subject, profile=FEWER)
    assert report, report


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_function_of_its_form_is_found_by_the_law_about_it(name: str) -> None:
    (suite, subject), law = WRONG[name]
    result = run(suite[law], subject, shrink=False)
    assert result.outcome == BROKEN
    assert isinstance(result.error, Broken), result

"""How a user would point a suite at each bug: the suite, what is declared, and a few lines that call the object as it is."""

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor


def same(subject: Any) -> Any:
    """As it is."""
    return subject


@frozen
class Use:
    """A suite by its name without `_laws`, its keywords, and the subject made of a bug or its twin."""

    suite: str
    subject: Callable[[Any], Any] = same
    declared: Mapping[str, Any] = field(factory=dict)
    given: Mapping[str, Any] = field(factory=dict)  # values of further parameters, with the catalogue's binding
    bound: bool = False  # by the names of its parameters, as `purestep verify` does


def per_step(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss that is reduced, one step at a time."""

    def loss(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, **words: Any) -> Tensor:
        flat = [x.reshape(-1) for x in (log_prob, behaviour_log_prob, advantage)]
        found = [call(*[x[i : i + 1] for x in flat], **words) for i in range(len(flat[0]))]
        return torch.stack(found).reshape(log_prob.shape) if found else log_prob * 0

    return loss


# --- distributions ---


def mean_squashed(actor: Any) -> Any:
    """The actor with the mean and the deviation of a network."""

    def make(mean: Tensor, log_std: Tensor) -> Any:
        made = actor(1, mean.shape[-1])
        del made.mu, made.log_std
        made.mu, made.log_std = (lambda obs: mean), log_std
        return SimpleNamespace(sample=lambda: made.sample(mean)[0], log_prob=lambda action: made.log_prob(mean, action))

    return make


def sparse(make: Any) -> Any:
    """Legal actions by their indices, for a mask that is the same in all rows."""
    return lambda logits: make(torch.cat([logits, logits[..., :1]], -1), torch.arange(0, logits.shape[-1] + 1)[1:])


# --- estimators ---


def windowed(gae: Any) -> Any:
    """Ends of any kind, and the value after the window."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], gamma, lambda_)


def first_of(gae: Any) -> Any:
    """The advantages of a pair."""
    return lambda r, v, n, te, tr, *, gamma, lambda_: gae(r, v, te | tr, n[-1], gamma, lambda_)[0]


def batched(gae: Any) -> Any:
    """A batch of one."""
    return lambda *columns, gamma, lambda_: gae(*[x[None] for x in columns], gamma, lambda_)[0]


def plain_gae(gae: Any) -> Any:
    """By position."""
    return lambda *columns, gamma, lambda_: gae(*columns, gamma, lambda_)


# --- losses ---


def halves(loss: Any) -> Any:
    """An action of two parts."""
    return per_step(
        lambda lp, old, adv, *, clip: loss({"a": lp / 2, "b": lp / 2}, {"a": old / 2, "b": old / 2}, adv, clip)
    )


def one_token(loss: Any) -> Any:
    """Completions of one token."""
    return per_step(lambda lp, old, adv, *, clip: loss(lp[None], old[None], adv, torch.ones_like(lp)[None], clip))


def two_way(log_prob: Tensor) -> Tensor:
    """Logits of two outcomes, the first of which has this log-prob."""
    return torch.stack([log_prob, torch.log1p(-log_prob.exp().clamp(max=1 - 1e-6))], -1)


def at_temperature(ratio: Any) -> Any:
    """A sampler at temperature 1/2."""

    def weights(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        lp, old = torch.where(mask, log_prob, -1.0), torch.where(mask, sampler, -1.0)
        found = ratio(0.5 * two_way(lp), torch.zeros_like(mask, dtype=torch.long), old, 0.5)
        return torch.where(mask, found.clamp(0.5, 2.0), 0.0)

    return weights


def each_sample(penalty: Any) -> Any:
    """One token at a time."""

    def estimate(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
        one = torch.ones(1, 1)
        return torch.stack(
            [penalty(p[None, None], q[None, None], one) for p, q in zip(log_prob, reference_log_prob, strict=True)]
        )

    return estimate


# --- the table ---

USES: dict[str, Use] = {
    "tanh_on_mean_corrected": Use("distribution", mean_squashed),
    "decay_after_update": Use(
        "optimizer", lambda o: functools.partial(o, weight_decay=0.1), {"rule": "adamw", "weight_decay": 0.1}
    ),
    "bootstrap_counted_twice": Use("estimator", windowed, {"convention": "terminate"}),
    "truncation_masks_value": Use("estimator", plain_gae),
    "end_of_the_next_step": Use("estimator", first_of, {"convention": "terminate"}),
    "timeout_of_state_before": Use("estimator", batched),
    "clipped_from_epsilon": Use("loss", lambda f: per_step(lambda lp, old, adv, *, clip: f(lp, old, adv, clip))),
    "each_part_clipped": Use("loss", halves),
    "ratio_to_itself": Use("loss", one_token),
    "kl_the_other_way": Use("kl"),
    "estimators_fall_through": Use("kl", lambda f: functools.partial(f, kl_estimator="k2"), {"unbiased": False}),
    "square_not_halved": Use("kl", each_sample, {"unbiased": False}),
    "temperature_on_one_side": Use("importance", at_temperature, {"low": 0.5, "high": 2.0}),
}

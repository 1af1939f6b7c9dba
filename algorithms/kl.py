"""Estimators of a Kullback-Leibler divergence, one number per sample, and KL penalties per token of a language model.

Three of them estimate KL(p || q) = E_p[log p - log q] from samples of p, with d = log q - log p:

    k1 = -d              unbiased, high variance, may be negative
    k2 = d^2 / 2         biased, low variance, never negative
    k3 = e^d - 1 - d     unbiased, low variance, never negative

Gradients are those of these formulas; none of them is the gradient of the divergence itself. Penalties against a reference
policy (`token_kl` added to a loss, `kl_reward` subtracted from rewards) take an estimator, and `limit`, to which the
difference of log-probs is clamped (AReaL and PipelineRL: 10; TRL and the default here: no limit).
Source: Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..core.shapes import same_shape
from .hyperparameters import Number, bounded, check_number
from .language.masking import neutral


def k1(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return log p - log q: [*], [*] -> [*]. Raises: ShapeError.

    >>> k1(torch.tensor([-1.0]), torch.tensor([-3.0]))
    tensor([2.])
    """
    same_shape("k1", log_prob=log_prob, reference_log_prob=reference_log_prob)
    return log_prob - reference_log_prob


def k2(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return (log q - log p)^2 / 2: [*], [*] -> [*]. Raises: ShapeError.

    >>> k2(torch.tensor([-1.0]), torch.tensor([-3.0]))
    tensor([2.])
    """
    same_shape("k2", log_prob=log_prob, reference_log_prob=reference_log_prob)
    return 0.5 * (reference_log_prob - log_prob).square()


def k3(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return q / p - 1 - log(q / p): [*], [*] -> [*]. Raises: ShapeError.

    >>> k3(torch.log(torch.tensor([0.5])), torch.log(torch.tensor([0.25])))
    tensor([0.1931])
    """
    same_shape("k3", log_prob=log_prob, reference_log_prob=reference_log_prob)
    difference = reference_log_prob - log_prob
    return torch.expm1(difference) - difference


Estimator = Callable[[Tensor, Tensor], Tensor]


def token_kl(
    log_prob: Tensor, reference_log_prob: Tensor, mask: Tensor, *, estimator: Estimator = k3, limit: Number = math.inf
) -> Tensor:
    """Return an estimate of KL(policy || reference) for each token, to be added to its loss with a coefficient.

    k(log p, log q) with log q - log p clamped to +-`limit`; the gradient is that of the estimator, 0 beyond the limit, and
    none flows into the reference. The default k3 is GRPO's loss term; `k3_with_gradient_of_k2` is verl's "k3+". TRL, from
    1.16 on, multiplies k3 by the current ratio to the behaviour policy unless `use_bias_correction_kl=False`.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Shao et al. 2024, arXiv:2402.03300, equation 4.

    >>> log_prob, mask = torch.tensor([-1.0, torch.nan]), torch.tensor([True, False])
    >>> token_kl(log_prob, torch.tensor([-3.0, 0.0]), mask, estimator=k1)
    tensor([2., 0.])
    """
    same_shape("token_kl", log_prob=log_prob, reference_log_prob=reference_log_prob, mask=mask)
    check_number("token_kl: limit", limit, 0.0)
    log_prob, reference = neutral(mask, log_prob, reference_log_prob)
    difference = bounded(log_prob - reference.detach(), -limit, limit)
    # Estimators depend on the difference only, so pass the difference as one log-prob and 0 as the other.
    return torch.where(mask, estimator(difference, torch.zeros_like(difference)), 0.0)


def kl_reward(
    reward: Tensor,
    log_prob: Tensor,
    reference_log_prob: Tensor,
    mask: Tensor,
    *,
    coefficient: Number,
    estimator: Estimator = k1,
    limit: Number = math.inf,
) -> Tensor:
    """Return the rewards of tokens minus the KL penalty: r_t - coefficient sg(k_t); padding gets 0.

    Log-probs are those of the policy that sampled. Put a reward for the whole sequence at its last token.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Ziegler et al. 2019, arXiv:1909.08593, equation 2 (k1).

    >>> two = torch.ones(2, dtype=torch.bool)
    >>> kl_reward(torch.tensor([0.0, 1.0]), torch.tensor([-1.0, -1.0]), torch.tensor([-3.0, -1.0]), two, coefficient=0.5)
    tensor([-1.,  1.])
    """
    same_shape("kl_reward", reward=reward, mask=mask)
    (kept,) = neutral(mask, reward)
    estimate = token_kl(log_prob, reference_log_prob, mask, estimator=estimator, limit=limit)
    return kept - coefficient * estimate.detach()


def k3_with_gradient_of_k2(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return k3's value with k2's gradient, log p - log q, which is that of the divergence on policy: [*], [*] -> [*].

    The gradient of k3 itself, 1 - q / p, is on policy that of the reverse divergence. Raises: ShapeError.
    Source: Liu et al. 2025, arXiv:2510.01555, "Rethinking KL regularization in RLHF".

    >>> log_prob = torch.tensor([0.5]).log().requires_grad_()
    >>> estimate = k3_with_gradient_of_k2(log_prob, torch.tensor([0.25]).log())
    >>> estimate.detach(), torch.autograd.grad(estimate.sum(), log_prob)
    (tensor([0.1931]), (tensor([0.6931]),))
    """
    slope = k2(log_prob, reference_log_prob)
    return k3(log_prob, reference_log_prob).detach() + (slope - slope.detach())

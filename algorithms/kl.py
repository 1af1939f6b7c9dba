"""Three estimators of a Kullback-Leibler divergence, one number per sample, never reduced.

They estimate KL(p || q) = E_p[log p - log q] from samples of p, with d = log q - log p:

    k1 = -d              unbiased, high variance, may be negative
    k2 = d^2 / 2         biased, low variance, never negative
    k3 = e^d - 1 - d     unbiased, low variance, never negative

Gradients are those of these formulas; none of them is the gradient of the divergence itself.
Source: Schulman 2020, "Approximating KL divergence", joschu.net/blog/kl-approx.html.
"""

import torch
from torch import Tensor

from ..core.shapes import same_shape


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

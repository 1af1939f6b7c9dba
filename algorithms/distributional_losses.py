"""Losses of distributions of returns: the projection onto fixed returns, and the regression of quantiles."""

import torch
from torch import Tensor

from ..core.errors import ShapeError, message
from .dqn import huber
from .hyperparameters import Number


def project_categorical(probs: Tensor, reward: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """Return the probabilities on the support of reward + discount z, where z has `probs` on the support.

    p_i = sum_j probs_j max(0, 1 - |clip(r + discount z_j, z_1, z_N) - z_i| / (z_2 - z_1))

    A return between two of the support is shared by these, so that its mean is kept; one beyond the ends goes to the end.
    Shapes: probs [*, N], reward and discount [*], support [N], equally spaced and increasing -> [*, N]. Raises: ShapeError.
    Source: Bellemare et al. 2017, arXiv:1707.06887, equation 7.

    >>> support = torch.tensor([0.0, 1.0, 2.0])
    >>> project_categorical(torch.tensor([0.0, 0.5, 0.5]), torch.tensor(0.5), torch.tensor(0.5), support)  # 1 and 1.5
    tensor([0.0000, 0.7500, 0.2500])
    >>> project_categorical(torch.tensor([0.0, 0.5, 0.5]), torch.tensor(9.0), torch.tensor(0.0), support)
    tensor([0., 0., 1.])
    """
    atoms = support.shape[0]
    if atoms < 2 or probs.shape[-1] != atoms:
        wanted, remedy = f"[*, {atoms}], two or more", "pass one probability for each return of the support"
        raise ShapeError(message("project_categorical: probs", got=list(probs.shape), wanted=wanted, remedy=remedy))
    low, high = support[0], support[-1]
    moved = torch.clamp(reward[..., None] + discount[..., None] * support, low, high)
    spaces = (moved[..., None, :] - support[:, None]).abs() * ((atoms - 1) / (high - low))
    return (torch.clamp(1.0 - spaces, min=0.0) * probs[..., None, :]).sum(-1)


def quantile_huber_loss(quantiles: Tensor, returns: Tensor, levels: Tensor, threshold: Number = 1.0) -> Tensor:
    """Return the loss of quantiles q at levels u against samples g of the return, least where q are its quantiles.

    sum_i mean_j |u_i - 1[g_j < q_i]| huber(g_j - q_i, k) / k

    Shapes: quantiles [*, N], returns [*, M], levels [*, N] or [N] -> [*]. There is a gradient of the quantiles only.
    Source: Dabney et al. 2018, arXiv:1806.06923, equation 3; for threshold k = 1 that of arXiv:1710.10044.

    >>> loss = quantile_huber_loss(torch.tensor([0.0]), torch.tensor([2.0, -1.0]), torch.tensor([0.25]))
    >>> loss  # (0.25 * 1.5 + 0.75 * 0.5) / 2
    tensor(0.3750)
    """
    errors = returns.detach()[..., None, :] - quantiles[..., :, None]
    weights = (levels[..., None] - (errors.detach() < 0).to(errors.dtype)).abs()
    return (weights * huber(errors, threshold) / threshold).mean(-1).sum(-1)

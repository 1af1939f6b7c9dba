"""Value losses: clipping, shapes and scale."""

import torch
from torch import Tensor, nn

from .bug import Bug


def critic_loss(head: nn.Module, features: Tensor, returns: Tensor) -> Tensor:
    """The mean squared error of a critic's head [B, 1] to returns [B]."""
    return nn.functional.mse_loss(head(features), returns)


def critic_loss_fixed(head: nn.Module, features: Tensor, returns: Tensor) -> Tensor:
    """A value for each return."""
    return nn.functional.mse_loss(head(features).squeeze(-1), returns)


def clipped_critic(values: Tensor, returns: Tensor, prev_values: Tensor, value_clip: float = 0.2) -> Tensor:
    """PPO's clipped critic loss; returns and previous values are [B, 1], as a rollout stores them."""
    clipped = prev_values + (values - prev_values).clamp(-value_clip, value_clip)
    return 0.5 * torch.max((returns - values) ** 2, (returns - clipped) ** 2).mean()


def clipped_critic_fixed(values: Tensor, returns: Tensor, prev_values: Tensor, value_clip: float = 0.2) -> Tensor:
    """Values of any layout, one for each return."""
    return clipped_critic(values.reshape(returns.shape), returns, prev_values, value_clip)


def clipped_around_return(values: Tensor, old_values: Tensor, returns: Tensor, clip_param: float = 0.2) -> Tensor:
    """The clipped value loss of PPO."""
    del old_values
    clipped = returns + (values - returns).clamp(-clip_param, clip_param)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()


def clipped_around_return_fixed(values: Tensor, old_values: Tensor, returns: Tensor, clip_param: float = 0.2) -> Tensor:
    """Clips the change of the value since the rollout."""
    clipped = old_values + (values - old_values).clamp(-clip_param, clip_param)
    return 0.5 * torch.maximum((values - returns) ** 2, (clipped - returns) ** 2).mean()


def accumulated(critic: nn.Module, obs: Tensor, returns: Tensor, minibatches: int) -> list[Tensor]:
    """Gradients of a critic over one batch that is worked off in minibatches."""
    critic.zero_grad()
    for part_obs, part_returns in zip(obs.chunk(minibatches), returns.chunk(minibatches), strict=True):
        nn.functional.mse_loss(critic(part_obs).squeeze(-1), part_returns).backward()
    return [p.grad.clone() for p in critic.parameters() if p.grad is not None]


def accumulated_fixed(critic: nn.Module, obs: Tensor, returns: Tensor, minibatches: int) -> list[Tensor]:
    """Each minibatch has its share of the mean."""
    critic.zero_grad()
    for part_obs, part_returns in zip(obs.chunk(minibatches), returns.chunk(minibatches), strict=True):
        loss = nn.functional.mse_loss(critic(part_obs).squeeze(-1), part_returns)
        (loss * len(part_obs) / len(obs)).backward()
    return [p.grad.clone() for p in critic.parameters() if p.grad is not None]


def quantile_loss(quantiles: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """Quantile Huber loss of QR-DQN: quantiles [B, N] against targets [B, N]."""
    n = quantiles.shape[1]
    tau = (torch.arange(n) + 0.5) / n
    error = targets.unsqueeze(1) - quantiles.unsqueeze(2)
    huber = torch.where(error.abs() <= kappa, 0.5 * error**2, kappa * (error.abs() - 0.5 * kappa))
    return ((tau - (error.detach() < 0).float()).abs() * huber / kappa).sum(1).mean()


def quantile_loss_fixed(quantiles: Tensor, targets: Tensor, kappa: float = 1.0) -> Tensor:
    """The level goes with the quantile, not with the target."""
    n = quantiles.shape[1]
    tau = ((torch.arange(n) + 0.5) / n).view(1, n, 1)
    error = targets.unsqueeze(1) - quantiles.unsqueeze(2)
    huber = torch.where(error.abs() <= kappa, 0.5 * error**2, kappa * (error.abs() - 0.5 * kappa))
    return ((tau - (error.detach() < 0).float()).abs() * huber / kappa).sum(1).mean()


def linear() -> nn.Linear:
    """A head with fixed weights."""
    head = nn.Linear(1, 1)
    nn.init.ones_(head.weight)
    nn.init.zeros_(head.bias)
    return head


OBS, RETURNS = torch.arange(4.0).unsqueeze(1), torch.tensor([0.0, 2.0, 1.0, 5.0])

BUGS = [
    Bug(
        "values_against_every_return",
        "https://github.com/RLinf/RLinf/issues/1568",
        "value_losses",
        "Values [B] against returns [B, 1] broadcast to [B, B]: each value is trained towards every return.",
        clipped_critic,
        clipped_critic_fixed,
        lambda f: f(OBS.squeeze(-1), RETURNS.unsqueeze(1), OBS + 0.1),
    ),
    Bug(
        "head_against_flat_returns",
        "https://github.com/jsboige/CoursIA/pull/926",
        "value_losses",
        "A head's output [B, 1] and a target [B] broadcast to [B, B] in the mean squared error.",
        critic_loss,
        critic_loss_fixed,
        lambda f: f(linear(), OBS, RETURNS),
    ),
    Bug(
        "clipped_around_the_return",
        "https://github.com/kscalelabs/ksim/pull/3",
        "value_losses",
        "The value is clipped around the return instead of around the value of the rollout, so clipping does nothing.",
        clipped_around_return,
        clipped_around_return_fixed,
        lambda f: f(torch.tensor([2.0]), torch.tensor([0.0]), torch.tensor([2.0])),
    ),
    Bug(
        "value_loss_of_minibatches_added",
        "https://github.com/AechPro/rlgym-ppo/pull/28",
        "value_losses",
        "The value loss of a minibatch is not scaled by its share: the gradient grows with the number of minibatches.",
        accumulated,
        accumulated_fixed,
        lambda f: f(linear(), OBS, RETURNS, 2),
    ),
    Bug(
        "level_of_wrong_axis",
        "https://github.com/BY571/QR-DQN/issues/1",
        "value_losses",
        "Levels of quantiles broadcast along the axis of the targets.",
        quantile_loss,
        quantile_loss_fixed,
        lambda f: f(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 3.0]])),
    ),
]

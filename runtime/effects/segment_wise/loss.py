"""The loss that the switch selects: decoupled by proximal log-probs, or PPO's with the sampler's log-probs."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from ....algorithms.importance import importance_weights, masked_weights
from ....algorithms.language.token_losses import dual_clip, token_clip
from ..experiment_config import PPOActorConfig

# (log_prob, proximal_log_prob, behaviour_log_prob, advantage, mask) -> loss, [*, L] each
ActorLoss = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def create_actor_loss(config: PPOActorConfig) -> ActorLoss:
    """Return the loss of each token, to be minimised; tokens are aligned as in a transcript, all [*, L], mask bool.

    on:     w L(log_prob, proximal),   w = exp(proximal - behaviour), 0 where it is outside floor and cap
    off:    L(log_prob, behaviour)

    L is `token_clip`, or `dual_clip` if `c_clip` is set. If all versions agree the two are the same number. Tokens with
    w = 0 still count in the denominator of a mean. Raises: as those functions.
    Source: Fu et al. 2025, arXiv:2505.24298, section 5.

    >>> import torch
    >>> mask, loss = torch.tensor([True, True]), create_actor_loss(PPOActorConfig(behav_imp_weight_cap=2.0))
    >>> loss(torch.tensor([0.5, 4.0]).log(), torch.tensor([0.5, 4.0]).log(), torch.zeros(2), torch.ones(2), mask)
    tensor([-0.5000, -0.0000])
    """
    clip = (config.eps_clip, config.eps_clip if config.eps_clip_higher is None else config.eps_clip_higher)
    surrogate = (
        partial(token_clip, clip=clip) if config.c_clip is None else partial(dual_clip, clip=clip, c=config.c_clip)
    )
    if not config.enable_segment_wise_ppo:
        return lambda log_prob, proximal, behaviour, advantage, mask: surrogate(log_prob, behaviour, advantage, mask)
    low, high = config.behav_imp_weight_floor, config.behav_imp_weight_cap
    weights = importance_weights if high is None else partial(masked_weights, high=high)
    if low:
        weights = partial(masked_weights, low=low, high=float("inf") if high is None else high)

    def decoupled(log_prob: Tensor, proximal: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return weights(proximal, behaviour, mask) * surrogate(log_prob, proximal, advantage, mask)

    return decoupled

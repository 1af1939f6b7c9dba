"""Credit assignment: the learning signal of each model call, and of each token it sampled, from the episode's rewards.

Rewards are stored per call, [*, C]; the first `calls` [*] entries are valid, the rest is ignored and has the credit 0. The
calls that a fork inherited belong to its episode, so its return includes their rewards; `token_credit` assigns 0 to their
tokens, which are trained on in the transcript that sampled them. The credit of a call without sampled tokens is unused.

    name           credit of call c                                          default of
    episode        the episode's return                                      verl, TRL: one outcome for all tokens
    per_step       r_c                                                       process rewards
    monte_carlo    r_c + gamma r_c+1 + gamma^2 r_c+2 + ...                   ludic (gamma 1)
    group          the return's advantage in its group, over all calls       GRPO, RLOO, Dr. GRPO

`replace(transcript, credit=...)` stores it in the transcript. The value beyond a truncation is added to the last call's
reward first; see `bootstrapped`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ...core.errors import ShapeError, message
from ...core.language.types import Transcript
from ...core.scan import backwards
from ...core.shapes import rank
from ...core.transcript.calls import per_token
from ...core.transcript.log_probs import loss_mask
from ..hyperparameters import Number, check_number

Estimator = Callable[[Tensor, Tensor], Tensor]  # reward [N], group int [N] -> advantage [N]


def calls_mask(reward: Tensor, calls: Tensor) -> Tensor:
    """Return the mask of the calls that were made: reward [*, C], calls int [*] -> bool [*, C]. Raises: ShapeError.

    >>> calls_mask(torch.zeros(2, 3), torch.tensor([2, 0]))
    tensor([[ True,  True, False],
            [False, False, False]])
    """
    if reward.shape[:-1] != calls.shape or not reward.ndim:
        wanted = f"[{', '.join([*map(str, calls.shape), 'C'])}]"
        remedy = "give a row of calls to each transcript"
        raise ShapeError(message("credit: reward", got=list(reward.shape), wanted=wanted, remedy=remedy))
    return torch.arange(reward.shape[-1], device=reward.device) < calls[..., None]


def episode_return(reward: Tensor, calls: Tensor) -> Tensor:
    """Return sum_c r_c over the calls made: [*, C], int [*] -> [*]. Raises: ShapeError.

    >>> episode_return(torch.tensor([1.0, 2.0, torch.nan]), torch.tensor(2))
    tensor(3.)
    """
    return own_rewards(reward, calls).sum(-1)


def own_rewards(reward: Tensor, calls: Tensor) -> Tensor:
    """Return each call's own reward r_c as its credit: [*, C], int [*] -> [*, C]. Raises: ShapeError.

    >>> own_rewards(torch.tensor([1.0, 2.0, torch.nan]), torch.tensor(2))
    tensor([1., 2., 0.])
    """
    return torch.where(calls_mask(reward, calls), reward, 0.0)


def episode(reward: Tensor, calls: Tensor) -> Tensor:
    """Return the episode's return sum_k r_k, including the rewards of earlier calls, as credit: [*, C], int [*] -> [*, C].

    Raises: ShapeError.

    >>> episode(torch.tensor([1.0, 2.0, torch.nan]), torch.tensor(2))
    tensor([3., 3., 0.])
    """
    return _to_calls(episode_return(reward, calls), reward, calls)


def monte_carlo(reward: Tensor, calls: Tensor, *, gamma: Number = 1.0) -> Tensor:
    """Return the reward-to-go of each call, G_c = r_c + gamma G_c+1, discounted per call and not per token.

    Shapes: [*, C], int [*] -> [*, C]. Raises: ShapeError, ChoiceError.  Source: Sutton and Barto 2018, equation 3.9.

    >>> monte_carlo(torch.tensor([1.0, 2.0, 4.0]), torch.tensor(2), gamma=0.5)
    tensor([2., 2., 0.])
    """
    check_number("monte_carlo: gamma", gamma, 0.0, 1.0)
    earned = own_rewards(reward, calls).movedim(-1, 0)
    return backwards(gamma * torch.ones_like(earned), earned).movedim(0, -1)


def group(reward: Tensor, calls: Tensor, group: Tensor, *, estimator: Estimator) -> Tensor:
    """Return the advantage of each call's episode within its group as the credit of all its calls.

    `estimator` is a group advantage with its arguments filled in: `partial(grpo_advantages, groups=8)`.
    Shapes: [N, C], int [N], int [N] -> [N, C]. Raises: ShapeError, and the errors of the estimator.
    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.2 (outcome supervision).

    >>> from functools import partial
    >>> from .group_advantages import dr_grpo_advantages
    >>> reward, calls, same = torch.tensor([[1.0, 2.0], [5.0, 9.0]]), torch.tensor([2, 1]), torch.tensor([0, 0])
    >>> group(reward, calls, same, estimator=partial(dr_grpo_advantages, groups=1))
    tensor([[-1., -1.],
            [ 1.,  0.]])
    """
    rank("group", 2, reward=reward)
    return _to_calls(estimator(episode_return(reward, calls), group), reward, calls)


def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
    """Return the call's credit at every token sampled in this transcript itself, 0 elsewhere: [*, C] -> [*, L].

    Over a transcript and all its forks, each sampled token gets credit exactly once. Raises: ShapeError.

    >>> from ...core.record import replace
    >>> from ...core.transcript.record import empty
    >>> said = replace(empty(3, 2, id=0), call=torch.tensor([-1, 0, 1]), is_action=torch.tensor([False, True, True]))
    >>> credit = torch.tensor([0.5, 2.0])
    >>> token_credit(said, credit), token_credit(replace(said, inherited=torch.tensor(2)), credit)
    (tensor([0.0000, 0.5000, 2.0000]), tensor([0., 0., 2.]))
    """
    return torch.where(loss_mask(transcript), per_token(transcript, credit), 0.0)


def _to_calls(value: Tensor, reward: Tensor, calls: Tensor) -> Tensor:
    return torch.where(calls_mask(reward, calls), value[..., None], 0.0)

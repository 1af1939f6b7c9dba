"""Generalized advantage estimation over a conversation, in which not every token is an action."""

import torch
from torch import Tensor

from ...core.scan import backwards
from ...core.shapes import boolean, same_shape
from ..advantages import bootstrap
from ..hyperparameters import Number, check_number
from .masking import neutral, next_in_mask, one_each


def token_gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    *,
    gamma: Number,
    lambda_: Number,
) -> Tensor:
    """Generalized advantage estimation over sampled tokens only; tokens of tools and users are no time steps.

    A_t = d_t + gamma lambda_ A_n(t),    d_t = r_t + gamma v_n(t) - v_t,    n(t) the next token in `mask` after t

    v_t is the value of the prefix before token t. After the last token in the mask A is 0 and v is `next_value`, or 0 if the
    episode terminated. Value and trace are carried across context, so that a tool's answer of any length is not discounted,
    and rewards and values there are ignored: put a reward at the last token sampled before it. verl and AReaL do the same.
    SkyRL treats each token as a step: that is this function with `mask` true up to the transcript's length, masked
    afterwards. The result is 0 outside the mask, and nothing is detached; value targets are A + v inside it.

    Shapes: rewards, values [*, L], mask bool [*, L] -> [*, L]; next_value [*], terminated bool [*]; one episode per row.
    Raises: ShapeError, DtypeError, ChoiceError.  Source: Schulman et al. 2016, arXiv:1506.02438.

    >>> rewards, values = torch.tensor([0.0, 9.0, 1.0]), torch.tensor([1.0, 7.0, 2.0])
    >>> mask, next_value, no = torch.tensor([True, False, True]), torch.tensor(4.0), torch.tensor(False)
    >>> token_gae(rewards, values, mask, next_value, no, gamma=0.5, lambda_=0.5)
    tensor([0.2500, 0.0000, 1.0000])
    >>> token_gae(rewards, values, mask, next_value, ~no, gamma=0.5, lambda_=0.5)
    tensor([-0.2500,  0.0000, -1.0000])
    """
    same_shape("token_gae", rewards=rewards, values=values, mask=mask)
    boolean("token_gae", mask=mask, terminated=terminated)
    check_number("token_gae: gamma", gamma, 0.0, 1.0)
    check_number("token_gae: lambda_", lambda_, 0.0, 1.0)
    one_each("token_gae", mask, next_value=next_value, terminated=terminated)
    reward, value = neutral(mask, rewards, values)
    after = next_in_mask(value, mask, bootstrap(next_value, terminated))
    errors = torch.where(mask, reward + gamma * after - value, 0.0)
    acts = mask.to(errors.dtype)
    slopes = gamma * lambda_ * acts + (1 - acts)
    carried = backwards(slopes.movedim(-1, 0), errors.movedim(-1, 0)).movedim(0, -1)
    return torch.where(mask, carried, 0.0)

"""Advantages of tokens for objectives: functions of whole episodes and of a memory kept between batches.

`token_gae` is generalized advantage estimation over a conversation, in which not every token is an action.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...core.errors import ShapeError, choose, message
from ...core.record import record, tensor
from ...core.scan import backwards
from ...core.shapes import boolean, same_shape
from ..advantages import bootstrap
from ..hyperparameters import Number, check_number
from .group_advantages import ema_baseline, rloo_advantages
from .masking import neutral, spread_over_tokens


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
    _one_each(mask, next_value=next_value, terminated=terminated)
    reward, value = neutral(mask, rewards, values)
    after = next_in_mask(value, mask, bootstrap(next_value, terminated))
    errors = torch.where(mask, reward + gamma * after - value, 0.0)
    acts = mask.to(errors.dtype)
    slopes = gamma * lambda_ * acts + (1 - acts)
    carried = backwards(slopes.movedim(-1, 0), errors.movedim(-1, 0)).movedim(0, -1)
    return torch.where(mask, carried, 0.0)


def next_in_mask(values: Tensor, mask: Tensor, beyond: Tensor) -> Tensor:
    """Return, for each position, the value at the next position in the mask, or `beyond` after the last: [*, L], [*] -> [*, L].

    Raises: ShapeError, DtypeError.

    >>> next_in_mask(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]), torch.tensor(9.0))
    tensor([3., 3., 9.])
    """
    boolean("following", mask=mask)
    same_shape("following", values=values, mask=mask)
    _one_each(mask, beyond=beyond)
    last = mask.shape[-1]
    place = torch.arange(last, device=mask.device)
    at = torch.where(mask, place, last).flip(-1).cummin(-1).values.flip(-1)
    nearest = torch.cat([at[..., 1:], torch.full_like(at[..., :1], last)], -1)
    return torch.cat([values, beyond[..., None].to(values.dtype)], -1).gather(-1, nearest)


def _one_each(mask: Tensor, **tensors: Tensor) -> None:
    for name, each in tensors.items():
        if each.shape != mask.shape[:-1]:
            wanted = f"{list(mask.shape[:-1])}, the mask's leading axes"
            remedy = "pass one entry for each sequence"
            raise ShapeError(message(f"token_gae: {name}", got=list(each.shape), wanted=wanted, remedy=remedy))


@record
class AdvantageInputs:
    """The inputs of an advantage: N transcripts in columns of L."""

    reward: Tensor = tensor("* L", "float")  # of each token, minus the KL penalty
    total: Tensor = tensor("*", "float")  # the episode's return, minus KL penalty and length penalty
    credit: Tensor = tensor("* L", "float")  # the transcripts' own column, see `credited`
    group: Tensor = tensor("*", "int")  # below N; -1 if the sample belongs to no group
    counted: Tensor = tensor("*", "bool")  # whether the sample enters baselines and gets an advantage
    mask: Tensor = tensor("* L", "bool")
    terminated: Tensor = tensor("*", "bool")  # no bootstrap from the value beyond the end
    values: Any = ()  # [* L] critic's value of the prefix before each token
    beyond: Any = ()  # [*] critic's value of the whole sequence


Estimate = Callable[[AdvantageInputs, Any], tuple[Tensor, Any]]  # (episodes, memory) -> (advantage [N, L], memory)
GroupEstimator = Callable[..., Tensor]  # (reward [N], group [N], *, groups) -> [N]


def of_groups(estimator: GroupEstimator) -> Estimate:
    """Return the estimator of each return's group advantage, at every token of its sequence.

    >>> no, yes = torch.zeros(2, dtype=torch.bool), torch.ones(2, 1, dtype=torch.bool)
    >>> two = AdvantageInputs(reward=torch.zeros(2, 1), total=torch.tensor([1.0, 3.0]), credit=torch.zeros(2, 1),
    ...                group=torch.zeros(2, dtype=torch.int64), counted=~no, mask=yes, terminated=no)
    >>> of_groups(rloo_advantages)(two, ())[0]
    tensor([[-2.],
            [ 2.]])
    """

    def advantages(episodes: AdvantageInputs, memory: Any) -> tuple[Tensor, Any]:
        told = estimator(episodes.total, episodes.group, groups=episodes.group.shape[0])
        return spread_over_tokens(told, episodes.mask), memory

    return advantages


def against(baseline: str, credit: str, *, decay: Number = 0.9) -> Estimate:
    """Return the estimator of a token's credit minus a mean of returns; see `reinforce` for the choices.

    The memory of "ema" is its mean [1], that of the others (). Raises: ChoiceError.

    >>> no, yes = torch.zeros(2, dtype=torch.bool), torch.ones(2, 1, dtype=torch.bool)
    >>> two = AdvantageInputs(reward=torch.zeros(2, 1), total=torch.tensor([1.0, 3.0]), credit=torch.zeros(2, 1),
    ...                group=torch.tensor([0, 1]), counted=~no, mask=yes, terminated=no)
    >>> against("ema", "episode", decay=0.5)(two, torch.tensor([0.5]))
    (tensor([[0.5000],
            [2.5000]]), tensor([1.2500]))
    """
    check_number("against: decay", decay, 0.0, 1.0)
    bases: dict[str, Estimate] = {"ema": partial(_running, decay=decay), "leave_one_out": _others, "none": _none}
    base = choose("against: baseline", baseline, bases)
    ways: dict[str, Callable[[AdvantageInputs], Tensor]] = {"episode": _whole_return, "monte_carlo": _to_come}
    paid = choose("against: credit", credit, ways)

    def advantages(episodes: AdvantageInputs, memory: Any) -> tuple[Tensor, Any]:
        mean, memory = base(episodes, memory)
        counted = episodes.mask & episodes.counted[:, None]
        return torch.where(counted, paid(episodes) - mean[:, None], 0.0), memory

    return advantages


def generalized(*, gamma: Number, lambda_: Number) -> Estimate:
    """Return the estimator `token_gae` of a critic's values, not normalised. Raises: ChoiceError.

    >>> no, yes, zero = torch.zeros(1, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    >>> one = AdvantageInputs(reward=torch.tensor([[0.0, 1.0]]), total=torch.ones(1), credit=zero, group=torch.tensor([0]),
    ...                counted=~no, mask=yes, terminated=~no, values=zero + 0.25, beyond=torch.zeros(1))
    >>> generalized(gamma=1.0, lambda_=0.0)(one, ())[0]
    tensor([[0.0000, 0.7500]])
    """
    check_number("generalized: gamma", gamma, 0.0, 1.0)
    check_number("generalized: lambda_", lambda_, 0.0, 1.0)

    def estimate(episodes: AdvantageInputs, memory: Any) -> tuple[Tensor, Any]:
        given = episodes.reward, episodes.values, episodes.mask, episodes.beyond, episodes.terminated
        return token_gae(*given, gamma=gamma, lambda_=lambda_), memory

    return estimate


def stored_credit(episodes: AdvantageInputs, memory: Any) -> tuple[Tensor, Any]:
    """Return the credit stored in the transcripts.

    >>> no, one = torch.zeros(1, dtype=torch.bool), torch.ones(1, 1)
    >>> said = AdvantageInputs(reward=one, total=one[0], credit=2 * one, group=torch.tensor([0]), counted=~no, mask=one > 0,
    ...                 terminated=no)
    >>> stored_credit(said, ())
    (tensor([[2.]]), ())
    """
    return episodes.credit, memory


def unscaled(advantage: Tensor, mask: Tensor) -> Tensor:
    """Return advantages unchanged: [N, L], bool [N, L] -> [N, L].

    >>> unscaled(torch.tensor([[2.0]]), torch.tensor([[True]]))
    tensor([[2.]])
    """
    return advantage


def whitened(advantage: Tensor, mask: Tensor) -> Tensor:
    """Return (A - mean) / (std + 1e-8) over the tokens in the mask, std with divisor n; 0 elsewhere: [N, L].

    >>> whitened(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor([[-1.,  1.,  0.]])
    """
    (kept,) = neutral(mask, advantage)
    number = mask.sum().clamp(min=1)
    centred = torch.where(mask, kept - kept.sum() / number, 0.0)
    return centred / ((centred.square().sum() / number).sqrt() + 1e-8)


def _running(episodes: AdvantageInputs, memory: Tensor, decay: Number) -> tuple[Tensor, Any]:
    one = torch.where(episodes.counted, 0, -1)
    after, _ = ema_baseline(memory, episodes.total, one, decay=decay)
    return memory.expand(episodes.total.shape), after


def _others(episodes: AdvantageInputs, memory: Any) -> tuple[Tensor, Any]:
    one = torch.where(episodes.counted, 0, -1)
    return episodes.total - rloo_advantages(episodes.total, one, groups=1), memory


def _none(episodes: AdvantageInputs, memory: Any) -> tuple[Tensor, Any]:
    return torch.zeros_like(episodes.total), memory


def _whole_return(episodes: AdvantageInputs) -> Tensor:
    return episodes.total[:, None].expand(episodes.mask.shape)


def _to_come(episodes: AdvantageInputs) -> Tensor:
    return neutral(episodes.mask, episodes.reward)[0].flip(-1).cumsum(-1).flip(-1)

"""Losses of a language model's policy: one number per token, never reduced; to be minimised.

Each takes log-probs and advantages [*, L] with a mask [*, L] that is true at the sampled tokens, and returns [*, L]: 0 in
the padding, for any content, including NaN and infinity. `per_token` expands an advantage of a whole sequence to its tokens.
Advantages and behaviour log-probs are constants. Reductions are in `aggregate`; importance weights for a sampler that differs
from the policy are in `importance` and multiply these losses. TRL's `epsilon` and `epsilon_high` are `clip` here, its
`delta` is the c of `dual_clip`, its `importance_sampling_level="sequence"` is `gspo`, or that argument of `cispo`.
"""

import torch
from torch import Tensor

from ...core.errors import ChoiceError, choose, message
from ...core.shapes import same_shape
from ..hyperparameters import Clip as Clip
from ..hyperparameters import Number, bounded, check_number
from ..losses import ppo_clip
from .masking import mean_of_tokens, neutral


def token_clip(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor, *, clip: Clip) -> Tensor:
    """Return `ppo_clip` of the tokens in the mask, also GRPO's loss, and DAPO's if the upper clip is wider.

    L = max(-A r, -A min(max(r, 1 - low), 1 + high)),    r = exp(log p(token) - log b(token))

    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Shao et al. 2024, arXiv:2402.03300; two bounds: Yu et al. 2025, arXiv:2503.14476 (0.2 and 0.28).

    >>> log_prob = torch.tensor([2.0, 0.5, torch.nan]).log()
    >>> token_clip(log_prob, torch.zeros(3), torch.ones(3), torch.tensor([True, True, False]), clip=(0.25, 0.5))
    tensor([-1.5000, -0.5000,  0.0000])
    """
    log_prob, behaviour, advantage = _neutral("token_clip", log_prob, behaviour_log_prob, advantage, mask)
    return torch.where(mask, ppo_clip(log_prob, behaviour, advantage, clip=clip), 0.0)


def dual_clip(
    log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor, *, clip: Clip, c: Number = 3.0
) -> Tensor:
    """Return `token_clip` limited to c |A| where A < 0, so that a large ratio cannot make the loss explode.

    L' = min(L, -c A) where A < 0,    L' = L elsewhere

    c is at least 1; the gradient is 0 beyond the limit too. The default is verl's. With c >= 1 + high it is equal to TRL's
    `delta = c`, which bounds the ratio instead.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Ye et al. 2020, arXiv:1912.09729, equation 5.

    >>> log_prob, mask = torch.tensor([8.0, 8.0]).log(), torch.tensor([True, True])
    >>> dual_clip(log_prob, torch.zeros(2), torch.tensor([-1.0, 1.0]), mask, clip=0.25, c=3.0)
    tensor([ 3.0000, -1.2500])
    """
    check_number("dual_clip: c", c, 1.0)
    log_prob, behaviour, advantage = _neutral("dual_clip", log_prob, behaviour_log_prob, advantage, mask)
    # Far above c the loss is constant; a ratio that overflows there would leave NaN in its gradient.
    far = torch.as_tensor(c, dtype=log_prob.dtype, device=log_prob.device).log() + 1.0
    log_ratio = log_prob - behaviour.detach()
    log_ratio = torch.where(advantage < 0, bounded(log_ratio, high=far), log_ratio)
    loss = ppo_clip(log_ratio, torch.zeros_like(log_ratio), advantage, clip=clip)
    ceiling = torch.where(advantage < 0, -c * advantage.detach(), torch.inf)
    return torch.where(mask, torch.minimum(loss, ceiling.to(loss.dtype)), 0.0)


def gspo(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip: Clip,
    gradient: str = "token",
) -> Tensor:
    """Return the clipped surrogate with one ratio per sequence, used at each of its tokens.

    L_t = max(-A_t s_t, -A_t min(max(s_t, 1 - low), 1 + high)),    s = exp(mean over tokens of (log p - log b))

    `gradient` selects the path of the gradient; the value of s_t is s in both cases:
    - "token": s_t = sg(s) p_t / sg(p_t), straight through to the token itself (GSPO-token, verl). It uses each token's own
      advantage.
    - "sequence": s_t = s, not detached; each loss has the same gradient for all tokens of its sequence (TRL).
    If A is one number per sequence and the reduction weights its tokens equally, both give the same gradient. The paper's
    reduction is `sequence_mean`; verl enforces it. As these ratios are close to 1, use a small clip (paper: 3e-4 and 4e-4).
    For AReaL's form pass `per_token(mean_of_tokens(advantage, mask), mask)`.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: Zheng et al. 2025, arXiv:2507.18071, equations 5 and 13.

    >>> log_prob = torch.tensor([[4.0, 1.0, 9.0]]).log()
    >>> mask = torch.tensor([[True, True, False]])
    >>> gspo(log_prob, torch.zeros(1, 3), torch.full((1, 3), -1.0), mask, clip=0.5)
    tensor([[2., 2., 0.]])
    """
    log_prob, behaviour, advantage = _neutral("gspo", log_prob, behaviour_log_prob, advantage, mask)
    form = choose("gspo: gradient", gradient, {"token": _straight_through, "sequence": _sequence_log_ratio})
    log_ratio = form(log_prob, behaviour, mask)
    return torch.where(mask, ppo_clip(log_ratio, torch.zeros_like(log_ratio), advantage, clip=clip), 0.0)


def cispo(
    log_prob: Tensor,
    behaviour_log_prob: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    low: Number,
    high: Number,
    bounds: str = "ratio",
    importance_sampling_level: str = "token",
) -> Tensor:
    """Return the REINFORCE loss weighted by a clipped, detached ratio: every token keeps a gradient of bounded size.

    L_t = -sg(min(max(r_t, lowest), highest)) A_t log p_t

    Systems express the same bounds by different numbers; `bounds` selects the convention:
    - "ratio": lowest = low, highest = high. TRL: low=0, high=epsilon_high, about 5.
    - "distance": lowest = 1 - low, highest = 1 + high. verl, AReaL, SkyRL, slime: low=epsilon_low, high=epsilon_high; AReaL
      has 1 and 4, which are TRL's 0 and 5.
    `importance_sampling_level` "sequence" uses the ratio of `gspo` instead of each token's.
    Shapes: all [*, L], mask bool. Raises: ShapeError, DtypeError, ChoiceError.
    Source: MiniMax 2025, arXiv:2506.13585, section 3.1.

    >>> log_prob, two = torch.tensor([-2.0, -1.0]), torch.ones(2, dtype=torch.bool)
    >>> cispo(log_prob, torch.tensor([-2.0, -9.0]), torch.ones(2), two, low=0.0, high=5.0)
    tensor([2., 5.])
    """
    lowest, highest = choose("cispo: bounds", bounds, BOUNDS)(low, high)
    check_number("cispo: high", highest, 0.0)
    if not isinstance(lowest, Tensor) and not isinstance(highest, Tensor) and not lowest <= highest:
        wanted, remedy = f"at most the highest, {highest}", "give low and high in the way `bounds` says"
        raise ChoiceError(message("cispo: the lowest ratio", got=lowest, wanted=wanted, remedy=remedy))
    log_prob, behaviour, advantage = _neutral("cispo", log_prob, behaviour_log_prob, advantage, mask)
    level = choose("cispo: importance_sampling_level", importance_sampling_level, LEVELS)
    weight = bounded(torch.exp(level(log_prob, behaviour, mask)), lowest, highest).detach()
    return torch.where(mask, -weight * advantage.detach() * log_prob, 0.0)


def _neutral(where: str, log_prob: Tensor, behaviour: Tensor, advantage: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    same_shape(where, log_prob=log_prob, behaviour_log_prob=behaviour, advantage=advantage, mask=mask)
    return neutral(mask, log_prob, behaviour, advantage)


def _token_log_ratio(log_prob: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    return log_prob - behaviour.detach()


def _sequence_log_ratio(log_prob: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    mean = mean_of_tokens(log_prob - behaviour.detach(), mask)
    return torch.where(mask, mean[..., None], 0.0)


def _straight_through(log_prob: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    return _sequence_log_ratio(log_prob, behaviour, mask).detach() + (log_prob - log_prob.detach())


def _ratio(low: Number, high: Number) -> tuple[Number, Number]:
    return low, high


def _distance(low: Number, high: Number) -> tuple[Number, Number]:
    return 1 - low, 1 + high


BOUNDS = {"ratio": _ratio, "distance": _distance}
LEVELS = {"token": _token_log_ratio, "sequence": _sequence_log_ratio}

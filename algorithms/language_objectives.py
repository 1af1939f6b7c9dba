"""The field's algorithms for language models, each as what tells them apart: an advantage, a loss, a reduction.

    name         advantage                       loss                          reduction
    reinforce    return - running mean, or less  -A log p                      sum of tokens, mean of sequences
                 the mean of the batch's others
    rloo         return - mean of its group's    -A log p                      sum of tokens, mean of sequences
                 others
    grpo         (return - mean) / (std + eps)   clipped ratio                 mean of tokens, mean of sequences
    dr_grpo      return - mean of its group      clipped ratio                 sum of tokens / longest length, mean
    dapo         as grpo; groups without spread  clipped ratio, wider above    mean of all tokens
                 dropped, long answers punished
    gspo         as grpo                         clipped ratio of sequences    mean of tokens, mean of sequences
    cispo        as grpo                         -sg(clipped ratio) A log p    mean of all tokens
    ppo          generalized, by a critic        clipped ratio                 mean of all tokens

Everything else (divergences, entropy, corrections, truncated samples, the optimiser) is the learner's: see `language`. An
objective of one's own is another such value.
"""

from collections.abc import Callable
from functools import partial

from attrs import frozen
from torch import Tensor

from ..core.errors import choose
from . import token_losses
from .group_advantages import dr_grpo_advantages, grpo_advantages, rloo_advantages
from .hyperparameters import Number, check_clip, check_coefficients, check_number
from .language_advantages import Estimate, GroupEstimator, against, generalized, of_groups, unscaled, whitened, written
from .language_loss import Outside, Reduction, TokenLoss, everywhere
from .language_parts import (
    by_constant_length,
    by_sequence,
    by_sequence_sum,
    by_token,
    clipped_ratio,
    log_prob_gradient,
    outside_of,
)
from .token_losses import Clip


@frozen(kw_only=True)
class Objective:
    """What tells an algorithm from others."""

    advantages: Estimate
    loss: TokenLoss
    reduce: Reduction
    outside: Outside = everywhere  # which tokens' ratios the loss bounds, for the figures
    memory: float | tuple[()] = ()  # what a running baseline begins with
    overlong: (
        Callable[[Tensor], Tensor] | tuple[()]
    ) = ()  # tokens sampled, int [N] -> what their number adds to the return
    zero_spread: str = "keep"  # or "drop": what is made of groups in which all returns are equal
    critic: bool = False  # whether values are learnt
    scale: Callable[[Tensor, Tensor], Tensor] = unscaled  # (advantage [N, L], mask) -> what the loss is given of it


def reinforce(
    *, baseline: str = "ema", credit: str = "episode", decay: Number = 0.9, initial: float = 0.0
) -> Objective:
    """Policy gradient against a mean of returns: L = -A log p, summed over tokens, averaged over sequences.

    `baseline`: "ema", a running mean over batches that begins with `initial`; "leave_one_out", the mean of all other
    episodes of the batch, of whatever group; "none". `credit`: "episode", every token answers for the whole return;
    "monte_carlo", for what came after it. The ratio to an older policy plays no part: one update for each batch, and a
    `correction` with proximal="recomputed" where the sampler lags behind. Raises: ChoiceError.
    Source: Williams 1992, doi:10.1007/BF00992696.

    >>> reinforce().memory, reinforce(baseline="leave_one_out").memory
    (0.0, ())
    """
    check_coefficients("reinforce", initial=initial)
    return Objective(
        advantages=against(baseline, credit, decay=decay),
        loss=log_prob_gradient,
        reduce=by_sequence_sum,
        memory=initial if baseline == "ema" else (),
    )


def rloo() -> Objective:
    """REINFORCE, leave one out: the baseline of an answer is the mean of the others in its group.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, equation 8.

    >>> rloo().zero_spread
    'keep'
    """
    return Objective(advantages=of_groups(rloo_advantages), loss=log_prob_gradient, reduce=by_sequence_sum)


def grpo(*, clip: Clip = 0.2, eps: Number = 1e-4) -> Objective:
    """Group-relative policy optimisation. Source: Shao et al. 2024, arXiv:2402.03300.

    >>> grpo(clip=0.1).critic
    False
    """
    check_number("grpo: eps", eps, 0.0)
    return _clipped(partial(grpo_advantages, eps=eps), clip, by_sequence)


def dr_grpo(*, length: Number, clip: Clip = 0.2) -> Objective:
    """GRPO done right: no std, and every sequence divided by the same `length`, the most a model may say.

    Source: Liu et al. 2025, arXiv:2503.20783.

    >>> dr_grpo(length=64).memory
    ()
    """
    return _clipped(dr_grpo_advantages, clip, by_constant_length(length))


def dapo(
    *,
    clip: Clip = (0.2, 0.28),
    eps: Number = 1e-4,
    overlong: Callable[[Tensor], Tensor] | tuple[()] = (),
    zero_spread: str = "drop",
) -> Objective:
    """Decoupled clip and dynamic sampling: a clip wider above, every token the same weight, groups without spread dropped.

    `overlong` is `partial(overlong_penalty, limit=..., buffer=...)`, or nothing. Raises: ChoiceError.
    Source: Yu et al. 2025, arXiv:2503.14476.

    >>> dapo().zero_spread
    'drop'
    """
    check_number("dapo: eps", eps, 0.0)
    choose("dapo: zero_spread", zero_spread, {"drop": 0, "keep": 0})
    return Objective(
        advantages=of_groups(partial(grpo_advantages, eps=eps)),
        loss=clipped_ratio(clip),
        reduce=by_token,
        outside=outside_of(clip),
        overlong=overlong,
        zero_spread=zero_spread,
    )


def gspo(*, clip: Clip = (3e-4, 4e-4), eps: Number = 1e-4, gradient: str = "token") -> Objective:
    """Group sequence policy optimisation: one ratio for a sequence. Source: Zheng et al. 2025, arXiv:2507.18071.

    >>> gspo().zero_spread
    'keep'
    """
    check_number("gspo: eps", eps, 0.0)
    check_clip("gspo: clip", clip)

    def loss(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return token_losses.gspo(log_prob, anchor, advantage, mask, clip=clip, gradient=gradient)

    return Objective(
        advantages=of_groups(partial(grpo_advantages, eps=eps)),
        loss=loss,
        reduce=by_sequence,
        outside=outside_of(clip, level="sequence"),
    )


def cispo(*, low: Number = 0.0, high: Number = 5.0, eps: Number = 1e-4) -> Objective:
    """Clipped importance weights: no token's gradient is cut off. The ratio is kept from `low` to `high`, as in TRL.

    Source: MiniMax 2025, arXiv:2506.13585.

    >>> cispo().critic
    False
    """
    for name, number in (("eps", eps), ("low", low), ("high", high)):
        check_number(f"cispo: {name}", number, 0.0)

    def loss(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return token_losses.cispo(log_prob, anchor, advantage, mask, low=low, high=high)

    return Objective(
        advantages=of_groups(partial(grpo_advantages, eps=eps)),
        loss=loss,
        reduce=by_token,
        outside=outside_of((1 - low, high - 1)),
    )


def ppo(*, clip: Clip = 0.2, gamma: Number = 1.0, lambda_: Number = 0.95, advantages: str = "batch") -> Objective:
    """Proximal policy optimisation with a critic on the model's hidden states, over sampled tokens alone.

    `advantages` are normalised over the tokens of the batch ("batch") or left as they are ("none"). Raises: ChoiceError.
    Source: Schulman et al. 2017, arXiv:1707.06347; for conversations see `token_gae`.

    >>> ppo().critic
    True
    """
    return Objective(
        advantages=generalized(gamma=gamma, lambda_=lambda_),
        loss=clipped_ratio(clip),
        reduce=by_token,
        outside=outside_of(clip),
        critic=True,
        scale=choose("ppo: advantages", advantages, {"batch": whitened, "none": unscaled}),
    )


def credited(loss: TokenLoss, reduce: Reduction, *, outside: Outside = everywhere) -> Objective:
    """An objective whose advantages stand in the transcripts' own column `credit`, written there by any rule: see `credit`.

    `outside` says which ratios the loss bounds, for the figure clip_fraction: `outside_of(0.2)` beside `clipped_ratio(0.2)`.

    >>> credited(clipped_ratio(0.2), by_token).zero_spread
    'keep'
    """
    return Objective(advantages=written, loss=loss, reduce=reduce, outside=outside)


def _clipped(estimator: GroupEstimator, clip: Clip, reduce: Reduction) -> Objective:
    return Objective(advantages=of_groups(estimator), loss=clipped_ratio(clip), reduce=reduce, outside=outside_of(clip))

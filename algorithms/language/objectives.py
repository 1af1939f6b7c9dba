"""Policy-gradient objectives for language models, each as an advantage, a loss and a reduction.

    name         advantage                       loss                          reduction
    reinforce    return - running mean, or less  -A log p                      sum of tokens, mean of sequences
                 the mean of the batch's others
    rloo         return - mean of its group's    -A log p                      sum of tokens, mean of sequences
                 others
    grpo         (return - mean) / (std + eps)   clipped ratio                 mean of tokens, mean of sequences
    dr_grpo      return - mean of its group      clipped ratio                 sum of tokens / longest length, mean
    dapo         as grpo; groups without spread  clipped ratio, wider above    mean of all tokens
                 dropped, long answers penalised
    gspo         as grpo                         clipped ratio of sequences    mean of tokens, mean of sequences
    cispo        as grpo                         -sg(clipped ratio) A log p    mean of all tokens
    ppo          generalized, by a critic        clipped ratio                 mean of all tokens

Everything else (divergences, entropy, corrections, truncated samples, the optimiser) belongs to the learner: see `learner`.
For your own objective construct another `Objective`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import choose
from ...core.language.types import Counts
from ...core.record import record, tensor
from ..aggregate import constant_length, sequence_mean, sequence_sum_mean, token_mean
from ..hyperparameters import Number, check_clip, check_coefficients, check_number
from ..losses import policy_gradient
from . import token_losses
from .advantages import token_gae
from .group_advantages import dr_grpo_advantages, ema_baseline, grpo_advantages, rloo_advantages
from .loss import Outside, Reduction, TokenLoss, everywhere
from .masking import mean_of_tokens, neutral, spread_over_tokens
from .token_losses import Clip


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


def clipped_ratio(clip: Clip) -> TokenLoss:
    """Return `token_clip` as the loss of an objective.

    >>> one, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    >>> clipped_ratio(0.5)(one, 0 * one, one, mask)
    tensor([[-1.5000]])
    """
    check_clip("clipped_ratio: clip", clip)

    def loss(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return token_losses.token_clip(log_prob, anchor, advantage, mask, clip=clip)

    return loss


def log_prob_gradient(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Return -A log p (`policy_gradient`) for tokens in the mask; the anchor is not used. All [N, L] -> [N, L].

    >>> mask = torch.tensor([[True, False]])
    >>> log_prob_gradient(torch.tensor([[-2.0, torch.nan]]), torch.zeros(1, 2), torch.ones(1, 2), mask)
    tensor([[2., 0.]])
    """
    return torch.where(mask, policy_gradient(*neutral(mask, log_prob, advantage)), 0.0)


def dual_clipped(clip: Clip, *, c: Number = 3.0) -> TokenLoss:
    """Return `dual_clip` as the loss of an objective: `attrs.evolve(grpo(), loss=dual_clipped(0.2))`.

    >>> one, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    >>> dual_clipped(0.2)(9 * one, 0 * one, -one, mask)
    tensor([[3.]])
    """
    check_clip("dual_clipped: clip", clip)
    check_number("dual_clipped: c", c, 1.0)

    def loss(log_prob: Tensor, anchor: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
        return token_losses.dual_clip(log_prob, anchor, advantage, mask, clip=clip, c=c)

    return loss


def by_token(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """Return `token_mean` over the whole batch: every token has the same weight.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> by_token(torch.tensor([[1.0, 3.0]]), mask, Counts(tokens=torch.tensor(4), sequences=torch.tensor(2)))
    tensor(1.)
    """
    return token_mean(loss, mask, denominator=counts.tokens)


def by_sequence(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """Return `sequence_mean` over the whole batch: every sequence has the same weight.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> by_sequence(torch.tensor([[1.0, 3.0]]), mask, Counts(tokens=torch.tensor(4), sequences=torch.tensor(2)))
    tensor(1.)
    """
    return sequence_mean(loss, mask, denominator=counts.sequences)


def by_sequence_sum(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
    """Return `sequence_sum_mean`: the mean over sequences of the sums over their tokens.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> by_sequence_sum(torch.tensor([[1.0, 3.0]]), mask, Counts(tokens=torch.tensor(4), sequences=torch.tensor(2)))
    tensor(2.)
    """
    return sequence_sum_mean(loss, mask, denominator=counts.sequences)


def by_constant_length(length: Number) -> Reduction:
    """Return the reduction `constant_length`: the sum over tokens / (number of sequences * `length`). Raises: ChoiceError.

    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> two = Counts(tokens=torch.tensor(4), sequences=torch.tensor(2))
    >>> by_constant_length(4)(torch.tensor([[1.0, 3.0]]), mask, two)
    tensor(0.5000)
    """
    check_number("by_constant_length: length", length, 1.0)

    def reduce(loss: Tensor, mask: Tensor, counts: Counts) -> Tensor:
        return constant_length(loss, mask, length=length, denominator=counts.sequences * length)

    return reduce


def outside_of(clip: Clip, *, level: str = "token") -> Outside:
    """Return a test for ratios outside 1 - low .. 1 + high; `level` "sequence" uses `gspo`'s ratio. Raises: ChoiceError.

    >>> outside_of((0.5, 1.0))(torch.tensor([[0.4, 1.0, 3.0]]).log(), torch.ones(1, 3, dtype=torch.bool))
    tensor([[ True, False,  True]])
    """
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    ratio_of = choose("outside_of: level", level, {"token": _token_ratio, "sequence": _sequence_ratio})

    def outside(log_ratio: Tensor, mask: Tensor) -> Tensor:
        ratio = ratio_of(log_ratio, mask)
        return (ratio < 1 - low) | (ratio > 1 + high)

    return outside


def _token_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return log_ratio.exp()


def _sequence_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    return mean_of_tokens(log_ratio, mask)[..., None].exp().expand(mask.shape)


@frozen(kw_only=True)
class Objective:
    """The parts in which algorithms differ: advantage, loss, reduction and their options."""

    advantages: Estimate
    loss: TokenLoss
    reduce: Reduction
    outside: Outside = everywhere  # the tokens whose ratios are outside the clip, for the metrics
    memory: float | tuple[()] = ()  # initial value of a running baseline
    overlong: (
        Callable[[Tensor], Tensor] | tuple[()]
    ) = ()  # tokens sampled, int [N] -> length penalty, added to the return
    zero_spread: str = "keep"  # or "drop": treatment of groups in which all returns are equal
    critic: bool = False  # whether a value function is trained
    scale: Callable[[Tensor, Tensor], Tensor] = unscaled  # (advantage [N, L], mask) -> the advantage that the loss uses


def reinforce(
    *, baseline: str = "ema", credit: str = "episode", decay: Number = 0.9, initial: float = 0.0
) -> Objective:
    """Policy gradient against a mean of returns: L = -A log p, summed over tokens, averaged over sequences.

    `baseline`: "ema", a running mean over batches that starts at `initial`; "leave_one_out", the mean of all other
    episodes of the batch, of any group; "none". `credit`: "episode", every token gets the whole return; "monte_carlo", the
    reward-to-go. The loss has no ratio to an older policy: make one update for each batch, and use a `correction` with
    proximal="recomputed" if the sampler lags behind. Raises: ChoiceError.
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
    """REINFORCE leave-one-out: the baseline of an answer is the mean of the others in its group.

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
    """GRPO done right: no std, and every sequence divided by the same `length`, the maximum of generated tokens.

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
    """DAPO: a clip that is wider above, equal weight for every token, groups of equal returns dropped.

    The name stands for decoupled clip and dynamic sampling. `overlong` is `partial(overlong_penalty, limit=...,
    buffer=...)`, or () for no length penalty. Raises: ChoiceError.
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
    """Group sequence policy optimisation: one ratio per sequence. Source: Zheng et al. 2025, arXiv:2507.18071.

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
    """CISPO: clipped importance weights, which keep every token's gradient. The ratio is clipped to [low, high], as in TRL.

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
    """Proximal policy optimisation with a critic on the model's hidden states, over sampled tokens only.

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
    """Return an objective whose advantages are the transcripts' own column `credit`, computed by any rule: see `credit`.

    `outside` gives the clip bounds for the metric clip_fraction: `outside_of(0.2)` with `clipped_ratio(0.2)`.

    >>> credited(clipped_ratio(0.2), by_token).zero_spread
    'keep'
    """
    return Objective(advantages=stored_credit, loss=loss, reduce=reduce, outside=outside)


def _clipped(estimator: GroupEstimator, clip: Clip, reduce: Reduction) -> Objective:
    return Objective(advantages=of_groups(estimator), loss=clipped_ratio(clip), reduce=reduce, outside=outside_of(clip))

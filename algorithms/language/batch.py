"""The training batch of an update from transcripts: returns, penalties, truncation, advantages; over the whole batch."""

from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.record import record, replace
from ...core.transcript.record import FAILED, Transcript
from ..aggregate import divided
from ..decoupled import interpolation
from ..hyperparameters import Number
from ..kl import Estimator, k1, kl_reward
from .advantages import AdvantageInputs
from .credit import episode_return, token_credit
from .group_advantages import zero_spread
from .masking import neutral
from .objectives import Objective
from .overlong import Counted, overlong_columns
from .token_batch import TokenBatch, renumber_groups, token_batch, token_rewards

FIGURES = ("reward", "sampled_tokens", "truncated", "failed", "zero_spread", "tokens", "sequences")


@record
class Reading:
    """Forward-pass results on N transcripts before an update; an unused field is ()."""

    log_prob: Any = ()  # [* L] under the current policy
    reference_log_prob: Any = ()  # [* L]
    values: Any = ()  # [* L] value of the prefix before each token
    beyond: Any = ()  # [*] value after the last token


@frozen(kw_only=True)
class Handling:
    """Options for building a batch from transcripts; the choices of `learner`."""

    truncated: str = "keep"
    down_weight: Number = 0.5
    proximal: str = "recorded"
    kl_in_reward: Number = 0.0
    kl_in_reward_estimator: Estimator = k1


def learned_from(
    objective: Objective,
    handling: Handling,
    transcript: Transcript,
    reading: Reading,
    memory: Any,
    version: Tensor,
    *,
    support: str = "sampled",
) -> tuple[TokenBatch, Any, Mapping[str, Tensor]]:
    """Return the training batch of transcripts [N], the memory after it, and metrics of the batch, by name.

    `version` [] is that of the weights about to be trained; "interpolated" needs it. `support` is as in `learner`. Metrics:
    reward, the mean return; sampled_tokens, the mean number per transcript; truncated, the share of truncated ones;
    zero_spread, the share whose group's returns are all equal; tokens and sequences in the loss; failed, the share whose
    environment raised. Failed transcripts are excluded from training and from all other metrics.
    Raises: ShapeError, DtypeError, ChoiceError.

    >>> from ...core.transcript.record import empty
    >>> from .objectives import rloo
    >>> two = replace(empty(1, 1, id=torch.tensor([0, 1]), group=torch.tensor([5, 5])), call=torch.zeros(2, 1).long(),
    ...               is_action=torch.ones(2, 1) > 0, length=torch.tensor([1, 1]), calls=torch.tensor([1, 1]),
    ...               reward=torch.tensor([[1.0], [0.0]]), terminated=torch.tensor([True, True]))
    >>> learned_from(rloo(), Handling(), two, Reading(), (), torch.tensor(0))[0].advantage
    tensor([[ 1.],
            [-1.]])
    """
    batch = _anchored(token_batch(transcript, of=support), handling, transcript, reading, version)
    failed = transcript.reason == FAILED
    cut = transcript.truncated & ~transcript.terminated & ~failed
    treatment = "keep" if handling.truncated == "bootstrap" else handling.truncated
    weight = handling.down_weight
    group = torch.where(failed, -1, renumber_groups(transcript.group))
    told = overlong_columns(cut, group, batch.mask, treatment=treatment, down_weight=weight)
    plain = episode_return(transcript.reward, transcript.calls)
    reward, total = _paid(objective, handling, transcript, batch, plain)
    flat = zero_spread(plain + _overlong(objective, batch), told.group, groups=plain.shape[0])
    mask = told.mask & ~flat[:, None] if objective.zero_spread == "drop" else told.mask
    episodes = AdvantageInputs(
        reward=reward,
        total=total,
        credit=token_credit(transcript, transcript.credit),
        group=told.group,
        counted=(transcript.length > 0) & ~failed & ~(cut & (handling.truncated == "drop")),
        mask=mask,
        terminated=~cut if handling.truncated == "bootstrap" else torch.ones_like(cut),
        values=reading.values,
        beyond=reading.beyond,
    )
    raw, memory = objective.advantages(episodes, memory)
    (advantage,) = neutral(mask, objective.scale(raw, mask))
    critic = _targets(raw, mask, reading.values) if objective.critic else {}
    after = replace(batch, mask=mask, advantage=advantage, weight=told.weight.to(advantage.dtype), **critic)
    return after, memory, _figures(after, plain, cut, flat, told, transcript)


def _targets(advantage: Tensor, mask: Tensor, values: Tensor) -> dict[str, Tensor]:
    return {"behaviour_value": values, "target": advantage + neutral(mask, values)[0]}


def teaches(batch: TokenBatch) -> Tensor:
    """Return whether the batch has a non-zero advantage or a target that differs from the critic's value: bool [].

    >>> from ...core.transcript.record import empty
    >>> teaches(token_batch(empty(2, 1, id=torch.tensor([0]))))
    tensor(False)
    """
    found = (batch.mask & (batch.advantage != 0)).any()
    if isinstance(batch.target, tuple):
        return found
    return found | (batch.mask & torch.ne(batch.target, batch.behaviour_value)).any()


def _anchored(
    batch: TokenBatch, handling: Handling, transcript: Transcript, reading: Reading, version: Tensor
) -> TokenBatch:
    if handling.proximal == "recomputed":
        batch = replace(batch, proximal_log_prob=reading.log_prob)
    if handling.proximal == "interpolated":
        share = interpolation(transcript.version, version)
        batch = replace(batch, proximal_log_prob=batch.behaviour_log_prob.clone(), share=share)
    return replace(batch, reference_log_prob=reading.reference_log_prob)


def _overlong(objective: Objective, batch: TokenBatch) -> Tensor:
    """Return the length penalty added to each return: [N]."""
    if isinstance(objective.overlong, tuple):
        return torch.zeros_like(batch.weight)
    return objective.overlong(batch.sampled.sum(-1))


def _paid(
    objective: Objective, handling: Handling, transcript: Transcript, batch: TokenBatch, plain: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the rewards of tokens [N, L] and the returns [N], both minus penalties."""
    mask, reward, penalty = batch.mask, token_rewards(transcript), _overlong(objective, batch)
    place = torch.arange(mask.shape[-1], device=mask.device)
    last = mask & (place == torch.where(mask, place, -1).amax(-1, keepdim=True))
    paid = reward + torch.where(last, penalty[:, None], 0.0)
    total = plain + penalty
    if isinstance(handling.kl_in_reward, Tensor) or handling.kl_in_reward != 0:
        given = paid, batch.proximal_log_prob, batch.reference_log_prob, mask
        numbers = {"coefficient": handling.kl_in_reward, "estimator": handling.kl_in_reward_estimator}
        after = kl_reward(*given, **numbers)  # type: ignore[arg-type]
        return after, total + (after - paid).sum(-1)
    return paid, total


def _figures(
    batch: TokenBatch, plain: Tensor, cut: Tensor, flat: Tensor, told: Counted, transcript: Transcript
) -> dict[str, Tensor]:
    failed = transcript.reason == FAILED
    there = (transcript.length > 0) & ~failed
    rows = there.sum()
    sampled = batch.sampled.sum(-1)
    values = (
        divided(torch.where(there, plain, 0.0).sum(), rows),
        divided(sampled.sum().to(plain.dtype), rows),
        divided((cut & there).sum().to(plain.dtype), rows),
        divided((failed & (transcript.length > 0)).sum().to(plain.dtype), (transcript.length > 0).sum()),
        divided((flat & (told.group >= 0)).sum().to(plain.dtype), rows),
        batch.mask.sum().to(plain.dtype),
        batch.mask.any(-1).sum().to(plain.dtype),
    )
    return dict(zip(FIGURES, values, strict=True))

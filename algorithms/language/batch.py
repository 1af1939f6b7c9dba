"""The training batch of an update from transcripts: returns, penalties, truncation, advantages; over the whole batch.

`learned_from` does all of it. Counts are those of a whole optimiser step, also if it is computed in parts.
"""

from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ...core.errors import ShapeError, choose, message
from ...core.language.types import Counts, TokenBatch, Transcript
from ...core.record import record, replace, tensor
from ...core.shapes import boolean, same_shape
from ...core.transcript.calls import per_token
from ...core.transcript.log_probs import loss_mask
from ...core.transcript.record import FAILED
from ..advantages import bootstrap
from ..aggregate import divided
from ..decoupled import interpolation
from ..hyperparameters import Number, bounded, check_number
from ..kl import Estimator, k1, kl_reward
from .credit import episode_return, own_rewards, token_credit
from .group_advantages import zero_spread
from .masking import neutral, next_in_mask
from .objectives import AdvantageInputs, Objective


def token_batch(transcript: Transcript, *, of: str = "sampled") -> TokenBatch:
    """Return the columns of transcripts [N], all sampled tokens in the mask, advantages 0: -> TokenBatch [N].

    `of` is the support of the policy: the one "sampled" from, by each call's top_p, or the "whole" vocabulary. A greedy call
    (temperature 0) is scored at temperature 1, over all tokens. Raises: ChoiceError.

    >>> from ...core.record import replace
    >>> from ...core.transcript.record import empty
    >>> said = replace(empty(3, 1, id=torch.tensor([7])), is_action=torch.tensor([[False, True, False]]),
    ...                token=torch.tensor([[4, 5, 9]]), length=torch.tensor([2]))
    >>> batch = token_batch(said)
    >>> batch.token, batch.mask
    (tensor([[4, 5, 0]]), tensor([[False,  True, False]]))
    """
    mask = loss_mask(transcript)
    inside = torch.arange(mask.shape[-1], device=mask.device) < transcript.length[..., None]
    drawn = transcript.temperature > 0
    heat = torch.where(drawn, transcript.temperature, 1.0)
    top_p = per_token(transcript, torch.where(drawn, transcript.top_p, 1.0), 1.0)
    return TokenBatch(
        token=torch.where(inside, transcript.token, 0),
        sampled=mask,
        mask=mask.clone(),
        behaviour_log_prob=transcript.behaviour_log_prob.clone(),
        proximal_log_prob=transcript.proximal_log_prob.clone(),
        temperature=per_token(transcript, heat, 1.0),
        advantage=torch.zeros_like(transcript.behaviour_log_prob),
        weight=torch.ones_like(transcript.reward[..., 0]),
        length=transcript.length.clone(),
        top_p=choose("token_batch: of", of, {"sampled": top_p, "whole": ()}),
    )


def count_tokens(batch: TokenBatch, *, of: str = "counted") -> Counts:
    """Return the numbers of tokens and sequences of a whole batch: those "counted" in the loss, or all that were "sampled".

    With "counted", excluding tokens (truncated samples, groups of equal returns) increases the weight of the others; with
    "sampled" their weight stays the same. Raises: ChoiceError.

    >>> from ...core.record import replace
    >>> from ...core.transcript.record import empty
    >>> batch = token_batch(empty(3, 1, id=torch.tensor([7, 8])))
    >>> some = replace(batch, mask=torch.tensor([[True, True, False], [False, False, False]]))
    >>> count_tokens(some), count_tokens(some, of="sampled").tokens
    (Counts(tokens=tensor(2), sequences=tensor(1)), tensor(0))
    """
    mask = choose("counts: of", of, {"counted": batch.mask, "sampled": batch.sampled})
    return Counts(tokens=mask.sum(), sequences=mask.any(-1).sum())


def renumber_groups(group: Tensor) -> Tensor:
    """Return group ids renumbered to 0..N-1, the index of the first row in each group; negative ids become -1: int [N] -> [N].

    >>> renumber_groups(torch.tensor([70, -1, 30, 70, 30]))
    tensor([ 0, -1,  2,  0,  2])
    """
    row = torch.arange(group.shape[0], device=group.device)
    first = torch.where(group[:, None] == group, row, group.shape[0]).amin(-1)
    return torch.where(group < 0, -1, first)


def token_rewards(transcript: Transcript) -> Tensor:
    """Return the reward of each sampled token: a call's reward at its last token, 0 elsewhere: Transcript [*] -> [*, L].

    The reward of a call without sampled tokens here goes to the last token sampled before it; if there is none it is
    dropped: rewards of inherited calls belong to the transcript that sampled them.

    >>> from ...core.record import replace
    >>> from ...core.transcript.record import empty
    >>> said = replace(empty(4, 3, id=0), call=torch.tensor([-1, 0, 0, 2]), calls=torch.tensor(3),
    ...                is_action=torch.tensor([False, True, True, True]), reward=torch.tensor([1.0, 2.0, 4.0]))
    >>> token_rewards(said)
    tensor([0., 0., 3., 4.])
    """
    mask, earned = loss_mask(transcript), own_rewards(transcript.reward, transcript.calls)
    before = torch.nn.functional.pad(earned.cumsum(-1), (1, 0))  # sum of rewards before each call
    own = transcript.call.clamp(min=0)
    last = torch.full_like(transcript.length, earned.shape[-1])
    then = next_in_mask(own, mask, last).clamp(max=earned.shape[-1])
    return torch.where(mask & (then != own), before.gather(-1, then) - before.gather(-1, own), 0.0)


@record
class Counted:
    """Groups, mask and weights of samples after the treatment of truncated ones."""

    group: Tensor = tensor("*", "int")  # for group_advantages; -1 if the sample belongs to no group
    mask: Tensor = tensor("* L", "bool")  # the tokens in the loss
    weight: Tensor = tensor("*", "float")  # of the sample's loss


def overlong_penalty(length: Tensor, *, limit: Number, buffer: Number, factor: Number = 1.0) -> Tensor:
    """Return the reward penalty of long answers: 0 up to limit - buffer, then linear, -factor from limit on.

    factor min(max((limit - buffer - length) / buffer, -1), 0)

    Shapes: [*] of any dtype -> float [*]. Raises: ChoiceError.  Source: Yu et al. 2025, arXiv:2503.14476, equation 13
    (DAPO), with factor 1. verl and AReaL have the factor but no floor, since no answer exceeds their limit.

    >>> overlong_penalty(torch.tensor([6, 8, 10, 12, 90]), limit=12, buffer=4)
    tensor([ 0.0000,  0.0000, -0.5000, -1.0000, -1.0000])
    """
    check_number("overlong_penalty: buffer", buffer, 1.0)
    check_number("overlong_penalty: limit", limit, buffer if not isinstance(buffer, Tensor) else 1.0)
    check_number("overlong_penalty: factor", factor, 0.0)
    return factor * bounded((limit - buffer - length) / buffer, -1.0, 0.0)


def overlong_columns(
    truncated: Tensor, group: Tensor, mask: Tensor, *, treatment: str, down_weight: Number = 0.5
) -> Counted:
    """Return group, mask and weight of samples [N] of which some were truncated.

    - "keep": train on it as on any other; appropriate if exceeding the length is a failure of the model.
    - "mask": not in the loss, but its reward stays in its group's mean (TRL's `mask_truncated_completions`).
    - "down_weight": train on it with the weight `down_weight`.
    - "drop": as if it had never been sampled; its group is smaller by one.
    Denominators may come from the original mask or from the returned one: with the original one, masked samples reduce the
    loss; with the returned one they do not. With a critic there is another treatment, its value: `bootstrapped`.
    Shapes: bool [N], int [N], bool [N, L]. Raises: ShapeError, DtypeError, ChoiceError.

    >>> truncated, group = torch.tensor([False, True]), torch.tensor([3, 3])
    >>> told = overlong_columns(truncated, group, torch.ones(2, 1, dtype=torch.bool), treatment="drop")
    >>> told.group, told.mask, told.weight
    (tensor([ 3, -1]), tensor([[ True],
            [False]]), tensor([1., 1.]))
    """
    same_shape("counted", truncated=truncated, group=group)
    boolean("counted", truncated=truncated, mask=mask)
    check_number("counted: down_weight", down_weight, 0.0, 1.0)
    if mask.shape[:-1] != truncated.shape:
        wanted = f"{list(truncated.shape)} and an axis of tokens"
        raise ShapeError(
            message("counted: mask", got=list(mask.shape), wanted=wanted, remedy="give a row to each sample")
        )
    loses_tokens, loses_group, weight = choose(
        "counted: treatment",
        treatment,
        {
            "keep": (False, False, 1.0),
            "mask": (True, False, 1.0),
            "down_weight": (False, False, down_weight),
            "drop": (True, True, 1.0),
        },
    )
    whole = torch.ones(truncated.shape, device=truncated.device)
    return Counted(
        group=torch.where(truncated, -1, group) if loses_group else group.clone(),
        mask=mask & ~truncated[..., None] if loses_tokens else mask.clone(),
        weight=torch.where(truncated, weight * whole, whole),
    )


def bootstrapped(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: Number = 1.0
) -> Tensor:
    """Return the reward of a sample's last step plus the critic's value beyond a truncation; termination takes precedence.

    r + gamma v' where truncated and not terminated, r elsewhere; there v' may be any value

    Shapes: all [*]. Raises: ShapeError, DtypeError, ChoiceError.  Source: Pardo et al. 2018, arXiv:1712.00378.

    >>> no, yes = torch.tensor([False, True]), torch.tensor([True, True])
    >>> bootstrapped(torch.ones(2), torch.full((2,), 4.0), terminated=no, truncated=yes, gamma=0.5)
    tensor([3., 1.])
    """
    same_shape("bootstrapped", reward=reward, next_value=next_value, terminated=terminated, truncated=truncated)
    boolean("bootstrapped", terminated=terminated, truncated=truncated)
    check_number("bootstrapped: gamma", gamma, 0.0, 1.0)
    return reward + gamma * torch.where(truncated, bootstrap(next_value, terminated), 0.0)


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

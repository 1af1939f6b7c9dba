"""The inputs of a loss from transcripts: columns of tokens, and the total counts for denominators.

Column t describes token t, as in a transcript. `token_batch` copies columns of the transcript; advantages and targets come
from estimators. Counts are those of a whole optimiser step, also if it is computed in parts.
"""

from typing import Any

import torch
from torch import Tensor

from ...core.errors import choose
from ...core.record import record, tensor
from ...core.transcript.calls import per_token
from ...core.transcript.log_probs import loss_mask
from ...core.transcript.record import Transcript
from .advantages import next_in_mask
from .credit import own_rewards


@record
class TokenBatch:
    """N sequences in columns of L. A field that an algorithm does not use is ()."""

    token: Tensor = tensor("* L", "int")  # 0 in the padding
    sampled: Tensor = tensor("* L", "bool")  # sampled by the model in these transcripts, not inherited
    mask: Tensor = tensor("* L", "bool")  # the sampled tokens that are in the loss
    behaviour_log_prob: Tensor = tensor("* L", "float")  # under the sampling policy
    proximal_log_prob: Tensor = tensor("* L", "float")  # under the proximal policy
    temperature: Tensor = tensor("* L", "float")  # for scoring
    advantage: Tensor = tensor("* L", "float")
    weight: Tensor = tensor("*", "float")  # of the sample's loss
    length: Tensor = tensor("*", "int")
    top_p: Any = ()  # [* L] for scoring; () for all tokens
    share: Any = ()  # [* L] of `interpolation`
    reference_log_prob: Any = ()  # [* L]
    behaviour_value: Any = ()  # [* L] value of the prefix before the token, before the update
    target: Any = ()  # [* L] of the value


@record
class Counts:
    """Numbers of tokens and sequences in one optimiser step: the denominators of losses."""

    tokens: Tensor = tensor("*", "int")
    sequences: Tensor = tensor("*", "int")  # with at least one token in the mask


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

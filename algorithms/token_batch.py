"""What a loss reads of transcripts: columns of tokens, and how many of them there are in all.

Column t describes token t, as in a transcript. `token_batch` copies what stands there; what is learnt from it (advantages,
targets) comes from estimators. Counts are those of a whole step of the optimiser, whatever parts it is computed in.
"""

from typing import Any

import torch
from torch import Tensor

from ..core.errors import choose
from ..core.record import record, tensor
from ..core.transcript import Transcript
from ..core.transcript_calls import per_token
from ..core.transcript_scores import loss_mask
from .credit import per_step
from .token_gae import following


@record
class TokenBatch:
    """N sequences in columns of L. A field that an algorithm does not use is ()."""

    token: Tensor = tensor("* L", "int")  # 0 in the padding
    sampled: Tensor = tensor("* L", "bool")  # what the model chose in these very transcripts
    mask: Tensor = tensor("* L", "bool")  # those of them that count in the loss
    behaviour_log_prob: Tensor = tensor("* L", "float")  # under what sampled it
    proximal_log_prob: Tensor = tensor("* L", "float")  # under what an update is to stay near
    temperature: Tensor = tensor("* L", "float")  # to score with
    advantage: Tensor = tensor("* L", "float")
    weight: Tensor = tensor("*", "float")  # of the sample's loss
    length: Tensor = tensor("*", "int")
    share: Any = ()  # [* L] of `interpolation`
    reference_log_prob: Any = ()  # [* L]
    behaviour_value: Any = ()  # [* L] of what precedes the token, before the update
    target: Any = ()  # [* L] of the value


@record
class Counts:
    """How much counts in one step of the optimiser; what losses are divided by."""

    tokens: Tensor = tensor("*", "int")
    sequences: Tensor = tensor("*", "int")  # with a token that counts


def token_batch(transcript: Transcript) -> TokenBatch:
    """The columns of transcripts [N], every sampled token counting, advantages 0: -> TokenBatch [N].

    A call that was greedy (temperature 0) is scored at 1.

    >>> from ..core.record import replace
    >>> from ..core.transcript import empty
    >>> said = replace(empty(3, 1, id=torch.tensor([7])), is_action=torch.tensor([[False, True, False]]),
    ...                token=torch.tensor([[4, 5, 9]]), length=torch.tensor([2]))
    >>> batch = token_batch(said)
    >>> batch.token, batch.mask
    (tensor([[4, 5, 0]]), tensor([[False,  True, False]]))
    """
    mask = loss_mask(transcript)
    inside = torch.arange(mask.shape[-1], device=mask.device) < transcript.length[..., None]
    heat = torch.where(transcript.temperature > 0, transcript.temperature, 1.0)
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
    )


def counts(batch: TokenBatch, *, of: str = "counted") -> Counts:
    """The tokens and sequences of a whole batch: of those that count in the loss, or of all that were "sampled".

    The first lets what was left out (truncated samples, groups without spread) weigh nothing, so that the rest weighs more;
    the second keeps the weight of the rest. Raises: ChoiceError.

    >>> from ..core.record import replace
    >>> from ..core.transcript import empty
    >>> batch = token_batch(empty(3, 1, id=torch.tensor([7, 8])))
    >>> some = replace(batch, mask=torch.tensor([[True, True, False], [False, False, False]]))
    >>> counts(some), counts(some, of="sampled").tokens
    (Counts(tokens=tensor(2), sequences=tensor(1)), tensor(0))
    """
    mask = choose("counts: of", of, {"counted": batch.mask, "sampled": batch.sampled})
    return Counts(tokens=mask.sum(), sequences=mask.any(-1).sum())


def numbered(group: Tensor) -> Tensor:
    """Groups of any ids as numbers from 0 to N - 1, that of the first row in each; below 0 stays as -1: int [N] -> [N].

    >>> numbered(torch.tensor([70, -1, 30, 70, 30]))
    tensor([ 0, -1,  2,  0,  2])
    """
    row = torch.arange(group.shape[0], device=group.device)
    first = torch.where(group[:, None] == group, row, group.shape[0]).amin(-1)
    return torch.where(group < 0, -1, first)


def token_rewards(transcript: Transcript) -> Tensor:
    """What each sampled token was paid: a call's reward at its last token, 0 elsewhere: Transcript [*] -> [*, L].

    The reward of a call that sampled nothing here goes to the last token sampled before it, and to nobody where there is
    none: what a fork inherited was paid where it was written.

    >>> from ..core.record import replace
    >>> from ..core.transcript import empty
    >>> said = replace(empty(4, 3, id=0), call=torch.tensor([-1, 0, 0, 2]), calls=torch.tensor(3),
    ...                is_action=torch.tensor([False, True, True, True]), reward=torch.tensor([1.0, 2.0, 4.0]))
    >>> token_rewards(said)
    tensor([0., 0., 3., 4.])
    """
    mask, earned = loss_mask(transcript), per_step(transcript.reward, transcript.calls)
    before = torch.nn.functional.pad(earned.cumsum(-1), (1, 0))  # what was earned before a call
    own = transcript.call.clamp(min=0)
    last = torch.full_like(transcript.length, earned.shape[-1])
    then = following(own, mask, last).clamp(max=earned.shape[-1])
    return torch.where(mask & (then != own), before.gather(-1, then) - before.gather(-1, own), 0.0)

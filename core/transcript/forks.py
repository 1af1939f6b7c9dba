"""Forks: a rewritten context is a new transcript with a shared prefix, and the old transcript does not change."""

import torch
from torch import Tensor

from ..errors import ShapeError, message
from ..language.types import Transcript
from ..record import replace
from .record import ABORT, ABSENT, CALL_BLANKS, NONE, TOKEN_BLANKS, for_each


def fork(transcript: Transcript, at: Tensor | int, id: Tensor | int) -> Transcript:
    """Return a new transcript that starts with the first `at` tokens of another one.

    `parent` is the other's id, `inherited` the number of its tokens: a loss includes them there and not here. Turns continue,
    since the environment is not reset; end flags and overflow are cleared. Calls that sampled one of these tokens are copied;
    the last of them, if the fork cuts it or it is running, ends with ABORT, without parse error, reward and credit.
    Shapes: at int [*], clamped to 0..length, id int [*]. Raises: ShapeError, DtypeError.

    >>> from .record import USER, append_context, empty
    >>> told = append_context(empty(3, 1, id=7), torch.tensor([4, 5]), 2, USER)
    >>> other = append_context(fork(told, 1, 8), torch.tensor([6]), 1, USER)
    >>> other.token, other.parent, other.inherited, told.token
    (tensor([4, 6, 0]), tensor(7), tensor(1), tensor([4, 5, 0]))
    """
    length = transcript.length
    place = torch.arange(transcript.token.shape[-1], device=length.device)
    kept = for_each("fork: at", at, length, "int").clamp_min(0).minimum(length)
    here = place < kept[..., None]
    zero, no = torch.zeros_like(length), torch.zeros_like(transcript.truncated)
    calls = torch.where(here, transcript.call, ABSENT).amax(-1) + 1
    return replace(
        transcript,
        **{name: torch.where(here, getattr(transcript, name), blank) for name, blank in TOKEN_BLANKS.items()},
        **_calls(transcript, calls, here),
        length=kept,
        calls=calls,
        inherited=kept.clone(),
        overflow=zero,
        id=for_each("fork: id", id, length, "int").clone(),
        parent=transcript.id.clone(),
        terminated=no,
        truncated=no.clone(),
        reason=zero.clone(),
    )


def _calls(transcript: Transcript, calls: Tensor, here: Tensor) -> dict[str, Tensor]:
    """Return the columns of the first `calls` [*] calls, whose kept tokens are `here` [*, L]."""
    number = torch.arange(transcript.reward.shape[-1], device=calls.device)
    kept, last = number < calls[..., None], number == calls[..., None] - 1
    beyond = ((transcript.call == calls[..., None] - 1) & ~here).any(-1, keepdim=True)
    cut = last & (beyond | (transcript.finish_reason == NONE))
    columns = {}
    for name, blank in CALL_BLANKS.items():
        stays = kept if name in ("temperature", "top_p") else kept & ~cut
        columns[name] = torch.where(stays, getattr(transcript, name), blank)
    columns["finish_reason"] = torch.where(cut, ABORT, columns["finish_reason"])
    return columns


def prefix_of(one: Transcript, other: Transcript) -> Tensor:
    """Return whether the tokens of `one` are the first tokens of `other`: bool [*]. Their capacities may differ.

    Raises: ShapeError.

    >>> from .record import USER, append_context, empty
    >>> told = append_context(empty(3, 1, id=7), torch.tensor([4, 5]), 2, USER)
    >>> prefix_of(fork(told, 1, 8), told), prefix_of(told, fork(told, 1, 8))
    (tensor(True), tensor(False))
    """
    if one.length.shape != other.length.shape:
        got, wanted = list(other.length.shape), f"{list(one.length.shape)} as those of `one`"
        raise ShapeError(
            message("prefix_of: leading axes of `other`", got=got, wanted=wanted, remedy="make them alike")
        )
    shared = min(one.token.shape[-1], other.token.shape[-1])
    beyond = torch.arange(shared, device=one.length.device) >= one.length[..., None]
    equal = one.token[..., :shared] == other.token[..., :shared]
    return (equal | beyond).all(-1) & (one.length <= other.length)

"""Cuts: truncation of transcripts to the maximum length of a learner, with the share that is left."""

import torch
from torch import Tensor

from ..errors import ChoiceError, message
from ..language.types import Transcript
from ..record import record, replace, tensor
from .calls import mark_end
from .record import MAX_SEQ_LEN, TOKEN_BLANKS


@record
class Cut:
    """A cut transcript, and the share of it that is left."""

    transcript: Transcript
    original: Tensor = tensor("*", "int")  # number of tokens before the cut
    retained: Tensor = tensor("*", "int")  # number of tokens after it
    share: Tensor = tensor("*", "float")  # retained / original; 1 for an empty transcript


def cut_to(transcript: Transcript, max_seq_len: int) -> Cut:
    """Return the first `max_seq_len` tokens; longer transcripts are truncated, with MAX_SEQ_LEN if they had no reason before.

    The token columns shrink to at most `max_seq_len`. The call columns stay, including rewards, also for calls that lost all
    their tokens: credit computed before or after the cut is the same. `terminated` stays as well: the learner decides which
    value to use after the last remaining token. Tokens that a fork inherited are trained on in its parent: if they are cut
    there, they are not trained on at all.
    Raises: ChoiceError.

    >>> from .record import USER, append_context, empty
    >>> told = append_context(empty(4, 1, id=0), torch.tensor([5, 6, 7, 8]), 4, USER)
    >>> short = cut_to(told, 3)
    >>> short.transcript.token, short.transcript.truncated, short.retained, short.share
    (tensor([5, 6, 7]), tensor(True), tensor(3), tensor(0.7500))
    """
    if max_seq_len < 1:
        where, remedy = "cut_to: max_seq_len", "pass what the learner can take"
        raise ChoiceError(message(where, got=max_seq_len, wanted="at least 1", remedy=remedy))
    original = transcript.length
    retained = original.clamp_max(max_seq_len)
    share = torch.where(original > 0, retained.to(torch.float32) / original.clamp_min(1), 1.0)
    shorter = replace(
        transcript,
        **{name: getattr(transcript, name)[..., :max_seq_len].clone() for name in TOKEN_BLANKS},
        length=retained,
        inherited=transcript.inherited.minimum(retained),
    )
    return Cut(
        transcript=mark_end(shorter, False, original > max_seq_len, MAX_SEQ_LEN),
        original=original.clone(),
        retained=retained.clone(),
        share=share,
    )

"""Cuts: a transcript that is longer than what a learner can take loses its end, and says so."""

import torch
from torch import Tensor

from .errors import ChoiceError, message
from .record import record, replace, tensor
from .transcript import MAX_SEQ_LEN, TOKEN_BLANKS, Transcript
from .transcript_calls import ended


@record
class Cut:
    """A transcript that fits, and how much of it is left."""

    transcript: Transcript
    original: Tensor = tensor("*", "int")  # how many tokens there were
    retained: Tensor = tensor("*", "int")  # how many are left
    share: Tensor = tensor("*", "float")  # retained / original; 1 where there were none


def cut_to(transcript: Transcript, max_seq_len: int) -> Cut:
    """The first `max_seq_len` tokens; what had more is truncated, for MAX_SEQ_LEN where no earlier reason stands.

    The columns of tokens shrink to at most `max_seq_len`. What is said of calls stays, rewards among it, also of calls that
    lost all their tokens: the episode was what it was, and credit taken before or after the cut is the same. `terminated`
    stays as well: what a value is to stand for behind the last token left is the learner's to say, who has seen what came.
    What a fork inherited is learned from in its parent: if the cut takes it there, it is learned from nowhere.
    Raises: ChoiceError.

    >>> from .transcript import USER, append_context, empty
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
        transcript=ended(shorter, False, original > max_seq_len, MAX_SEQ_LEN),
        original=original.clone(),
        retained=retained.clone(),
        share=share,
    )

"""Cuts of transcripts as people get them wrong."""

from collections.abc import Callable

import torch
from torch import Tensor

from purestep.core.record import replace
from purestep.core.transcript import MAX_SEQ_LEN, TOKEN_BLANKS, Transcript
from purestep.core.transcript_cuts import Cut

CutTo = Callable[[Transcript, int], Cut]


def _after(change: Callable[[Transcript, Cut, int], Transcript]) -> Callable[[CutTo], CutTo]:
    """An edit of the transcript that comes out."""

    def make(subject: CutTo) -> CutTo:
        def edited(transcript: Transcript, max_seq_len: int) -> Cut:
            right = subject(transcript, max_seq_len)
            return replace(right, transcript=change(transcript, right, max_seq_len))

        return edited

    return make


def _keeps_the_end(old: Transcript, right: Cut, most: int) -> Transcript:
    place = torch.arange(min(most, old.token.shape[-1]))
    first = (right.original - right.retained)[..., None]
    ends = {name: getattr(old, name).gather(-1, (place + first).expand(*first.shape[:-1], -1)) for name in TOKEN_BLANKS}
    return replace(right.transcript, **ends)


def _last_reason(old: Transcript, right: Cut, most: int) -> Transcript:
    return replace(right.transcript, reason=torch.where(old.length > most, MAX_SEQ_LEN, right.transcript.reason))


def _for_good_measure(old: Transcript, right: Cut, most: int) -> Transcript:
    cut = old.length >= most
    reason = torch.where(cut & ~old.truncated, MAX_SEQ_LEN, right.transcript.reason)
    return replace(right.transcript, truncated=right.transcript.truncated | cut, reason=reason)


def _blames_length(old: Transcript, right: Cut, most: int) -> Transcript:
    return replace(right.transcript, terminated=right.transcript.terminated & (old.length <= most))


def _unseen(old: Transcript, right: Cut, most: int) -> Transcript:
    return replace(right.transcript, truncated=old.truncated.clone(), reason=old.reason.clone())


def _loses_rewards(old: Transcript, right: Cut, most: int) -> Transcript:
    last = right.transcript.call.amax(-1, keepdim=True)
    kept = torch.arange(old.reward.shape[-1]) <= last
    return replace(right.transcript, reward=torch.where(kept, old.reward, 0.0))


keeps_the_end = _after(_keeps_the_end)
last_reason = _after(_last_reason)
for_good_measure = _after(_for_good_measure)
blames_length = _after(_blames_length)
unseen = _after(_unseen)
loses_rewards = _after(_loses_rewards)


def share_of_room(subject: CutTo) -> CutTo:
    """Tells how full the room is, not how much is left of what there was."""

    def edited(transcript: Transcript, max_seq_len: int) -> Cut:
        right = subject(transcript, max_seq_len)
        share: Tensor = right.retained / max_seq_len
        return replace(right, share=share)

    return edited


MUTANTS: dict[str, Callable[[CutTo], CutTo]] = {"takes back that a cut episode terminated": blames_length}

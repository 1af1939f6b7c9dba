"""Forks of transcripts, and readings of them, as people get them wrong."""

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.record import replace
from purestep.core.transcript import ABSENT, TOKEN_BLANKS, Transcript
from purestep.properties.strategies.transcripts import Transcripts

from .transcript_mutants import Make


def keeps_the_rest(subject: Transcripts) -> Transcripts:
    """Sets the length back and leaves what stands beyond it."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        return replace(subject.fork(old, at, id), **{name: getattr(old, name) for name in TOKEN_BLANKS})

    return evolve(subject, fork=fork)


def in_place(subject: Transcripts) -> Transcripts:
    """Blanks what the fork leaves out in the tensor that both then share."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        new = subject.fork(old, at, id)
        return replace(new, token=old.token.copy_(new.token))

    return evolve(subject, fork=fork)


def orphan(subject: Transcripts) -> Transcripts:
    """Names the fork's own grandparent for its parent."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        return replace(subject.fork(old, at, id), parent=old.parent)

    return evolve(subject, fork=fork)


def stays_ended(subject: Transcripts) -> Transcripts:
    """Keeps the parent's end."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        return replace(subject.fork(old, at, id), truncated=old.truncated, reason=old.reason)

    return evolve(subject, fork=fork)


def learns_again(subject: Transcripts) -> Transcripts:
    """Learns from every action there is."""

    def loss_mask(transcript: Transcript) -> Tensor:
        return transcript.is_action

    return evolve(subject, loss_mask=loss_mask)


def compares_padding(subject: Transcripts) -> Transcripts:
    """Compares all columns, used or not."""

    def prefix_of(one: Transcript, other: Transcript) -> Tensor:
        shared = min(one.token.shape[-1], other.token.shape[-1])
        return (one.token[..., :shared] == other.token[..., :shared]).all(-1) & (one.length <= other.length)

    return evolve(subject, prefix_of=prefix_of)


def compares_lengths(subject: Transcripts) -> Transcripts:
    """Takes the shorter one for a prefix of the longer."""

    def prefix_of(one: Transcript, other: Transcript) -> Tensor:
        return one.length <= other.length

    return evolve(subject, prefix_of=prefix_of)


def proximal_everywhere(subject: Transcripts) -> Transcripts:
    """Writes all columns of the forward pass."""

    def with_proximal(old: Transcript, log_probs: Tensor, where: Tensor | None = None) -> Transcript:
        every = torch.ones_like(old.is_action) if where is None else where
        return replace(old, proximal_log_prob=torch.where(every, log_probs, old.proximal_log_prob))

    return evolve(subject, with_proximal=with_proximal)


def over_the_behaviour(subject: Transcripts) -> Transcripts:
    """Writes recomputed log-probs over the behaviour's."""

    def with_proximal(old: Transcript, log_probs: Tensor, where: Tensor | None = None) -> Transcript:
        new = subject.with_proximal(old, log_probs, where)
        return replace(new, behaviour_log_prob=new.proximal_log_prob)

    return evolve(subject, with_proximal=with_proximal)


def first_calls(subject: Transcripts) -> Transcripts:
    """Gives context what stands at the first call."""

    def per_token(transcript: Transcript, values: Tensor, otherwise: float = 0.0) -> Tensor:
        return values.gather(-1, transcript.call.clamp_min(ABSENT + 1))

    return evolve(subject, per_token=per_token)


MUTANTS: dict[str, Make] = {
    "names the grandparent for the parent": orphan,
    "keeps the parent's end": stays_ended,
    "takes the shorter one for a prefix": compares_lengths,
    "writes recomputed log-probs over the behaviour's": over_the_behaviour,
}

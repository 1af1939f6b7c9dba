"""Transcripts as people get them wrong."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.record import replace
from purestep.core.transcript import ABORT, ABSENT, LENGTH, MAX_SEQ_LEN, NONE, STOP, TOKEN_BLANKS, Transcript
from purestep.properties.strategies.transcripts import Change, Transcripts

Make = Callable[[Transcripts], Transcripts]


def _appends(subject: Transcripts, change: Callable[[Change], Change]) -> Transcripts:
    """With both ways to append changed."""
    context, sampled = change(subject.append_context), change(subject.append_sampled)
    return evolve(subject, append_context=context, append_sampled=sampled)


def sliding(subject: Transcripts) -> Transcripts:
    """Lets the oldest tokens go where there is no room for new ones."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            excess = (old.length + count - old.token.shape[-1]).clamp_min(0)
            kept = (old.length - excess).clamp_min(0)
            place = torch.arange(old.token.shape[-1])
            moved = {}
            for name, blank in TOKEN_BLANKS.items():
                column = getattr(old, name)
                shifted = column.gather(-1, (place + excess[..., None]).clamp_max(place.shape[0] - 1))
                moved[name] = torch.where(place < kept[..., None], shifted, blank)
            return append(replace(old, **moved, length=kept), tokens, count, *rest)

        return mutant

    return _appends(subject, change)


def one_to_the_left(subject: Transcripts) -> Transcripts:
    """Puts a token's log-prob where the logits stood that it came from: one column to the left."""

    def mutant(old: Transcript, *given: Tensor) -> Transcript:
        new = subject.append_sampled(old, *given)
        place = torch.arange(new.token.shape[-1])
        fresh = (place >= old.length[..., None] - 1) & (place < new.length[..., None])
        shifted = torch.where(fresh, new.behaviour_log_prob.roll(-1, -1), new.behaviour_log_prob)
        return replace(new, behaviour_log_prob=shifted)

    return evolve(subject, append_sampled=mutant)


def to_the_end(subject: Transcripts) -> Transcripts:
    """Takes everything from the first sampled token on for an action."""

    def mutant(old: Transcript, *given: Tensor) -> Transcript:
        new = subject.append_context(old, *given)
        place = torch.arange(new.token.shape[-1])
        begun = new.is_action.to(torch.int64).cumsum(-1) > 0
        return replace(new, is_action=begun & (place < new.length[..., None]))

    return evolve(subject, append_context=mutant)


def what_fits(subject: Transcripts) -> Transcripts:
    """Writes as many of the tokens as there is room for."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            return append(old, tokens, count.minimum(old.token.shape[-1] - old.length), *rest)

        return mutant

    return _appends(subject, change)


def last_column_free(subject: Transcripts) -> Transcripts:
    """Never fills the last column: `length + count < capacity`."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            full = (old.length + count >= old.token.shape[-1]) & (count > 0)
            return append(old, tokens, torch.where(full, tokens.shape[-1] + 1, count), *rest)

        return mutant

    return _appends(subject, change)


def goes_on(subject: Transcripts) -> Transcripts:
    """Appends what fits after what did not."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, *given: Tensor) -> Transcript:
            new = append(replace(old, overflow=torch.zeros_like(old.overflow)), *given)
            return replace(new, overflow=new.overflow + old.overflow)

        return mutant

    return _appends(subject, change)


def at_least_one(subject: Transcripts) -> Transcripts:
    """Appends a first token where there is none."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            return append(old, tokens, count.clamp_min(min(tokens.shape[-1], 1)), *rest)

        return mutant

    return _appends(subject, change)


def a_call_each(subject: Transcripts) -> Transcripts:
    """Takes what comes in a chunk of its own for another call."""

    def mutant(old: Transcript, *given: Tensor) -> Transcript:
        new = subject.append_sampled(old, *given)
        place = torch.arange(new.token.shape[-1])
        fresh = (place >= old.length[..., None]) & (place < new.length[..., None])
        again = (old.call == old.calls[..., None] - 1).any(-1) & (old.calls < old.reward.shape[-1])
        return replace(new, call=torch.where(fresh & again[..., None], new.call + 1, new.call))

    return evolve(subject, append_sampled=mutant)


def behind_the_longest(subject: Transcripts) -> Transcripts:
    """Writes in all rows of a batch where the longest one ends."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, *given: Tensor) -> Transcript:
            return append(replace(old, length=old.length.amax().expand_as(old.length)), *given)

        return mutant

    return _appends(subject, change)


def first_version(subject: Transcripts) -> Transcripts:
    """Gives a chunk the version of its first token."""

    def mutant(old: Transcript, tokens: Tensor, count: Tensor, log_probs: Tensor, version: Tensor) -> Transcript:
        if version.shape == tokens.shape and version.shape[-1]:
            version = version[..., 0]
        return subject.append_sampled(old, tokens, count, log_probs, version)

    return evolve(subject, append_sampled=mutant)


def zero_is_absent(subject: Transcripts) -> Transcripts:
    """Takes version 0 for none: `version or -1`."""

    def mutant(old: Transcript, tokens: Tensor, count: Tensor, log_probs: Tensor, version: Tensor) -> Transcript:
        return subject.append_sampled(old, tokens, count, log_probs, torch.where(version == 0, ABSENT, version))

    return evolve(subject, append_sampled=mutant)


def length_truncates(subject: Transcripts) -> Transcripts:
    """Takes a call that was cut at its length for an episode that was truncated."""

    def mutant(old: Transcript, finish_reason: Tensor, *rest: Tensor) -> Transcript:
        new = subject.end_call(old, finish_reason, *rest)
        return subject.ended(new, torch.zeros_like(new.terminated), finish_reason == LENGTH, MAX_SEQ_LEN)

    return evolve(subject, end_call=mutant)


def last_reason(subject: Transcripts) -> Transcripts:
    """Writes each truncation's reason over the one before."""

    def mutant(old: Transcript, terminated: Tensor, truncated: Tensor, reason: Tensor) -> Transcript:
        new = subject.ended(old, terminated, truncated, reason)
        return replace(new, reason=torch.where(truncated & (reason != NONE), reason, new.reason))

    return evolve(subject, ended=mutant)


def stops_anyway(subject: Transcripts) -> Transcripts:
    """Begins a call where there is room for one, whether another is under way or not."""

    def mutant(old: Transcript, *given: Any) -> Transcript:
        closed = torch.where(old.finish_reason == NONE, LENGTH, old.finish_reason)
        new = subject.begin_call(replace(old, finish_reason=closed), *given)
        return replace(new, finish_reason=old.finish_reason)

    return evolve(subject, begin_call=mutant)


def cut_is_stopped(subject: Transcripts) -> Transcripts:
    """Lets a call that a fork cuts short look as if it had stopped by itself."""

    def mutant(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        new = subject.fork(old, at, id)
        return replace(new, finish_reason=torch.where(new.finish_reason == ABORT, STOP, new.finish_reason))

    return evolve(subject, fork=mutant)


MUTANTS: dict[str, Make] = {
    "gives a chunk the version of its first token": first_version,
    "takes version 0 for none": zero_is_absent,
    "leaves the last column free": last_column_free,
    "begins a call while another is under way": stops_anyway,
    "lets a call that a fork cuts short look finished": cut_is_stopped,
}

"""How people get token ids of episodes wrong: edits of how attempts grow and are written down."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from purestep.core.language.attempt import Attempt, Heard, Said, Told
from purestep.core.language.codec import Codec
from purestep.core.language.events import ABORT, STOP
from purestep.core.language.world import Truncated
from purestep.core.record import replace
from purestep.core.transcript import SAMPLED, TOOL, Transcript


@frozen
class Trying:
    """The three functions of `core.language.attempt` and `core.language.transcribe`."""

    begin: Callable[..., Attempt[Any]]
    hear: Callable[..., Attempt[Any]]
    transcripts: Callable[..., Transcript]


Hear = Callable[[Any, Codec, Attempt[Any], Said], Attempt[Any]]


def _hearing(change: Callable[[Hear, Any, Codec, Attempt[Any], Said], Attempt[Any]]) -> Callable[[Trying], Trying]:
    def make(trying: Trying) -> Trying:
        def hear(rules: Any, codec: Codec, attempt: Attempt[Any], said: Said) -> Attempt[Any]:
            return change(trying.hear, rules, codec, attempt, said)

        return evolve(trying, hear=hear)

    return make


def _retokenised(hear: Hear, rules: Any, codec: Codec, attempt: Attempt[Any], said: Said) -> Attempt[Any]:
    after = hear(rules, codec, attempt, said)
    if after == attempt:
        return after
    text = codec.decode(said.ids).encode()
    again = (*text, *said.ids[-1:]) if said.ids and said.ids[-1] in codec.stop else tuple(text)
    return evolve(after, ids=(*attempt.ids, *again, *after.pending))


def _crowded(hear: Hear, rules: Any, codec: Codec, attempt: Attempt[Any], said: Said) -> Attempt[Any]:
    roomy = hear(rules, codec, evolve(attempt, capacity=attempt.capacity + 50), said) if attempt.end == () else attempt
    return evolve(roomy, capacity=attempt.capacity)


def _kept(hear: Hear, rules: Any, codec: Codec, attempt: Attempt[Any], said: Said) -> Attempt[Any]:
    if said.finish_reason == ABORT and attempt.end == ():
        return evolve(attempt, ids=(*attempt.ids, *said.ids))
    return hear(rules, codec, attempt, said)


def _unread(hear: Hear, rules: Any, codec: Codec, attempt: Attempt[Any], said: Said) -> Attempt[Any]:
    plain = evolve(said, finish_reason=STOP) if said.finish_reason != ABORT else said
    return hear(rules, codec, attempt, plain)


retokenised = _hearing(_retokenised)
appends_beyond_room = _hearing(_crowded)
keeps_what_was_given_up = _hearing(_kept)
forgets_why_a_call_ended = _hearing(_unread)


def _writing(change: Callable[[Transcript, Sequence[Attempt[Any]]], Transcript]) -> Callable[[Trying], Trying]:
    def make(trying: Trying) -> Trying:
        def transcripts(attempts: Sequence[Attempt[Any]], **room: int) -> Transcript:
            return change(trying.transcripts(attempts, **room), attempts)

        return evolve(trying, transcripts=transcripts)

    return make


def _tools_sampled(written: Transcript, attempts: Sequence[Attempt[Any]]) -> Transcript:
    return replace(written, is_action=written.is_action | (written.source == TOOL))


def _last_version(written: Transcript, attempts: Sequence[Attempt[Any]]) -> Transcript:
    newest = written.version.amax(-1, keepdim=True).expand_as(written.version)
    return replace(written, version=newest.where(written.source == SAMPLED, written.version))


def _paid_at_the_end(written: Transcript, attempts: Sequence[Attempt[Any]]) -> Transcript:
    last = written.calls[:, None] - 1 == torch.arange(written.reward.shape[-1])
    return replace(written, reward=written.reward.sum(-1, keepdim=True) * last)


def _never_cut(written: Transcript, attempts: Sequence[Attempt[Any]]) -> Transcript:
    full = [isinstance(attempt.end, Truncated) and attempt.end.reason == "max_seq_len" for attempt in attempts]
    return replace(written, truncated=written.truncated & ~written.truncated.new_tensor(full))


def turns_of_the_longest(trying: Trying) -> Trying:
    """Counts the env steps of all rows by those of the first."""

    def transcripts(attempts: Sequence[Attempt[Any]], **room: int) -> Transcript:
        written = trying.transcripts(attempts, **room)
        return replace(written, turns=written.turns[:1].expand_as(written.turns).clone())

    return evolve(trying, transcripts=transcripts)


learns_from_tools = _writing(_tools_sampled)
stamps_the_newest_version = _writing(_last_version)
MUTANTS: dict[str, Callable[[Trying], Trying]] = {
    "pays all rewards at the last call": _writing(_paid_at_the_end),
    "does not tell that there was no room": _writing(_never_cut),
    "forgets why a call ended": forgets_why_a_call_ended,
}


def pieces_of(attempt: Attempt[Any]) -> tuple[list[Told], list[Heard]]:
    """What was told, and what was heard."""
    told = [piece for piece in attempt.pieces if isinstance(piece, Told)]
    return told, [piece for piece in attempt.pieces if isinstance(piece, Heard)]

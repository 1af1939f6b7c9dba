"""Laws of attempts: token ids are only appended, as they were sampled, and transcripts record the origin of each.

The subject is a `Trying`; models are scripts of ids, of bytes that may be invalid text, in the ledger environment.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.language.codec import END, Codec, byte_codec
from purestep.core.language.episode import Completion, total_reward
from purestep.core.language.events import ABORT, FINISH_REASONS, STOP, Feedback, Sampled, System, ToolResult, User
from purestep.core.language.protocol import begin_episode, turn_after
from purestep.core.language.requests import Request, RolloutSpec, key_of, rollouts, world_key
from purestep.core.language.text_env import Terminated, Truncated
from purestep.core.language.to_transcript import FINISH
from purestep.core.language.types import ContextTurn, ModelOutput, ModelTurn, Rollout, Transcript
from purestep.core.record import replace
from purestep.core.transcript.record import FEEDBACK, MAX_SEQ_LEN, SAMPLED, SYSTEM, TOOL, USER
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.language import MOVES, texts

from .scripts import Options, options

# --- mutants ---
# Common errors in token ids of episodes: edits of the functions that extend attempts and write transcripts.


@frozen
class Trying:
    """The three functions of `core.language.rollout` and `core.language.to_transcript`."""

    begin: Callable[..., Rollout[Any]]
    hear: Callable[..., Rollout[Any]]
    transcripts: Callable[..., Transcript]


Hear = Callable[[Any, Codec, Rollout[Any], ModelOutput], Rollout[Any]]


def _hearing(
    change: Callable[[Hear, Any, Codec, Rollout[Any], ModelOutput], Rollout[Any]],
) -> Callable[[Trying], Trying]:
    def make(trying: Trying) -> Trying:
        def hear(rules: Any, codec: Codec, attempt: Rollout[Any], said: ModelOutput) -> Rollout[Any]:
            return change(trying.hear, rules, codec, attempt, said)

        return evolve(trying, hear=hear)

    return make


def _retokenised(hear: Hear, rules: Any, codec: Codec, attempt: Rollout[Any], said: ModelOutput) -> Rollout[Any]:
    after = hear(rules, codec, attempt, said)
    if after == attempt:
        return after
    text = codec.decode(said.ids).encode()
    again = (*text, *said.ids[-1:]) if said.ids and said.ids[-1] in codec.stop else tuple(text)
    return evolve(after, ids=(*attempt.ids, *again, *after.pending))


def _crowded(hear: Hear, rules: Any, codec: Codec, attempt: Rollout[Any], said: ModelOutput) -> Rollout[Any]:
    roomy = hear(rules, codec, evolve(attempt, capacity=attempt.capacity + 50), said) if attempt.end == () else attempt
    return evolve(roomy, capacity=attempt.capacity)


def _kept(hear: Hear, rules: Any, codec: Codec, attempt: Rollout[Any], said: ModelOutput) -> Rollout[Any]:
    if said.finish_reason == ABORT and attempt.end == ():
        return evolve(attempt, ids=(*attempt.ids, *said.ids))
    return hear(rules, codec, attempt, said)


def _unread(hear: Hear, rules: Any, codec: Codec, attempt: Rollout[Any], said: ModelOutput) -> Rollout[Any]:
    plain = evolve(said, finish_reason=STOP) if said.finish_reason != ABORT else said
    return hear(rules, codec, attempt, plain)


retokenised = _hearing(_retokenised)
appends_beyond_room = _hearing(_crowded)
keeps_what_was_given_up = _hearing(_kept)
forgets_why_a_call_ended = _hearing(_unread)


def _writing(change: Callable[[Transcript, Sequence[Rollout[Any]]], Transcript]) -> Callable[[Trying], Trying]:
    def make(trying: Trying) -> Trying:
        def transcripts(attempts: Sequence[Rollout[Any]], **room: int) -> Transcript:
            return change(trying.transcripts(attempts, **room), attempts)

        return evolve(trying, transcripts=transcripts)

    return make


def _tools_sampled(written: Transcript, attempts: Sequence[Rollout[Any]]) -> Transcript:
    return replace(written, is_action=written.is_action | (written.source == TOOL))


def _last_version(written: Transcript, attempts: Sequence[Rollout[Any]]) -> Transcript:
    newest = written.version.amax(-1, keepdim=True).expand_as(written.version)
    return replace(written, version=newest.where(written.source == SAMPLED, written.version))


def _paid_at_the_end(written: Transcript, attempts: Sequence[Rollout[Any]]) -> Transcript:
    last = written.calls[:, None] - 1 == torch.arange(written.reward.shape[-1])
    return replace(written, reward=written.reward.sum(-1, keepdim=True) * last)


def _never_cut(written: Transcript, attempts: Sequence[Rollout[Any]]) -> Transcript:
    full = [isinstance(attempt.end, Truncated) and attempt.end.reason == "max_seq_len" for attempt in attempts]
    return replace(written, truncated=written.truncated & ~written.truncated.new_tensor(full))


def turns_of_the_longest(trying: Trying) -> Trying:
    """Use the env steps of the first row for all rows."""

    def transcripts(attempts: Sequence[Rollout[Any]], **room: int) -> Transcript:
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


def pieces_of(attempt: Rollout[Any]) -> tuple[list[ContextTurn], list[ModelTurn]]:
    """Return the pieces of context, and the pieces sampled by the model."""
    told = [piece for piece in attempt.pieces if isinstance(piece, ContextTurn)]
    return told, [piece for piece in attempt.pieces if isinstance(piece, ModelTurn)]


# --- laws ---


SOURCE = "core.language.rollout: never re-tokenised, only appended; core.transcript.record: columns"
CODEC = byte_codec()
SOURCES = {System: SYSTEM, User: USER, ToolResult: TOOL, Feedback: FEEDBACK}


@frozen
class Talk:
    """The options of the protocol, the capacity, and the model's outputs."""

    how: Options
    capacity: int
    said: tuple[ModelOutput, ...]
    number: int


def _said(ids: tuple[int, ...], finish_reason: str, version: int) -> ModelOutput:
    numbers = range(len(ids))
    return ModelOutput(
        ids=ids,
        log_probs=tuple(-0.25 * number for number in numbers),
        versions=tuple(version + (number > 1) for number in numbers),
        finish_reason=finish_reason,
        temperature=0.5 + version,
    )


def talks() -> SearchStrategy[Talk]:
    """Draw completions that are moves, other texts, or invalid bytes; some end in a stop token."""
    text = st.sampled_from((*MOVES.values(), *MOVES.values())) | texts()
    ids = st.one_of(text.map(lambda one: tuple(one[:60].encode(errors="replace"))), st.binary(max_size=6).map(tuple))
    ended = st.tuples(ids, st.booleans()).map(lambda one: (*one[0], END) if one[1] else one[0])
    finish = st.sampled_from((*FINISH_REASONS, "stop", "stop"))
    said = st.lists(st.builds(_said, ended, finish, st.integers(0, 3)), min_size=1, max_size=7).map(tuple)
    return st.builds(Talk, options(), st.sampled_from((50, 90, 130, 400)), said, st.integers(0, 9))


def rollout_of(number: int) -> RolloutSpec:
    """The one rollout of a request."""
    return rollouts(Request(id=number, group=number // 2, task=(2 * number, 1), sampling=(number, 2)))[0]


def grown(trying: Trying, talk: Talk) -> list[Rollout[Any]]:
    """The attempt before and after each output of the model; an output is cut to the room that is left."""
    rules = talk.how.protocol()
    rollout = rollout_of(talk.number)
    states = [trying.begin(rules, CODEC, rollout, capacity=talk.capacity, max_new_tokens=70)]
    for said in talk.said:
        states.append(trying.hear(rules, CODEC, states[-1], cut(said, states[-1])))
    return states


def cut(said: ModelOutput, attempt: Rollout[Any]) -> ModelOutput:
    """The output that a sampler would return: no longer than the room that is left."""
    room = attempt.room if attempt.end == () else len(said.ids)
    return evolve(said, ids=said.ids[:room], log_probs=said.log_probs[:room], versions=said.versions[:room])


def attempt_laws() -> Suite:
    """The laws of attempts and of their transcripts."""
    return Suite("attempt_laws", (_appended(), _room(), _protocol(), _columns(), _versions(), _rows()))


def _law(name: str, claim: str, mutant: Mutant, check: Any, *needs: str) -> Law:
    def each(trying: Trying, several: Iterable[Talk], seen: Seen) -> None:
        for one in several:
            check(trying, one, seen)

    drawn = st.lists(talks(), min_size=4, max_size=6)
    return Law(name=name, claim=claim, source=SOURCE, inputs=always(drawn), check=each, mutant=mutant, needs=needs)


def _appended() -> Law:
    def check(trying: Trying, talk: Talk, seen: Seen) -> None:
        states = grown(trying, talk)
        for (before, after), whole in zip(pairwise(states), talk.said, strict=True):
            said = cut(whole, before).ids
            if after == before:
                continue
            seen("bytes that are no text", bytes(CODEC.decode(said), "utf-8") != bytes(i for i in said if i < END))
            seen("a text without its stop token", not said or said[-1] != END)
            same("the ids", after.ids, (*before.ids, *said, *after.pending))
            told, heard = pieces_of(after)
            same("the ids of the pieces", sorted(after.ids), sorted(_all(told) + _all([h.said for h in heard])))

    mutant = Mutant("encodes the text that a model wrote again", retokenised)
    claim = "Ids are those that stood, then those sampled, as they were sampled, then those of what followed."
    return _law("appended", claim, mutant, check, "bytes that are no text", "a text without its stop token")


def _all(pieces: Iterable[Any]) -> list[int]:
    return [token for piece in pieces for token in piece.ids]


def _room() -> Law:
    def check(trying: Trying, talk: Talk, seen: Seen) -> None:
        for before, after in pairwise(grown(trying, talk)):
            full = after.end == Truncated("max_seq_len")
            seen("no room for what follows", full and before != after)
            require(len(after.ids) <= talk.capacity, f"at most {talk.capacity} ids, got {len(after.ids)}")
            require(
                (after.room > 0) == (after.end == ()), "there is room while an attempt goes on, and none behind its end"
            )
            same("behind the end", after if before.end != () else (), before if before.end != () else ())
            same("the episode's own end", after.end if not full else after.episode.end, after.episode.end)

    mutant = Mutant("appends what there is no room for", appends_beyond_room)
    claim = "There are never more ids than the capacity; where the next call finds no room the attempt is truncated."
    return _law("room", claim, mutant, check, "no room for what follows")


def _protocol() -> Law:
    def check(trying: Trying, talk: Talk, seen: Seen) -> None:
        states, rules, rollout = grown(trying, talk), talk.how.protocol(), rollout_of(talk.number)
        wanted, _ = begin_episode(rules, key_of(rollout.request.task))
        for before, whole in zip(states, talk.said, strict=False):
            said = cut(whole, before)
            seen("a call given up", said.finish_reason == ABORT and before.end == ())
            if before.end != () or said.finish_reason == ABORT:
                continue
            key = world_key(rollout.request, wanted.calls)
            wanted, _ = turn_after(rules, wanted, Completion(CODEC.decode(said.ids), said.finish_reason), key)
        same("the episode", states[-1].episode, wanted)
        spoken = [event.text for event in wanted.events if isinstance(event, Sampled)]
        same("ids read back", [CODEC.decode(h.said.ids) for h in pieces_of(states[-1])[1]], spoken)
        last = states[-1]
        same("ids without trace of what was given up", last.ids[-len(last.pending) or len(last.ids) :], last.pending)

    mutant = Mutant("keeps the ids of a call that was given up", keeps_what_was_given_up)
    claim = "The episode is the protocol's on the decoded texts; a call that was given up leaves no trace."
    return _law("protocol", claim, mutant, check, "a call given up")


def written(trying: Trying, talk: Talk) -> tuple[Rollout[Any], Transcript]:
    """An attempt at its last and its transcript []."""
    attempt = grown(trying, talk)[-1]
    found = trying.transcripts((attempt,), capacity=talk.capacity, calls=8)
    return attempt, tree_map(lambda leaf: leaf[0], found)


def _columns() -> Law:
    def check(trying: Trying, talk: Talk, seen: Seen) -> None:
        attempt, columns = written(trying, talk)
        length, (told, heard) = int(columns.length), pieces_of(attempt)
        same("ids", columns.token[:length].tolist(), list(attempt.ids))
        same("sampled ids", columns.token[columns.is_action].tolist(), _all([h.said for h in heard]))
        sources = {piece.source for piece in told}
        same(
            "sources",
            set(columns.source[:length].tolist()),
            sources | ({SAMPLED} if columns.is_action.any() else set()),
        )
        seen("a tool's text", TOOL in sources)
        seen("no room", int(columns.reason) == MAX_SEQ_LEN)
        seen("two calls with rewards", int((columns.reward != 0).sum()) > 1)
        rewards = [h.reward for h in heard]
        same("rewards", columns.reward[: len(heard)].tolist(), rewards)
        same("their sum", sum(rewards, 0.0), total_reward(attempt.episode))
        reasons = [FINISH[h.said.finish_reason] for h in heard]
        same("why calls ended", columns.finish_reason[: len(heard)].tolist(), reasons)
        kept = [FINISH[e.finish_reason] for e in attempt.episode.events if isinstance(e, Sampled)]
        same("why the episode says they did", kept, reasons)
        same("terminated", bool(columns.terminated), attempt.end == Terminated())
        cut_off = isinstance(attempt.end, Truncated) or any(made.truncated for made in attempt.episode.steps)
        same("truncated", bool(columns.truncated), cut_off)
        same("turns", int(columns.turns), attempt.episode.turn)
        same("overflow", int(columns.overflow), 0)

    mutant = Mutant("learns from what tools say", learns_from_tools)
    claim = "Tokens, sources, rewards, reasons and the end of a transcript are those of the attempt."
    return _law("columns", claim, mutant, check, "a tool's text", "no room", "two calls with rewards")


def _versions() -> Law:
    def check(trying: Trying, talk: Talk, seen: Seen) -> None:
        attempt, columns = written(trying, talk)
        heard, sampled = pieces_of(attempt)[1], columns.is_action
        versions = [version for h in heard for version in h.said.versions]
        seen("a call under two versions", any(len(set(h.said.versions)) > 1 for h in heard))
        same("versions", columns.version[sampled].tolist(), versions)
        same("log-probs", columns.behaviour_log_prob[sampled].tolist(), [p for h in heard for p in h.said.log_probs])
        same("temperatures", columns.temperature[: len(heard)].tolist(), [h.said.temperature for h in heard])
        numbers = [number for number, h in enumerate(heard) for _ in h.said.ids]
        same("calls", columns.call[sampled].tolist(), numbers)

    mutant = Mutant("stamps all tokens with the newest version", stamps_the_newest_version)
    claim = "Each sampled token has the log-prob and the version it was sampled with, and its call's number."
    return _law("versions", claim, mutant, check, "a call under two versions")


def _rows() -> Law:
    def check(trying: Trying, several: list[Talk], seen: Seen) -> None:
        attempts = [grown(trying, talk)[-1] for talk in several]
        found = trying.transcripts(tuple(attempts), capacity=400, calls=8)
        seen("rows of different turns", len(set(found.turns.tolist())) > 1)
        for number, attempt in enumerate(attempts):
            alone = trying.transcripts((attempt,), capacity=400, calls=8)
            for mine, own in zip(leaves(found), leaves(alone), strict=True):
                require(torch.equal(mine[number], own[0]), f"row {number} as it is alone")

    mutant = Mutant("counts the env steps of all rows by those of the first", turns_of_the_longest)
    claim = "A transcript is the same whatever other attempts are written beside it."
    drawn = st.lists(talks(), min_size=3, max_size=5)
    return Law(
        name="rows",
        claim=claim,
        source=SOURCE,
        inputs=always(drawn),
        check=check,
        mutant=mutant,
        needs=("rows of different turns",),
    )

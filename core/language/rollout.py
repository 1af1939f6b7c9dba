"""A rollout in progress, as token ids: the ids that a sampler feeds next, and the processing of its completions.

Only this module converts between text and ids. Ids are appended and never re-encoded from text: sampled ids stay as they
were sampled, even if a tokenizer would encode the same text differently.
"""

from typing import TypeVar

from attrs import evolve

from ..errors import ChoiceError, ShapeError, choose, message
from ..transcript import record
from .codec import CLOSED, NOTHING, OPEN, Codec, Ids, Standing
from .episode import Completion
from .events import ABORT, FINISH_REASONS, Assistant, Event, Feedback, Sampled, System, ToolResult, User
from .protocol import Protocol, begin_episode, turn_after
from .requests import RolloutSpec, key_of, world_key
from .text_env import MAX_SEQ_LEN, Truncated
from .types import ContextTurn, ModelOutput, ModelTurn, Rollout

P = TypeVar("P")
S = TypeVar("S")

SOURCES: dict[type[Event], int] = {
    System: record.SYSTEM,
    User: record.USER,
    Assistant: record.USER,  # of the prompt, although a model wrote it
    ToolResult: record.TOOL,
    Feedback: record.FEEDBACK,
}


def begin_rollout(
    protocol: Protocol[P, S], codec: Codec, rollout: RolloutSpec, *, capacity: int, max_new_tokens: int
) -> Rollout[S]:
    """Return the attempt before the model's first call: the environment's state for the task, and the ids of the prompt.

    Raises: ChoiceError if the prompt leaves no room for an answer.

    >>> from .codec import byte_codec
    >>> from .parsers import answer
    >>> from .protocol import protocol
    >>> from .requests import Request, rollouts
    >>> from .text_env import TextEnv
    >>> rules = protocol(TextEnv((), lambda _, key: ((), "2?"), ()), answer(), max_steps=1)
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> begun = begin_rollout(rules, byte_codec(), rollout, capacity=8, max_new_tokens=4)
    >>> begun.ids, begun.room
    ((259, 50, 63, 256, 257), 3)
    """
    if max_new_tokens < 1:
        where, remedy = "begin_rollout: max_new_tokens", "let the model speak"
        raise ChoiceError(message(where, got=max_new_tokens, wanted="at least 1", remedy=remedy))
    episode, prompt = begin_episode(protocol, key_of(rollout.request.task))
    told = _told(codec, prompt.added, NOTHING, episode.turn)
    ids = _ids(told)
    if len(ids) >= capacity:
        where, got = "begin_rollout: prompt", f"{len(ids)} tokens long"
        remedy = "shorten it, or raise the capacity"
        raise ChoiceError(message(where, got=got, wanted=f"less than the capacity {capacity}", remedy=remedy))
    return Rollout(
        rollout=rollout,
        episode=episode,
        pieces=told,
        capacity=capacity,
        max_new_tokens=max_new_tokens,
        ids=ids,
        pending=ids,
    )


def add_output(protocol: Protocol[P, S], codec: Codec, attempt: Rollout[S], said: ModelOutput) -> Rollout[S]:
    """Return the attempt after a model call: decode it, advance the protocol, and encode the new context.

    The new context is appended completely or not at all. If it leaves no room for another call the attempt ends, truncated
    for "max_seq_len". After its end, and for an aborted call, an attempt is returned unchanged.
    Raises: ShapeError (columns of different lengths), ChoiceError (more ids than there was room for, or ids of another
    vocabulary, an unknown finish_reason).

    >>> from .codec import byte_codec
    >>> from .parsers import answer
    >>> from .protocol import protocol
    >>> from .requests import Request, rollouts
    >>> from .text_env import Outcome, TextEnv
    >>> world = TextEnv((), lambda _, key: ((), "2?"), lambda _, state, action, key: (state, Outcome(terminated=True)))
    >>> rules = protocol(world, answer(), max_steps=1)
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> begun = begin_rollout(rules, byte_codec(), rollout, capacity=32, max_new_tokens=16)
    >>> said = ModelOutput(ids=(*b"[ANSWER] 2", 256), log_probs=(0.0,) * 11, versions=(0,) * 11)
    >>> add_output(rules, byte_codec(), begun, said).end
    Terminated()
    """
    _check(codec, attempt, said)
    if not isinstance(attempt.end, tuple) or said.finish_reason == ABORT:
        return attempt
    before = attempt.episode
    completion = Completion(codec.decode(said.ids), said.finish_reason)
    episode, _ = turn_after(protocol, before, completion, world_key(attempt.rollout.request, before.calls))
    spoken = episode.events[len(before.events)]
    heard = ModelTurn(
        said=said,
        turn=before.turn,
        parse_error=isinstance(spoken, Sampled) and spoken.parse_error,
        reward=sum((made.reward for made in episode.steps[len(before.steps) :]), 0.0),
    )
    ids = (*attempt.ids, *said.ids)
    standing = CLOSED if said.ids and said.ids[-1] in codec.stop else OPEN
    told = _told(codec, episode.events[len(before.events) + 1 :], standing, episode.turn)
    fits = len(ids) + len(_ids(told)) + isinstance(episode.end, tuple) <= attempt.capacity
    kept = told if fits else ()
    return evolve(
        attempt,
        episode=episode,
        pieces=(*attempt.pieces, heard, *kept),
        ids=(*ids, *_ids(kept)),
        pending=_ids(kept),
        end=episode.end if fits or not isinstance(episode.end, tuple) else Truncated(MAX_SEQ_LEN),
    )


def _told(codec: Codec, events: tuple[Event, ...], standing: Standing, turn: int) -> tuple[ContextTurn, ...]:
    return tuple(
        ContextTurn(tuple(ids), SOURCES[type(event)], turn)
        for event, ids in zip(events, codec.encode(events, standing), strict=True)
    )


def _ids(told: tuple[ContextTurn, ...]) -> Ids:
    return tuple(token for piece in told for token in piece.ids)


def _check(codec: Codec, attempt: Rollout[S], said: ModelOutput) -> None:
    choose("add_output: finish_reason", said.finish_reason, dict.fromkeys(FINISH_REASONS))
    lengths = len(said.ids), len(said.log_probs), len(said.versions)
    if len(set(lengths)) > 1:
        got, remedy = f"of lengths {lengths}", "give each id its log-prob and its version"
        raise ShapeError(message("add_output: ids, log_probs, versions", got=got, wanted="one length", remedy=remedy))
    foreign = [token for token in said.ids if not 0 <= token < codec.vocabulary]
    if foreign:
        wanted, remedy = f"0 to {codec.vocabulary - 1}", "sample from the model that the codec was made for"
        raise ChoiceError(message("add_output: ids", got=foreign[0], wanted=wanted, remedy=remedy))
    if len(said.ids) > attempt.room and isinstance(attempt.end, tuple):
        wanted, remedy = f"at most {attempt.room}", "sample no more than the attempt's room"
        raise ChoiceError(message("add_output: number of ids", got=len(said.ids), wanted=wanted, remedy=remedy))

"""An attempt at a request, as token ids: what a sampler is to feed, and what becomes of what the model said.

Here texts and ids meet, and only here. Ids are appended and never made from text twice: what a model sampled stays as it was
sampled, whatever a tokenizer would make of the same text.
"""

from typing import ClassVar, Generic, TypeVar

from attrs import evolve, field, frozen

from .. import transcript
from ..errors import ChoiceError, ShapeError, choose, message
from .codec import CLOSED, NOTHING, OPEN, Codec, Ids, Standing
from .episode import Completion, Episode
from .events import ABORT, FINISH_REASONS, STOP, Event, Feedback, Sampled, System, ToolResult, User
from .protocol import Protocol, begin, step
from .requests import Rollout, key_of, world_key
from .world import MAX_SEQ_LEN, End, Truncated

P = TypeVar("P")
S = TypeVar("S")

SOURCES: dict[type[Event], int] = {
    System: transcript.SYSTEM,
    User: transcript.USER,
    ToolResult: transcript.TOOL,
    Feedback: transcript.FEEDBACK,
}


@frozen(kw_only=True)
class Said:
    """What one call of a model gave: ids, and of each its log-prob as it was sampled and the version of the weights.

    A stop token that ended it is its last id. `temperature` and `top_p` are those of the sampler. What is given up from
    outside has the finish_reason "abort" and leaves no trace: the call is made again.
    """

    TAG: ClassVar[str] = "said"
    ids: Ids
    log_probs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: str = STOP
    temperature: float = 1.0
    top_p: float = 1.0


@frozen
class Told:
    """Ids that no model sampled, where they come from (as in `core.transcript`) and the env step they belong to."""

    ids: Ids
    source: int
    turn: int


@frozen(kw_only=True)
class Heard:
    """A call of the model and what came of it: whether it could be read, and what the world and the parser gave for it."""

    said: Said
    turn: int
    parse_error: bool
    reward: float


Piece = Told | Heard


@frozen(kw_only=True)
class Attempt(Generic[S]):
    """An episode so far, with the ids of all that was said. `end` is () while it goes on."""

    rollout: Rollout
    episode: Episode[S]
    pieces: tuple[Piece, ...]
    capacity: int  # how many ids there may be
    max_new_tokens: int  # how many of them one call may sample
    ids: Ids = field(repr=False)  # all of them, in order
    pending: Ids = field(repr=False)  # the last of them, that came since the model spoke
    end: End | tuple[()] = ()

    @property
    def call(self) -> int:
        """The number of the call that is due: `requests.call_key(rollout, call)` is its key."""
        return self.episode.calls

    @property
    def room(self) -> int:
        """How many ids the call that is due may sample; 0 behind the end."""
        return min(self.max_new_tokens, self.capacity - len(self.ids)) if isinstance(self.end, tuple) else 0


def begin_attempt(
    protocol: Protocol[P, S], codec: Codec, rollout: Rollout, *, capacity: int, max_new_tokens: int
) -> Attempt[S]:
    """The attempt before the model's first call: the world of the request's task, and the ids of what it shows.

    Raises: ChoiceError where the prompt leaves no room to answer.

    >>> from .codec import byte_codec
    >>> from .parsers import answer
    >>> from .protocol import protocol
    >>> from .requests import Request, rollouts
    >>> from .world import TextEnv
    >>> rules = protocol(TextEnv((), lambda _, key: ((), "2?"), ()), answer(), max_steps=1)
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> begun = begin_attempt(rules, byte_codec(), rollout, capacity=8, max_new_tokens=4)
    >>> begun.ids, begun.room
    ((259, 50, 63, 256, 257), 3)
    """
    if max_new_tokens < 1:
        where, remedy = "begin_attempt: max_new_tokens", "let the model speak"
        raise ChoiceError(message(where, got=max_new_tokens, wanted="at least 1", remedy=remedy))
    episode, prompt = begin(protocol, key_of(rollout.request.task))
    told = _told(codec, prompt.added, NOTHING, episode.turn)
    ids = _ids(told)
    if len(ids) >= capacity:
        where, got = "begin_attempt: prompt", f"{len(ids)} tokens long"
        remedy = "shorten it, or raise the capacity"
        raise ChoiceError(message(where, got=got, wanted=f"less than the capacity {capacity}", remedy=remedy))
    return Attempt(
        rollout=rollout,
        episode=episode,
        pieces=told,
        capacity=capacity,
        max_new_tokens=max_new_tokens,
        ids=ids,
        pending=ids,
    )


def hear(protocol: Protocol[P, S], codec: Codec, attempt: Attempt[S], said: Said) -> Attempt[S]:
    """The attempt after a call of the model: decoded, answered by the protocol, and what follows encoded.

    What follows is appended whole or not at all. Where it leaves no room for another call the attempt ends, truncated for
    "max_seq_len". After its end, and for a call that was given up, an attempt stays as it is.
    Raises: ShapeError (columns of different lengths), ChoiceError (more ids than there was room for, or ids of another
    vocabulary, an unknown finish_reason).

    >>> from .codec import byte_codec
    >>> from .parsers import answer
    >>> from .protocol import protocol
    >>> from .requests import Request, rollouts
    >>> from .world import Outcome, TextEnv
    >>> world = TextEnv((), lambda _, key: ((), "2?"), lambda _, state, action, key: (state, Outcome(terminated=True)))
    >>> rules = protocol(world, answer(), max_steps=1)
    >>> rollout = rollouts(Request(id=0, group=0, task=(0, 0), sampling=(0, 0)))[0]
    >>> begun = begin_attempt(rules, byte_codec(), rollout, capacity=32, max_new_tokens=16)
    >>> said = Said(ids=(*b"[ANSWER] 2", 256), log_probs=(0.0,) * 11, versions=(0,) * 11)
    >>> hear(rules, byte_codec(), begun, said).end
    Terminated()
    """
    _check(codec, attempt, said)
    if not isinstance(attempt.end, tuple) or said.finish_reason == ABORT:
        return attempt
    before = attempt.episode
    completion = Completion(codec.decode(said.ids), said.finish_reason)
    episode, _ = step(protocol, before, completion, world_key(attempt.rollout.request, before.calls))
    spoken = episode.events[len(before.events)]
    heard = Heard(
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


def _told(codec: Codec, events: tuple[Event, ...], standing: Standing, turn: int) -> tuple[Told, ...]:
    return tuple(
        Told(tuple(ids), SOURCES[type(event)], turn)
        for event, ids in zip(events, codec.encode(events, standing), strict=True)
    )


def _ids(told: tuple[Told, ...]) -> Ids:
    return tuple(token for piece in told for token in piece.ids)


def _check(codec: Codec, attempt: Attempt[S], said: Said) -> None:
    choose("hear: finish_reason", said.finish_reason, dict.fromkeys(FINISH_REASONS))
    lengths = len(said.ids), len(said.log_probs), len(said.versions)
    if len(set(lengths)) > 1:
        got, remedy = f"of lengths {lengths}", "give each id its log-prob and its version"
        raise ShapeError(message("hear: ids, log_probs, versions", got=got, wanted="one length", remedy=remedy))
    foreign = [token for token in said.ids if not 0 <= token < codec.vocabulary]
    if foreign:
        wanted, remedy = f"0 to {codec.vocabulary - 1}", "sample from the model that the codec was made for"
        raise ChoiceError(message("hear: ids", got=foreign[0], wanted=wanted, remedy=remedy))
    if len(said.ids) > attempt.room and isinstance(attempt.end, tuple):
        wanted, remedy = f"at most {attempt.room}", "sample no more than the attempt's room"
        raise ChoiceError(message("hear: number of ids", got=len(said.ids), wanted=wanted, remedy=remedy))

"""Laws of a codec, which encodes events as token ids, after a closed or an open completion. The subject is a `Codec`."""

from collections.abc import Iterable, Sequence

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ....core.language.codec import CLOSED, OPEN, Codec, Ids, Standing
from ....core.language.events import Event, Feedback, ToolResult, User
from ...framework.compare import require, same
from ...framework.law import Law, Mutant, Seen, Suite, law_constructor


def codec_laws() -> Suite:
    """Return the laws of a codec."""
    return Suite("codec_laws", (_events(), _closing(), _asked()))


def _told() -> SearchStrategy[list[Event]]:
    word = st.sampled_from(("5", "What?", "SEE: kra", "zorplex[kra]"))
    tool = st.builds(ToolResult, st.just("LOOKUP"), st.just("kra"), word, st.booleans())
    return st.lists(st.one_of(st.builds(User, word), tool, st.builds(Feedback, word)), min_size=1, max_size=4)


def _events() -> Law:
    def check(codec: Codec, events: list[Event], seen: Seen) -> None:
        found = codec.encode(events, CLOSED)
        same("how many", len(found), len(events))
        for event, ids in zip(events, found, strict=True):
            seen("a tool's text", isinstance(event, ToolResult))
            require(bool(ids) and all(0 <= token < codec.vocabulary for token in ids), "ids of its own vocabulary")
            require(event.text in codec.decode(ids), f"the text {event.text!r} in what its ids say")

    mutant = Mutant("leaves out what tools say", _drops_tools)
    claim = "Each event has ids of its own, of the codec's vocabulary, in which its text can be read."
    return _law("events", claim, mutant, check, "a tool's text")


def _closing() -> Law:
    def check(codec: Codec, events: list[Event], seen: Seen) -> None:
        closed, cut = (_ids(codec.encode(events, standing)) for standing in (CLOSED, OPEN))
        seen("something left out")
        same("what follows", cut[len(cut) - len(closed) :], closed)
        left_out = cut[: len(cut) - len(closed)]
        require(bool(left_out) and left_out[0] in codec.stop, "what was left out begins with a stop token")

    mutant = Mutant("closes what was closed", _closes_twice)
    claim = "Behind a completion without its stop token the same follows as behind one with it, after that token."
    return _law("closing", claim, mutant, check, "something left out")


def _asked() -> Law:
    def check(codec: Codec, events: list[Event], seen: Seen) -> None:
        for number in range(1, len(events)):
            before = _ids(codec.encode(events, CLOSED)[:number])
            asked = _ids(codec.encode(events[:number], CLOSED))
            seen("more to follow")
            same("what was told", asked[: len(before)], before)
            require(len(asked) > len(before), "something that asks the model to speak, where nothing follows")

    mutant = Mutant("does not ask the model to speak", _asks_nothing)
    claim = (
        "Events are told alike whether others follow or the model is to speak, which is asked behind the last alone."
    )
    return _law("asked", claim, mutant, check, "more to follow")


def _ids(pieces: Iterable[Iterable[int]]) -> Ids:
    return tuple(token for ids in pieces for token in ids)


_law = law_constructor(_told, "core.language.codec")


def _closes_twice(codec: Codec) -> Codec:
    """Close the completion before the events although it was closed."""

    def encode(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
        return codec.encode(events, OPEN if standing == CLOSED else standing)

    return evolve(codec, encode=encode)


def _drops_tools(codec: Codec) -> Codec:
    """Leave out the text of tool results."""

    def encode(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
        silent = [evolve(event, text="") if isinstance(event, ToolResult) else event for event in events]
        return codec.encode(silent, standing)

    return evolve(codec, encode=encode)


def _asks_nothing(codec: Codec) -> Codec:
    """Leave out the tokens after the last event that start the model's output."""

    def encode(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
        return codec.encode((*events, User("?")), standing)[:-1]

    return evolve(codec, encode=encode)

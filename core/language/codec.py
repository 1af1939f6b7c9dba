"""Texts as token ids and back, as a value: what a tokenizer and its chat template come down to."""

from collections.abc import Callable, Sequence
from typing import Literal

from attrs import evolve, frozen

from .events import Event, Feedback, System, ToolResult, User

Ids = tuple[int, ...]
Standing = Literal["nothing", "closed", "open"]  # what stands before events
NOTHING: Standing = "nothing"  # they begin a conversation
CLOSED: Standing = "closed"  # a completion that ended in a stop token
OPEN: Standing = "open"  # one that was cut before it
END, MODEL = 256, 257  # of a text, and where the model speaks
MARKS: dict[type[Event], int] = {System: 258, User: 259, ToolResult: 260, Feedback: 261}


@frozen(kw_only=True)
class Codec:
    """How events become ids.

    `encode(events, standing)` gives the ids of each of the events, in order, as they follow what stands: the last one's end
    where the model is to speak. Behind a completion that is "open" the first event's ids begin with what was left out.
    `decode(ids)` gives the text of a completion, its stop token left out.
    """

    encode: Callable[[Sequence[Event], Standing], tuple[Ids, ...]]
    decode: Callable[[Sequence[int]], str]
    stop: Ids  # tokens that end a completion
    vocabulary: int  # ids are below it


def byte_codec() -> Codec:
    """Texts as their bytes in UTF-8: each has a mark before it, that says who speaks, and one behind it.

    For models of bytes. What a model says in bytes that are no text is read with marks of replacement; marks that it says
    itself are left out.

    >>> byte_codec().encode((User("ab"),), NOTHING), byte_codec().decode((97, 256))
    (((259, 97, 98, 256, 257),), 'a')
    """
    return Codec(encode=_bytes, decode=_text, stop=(END,), vocabulary=262)


def widened(codec: Codec, vocabulary: int) -> Codec:
    """The codec for a model with more ids than the codec has: those beyond are read as nothing, and stay what was said.

    Models have rows that no token has where their number was rounded up, and may sample them.

    >>> wide = widened(byte_codec(), 300)
    >>> wide.decode((97, 299, 98, 256)), wide.vocabulary
    ('ab', 300)
    """

    def decode(ids: Sequence[int]) -> str:
        return codec.decode([token for token in ids if token < codec.vocabulary])

    return evolve(codec, decode=decode, vocabulary=vocabulary)


def _bytes(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
    return tuple(
        (
            *((END,) if standing == OPEN and not number else ()),
            MARKS[type(event)],
            *event.text.encode(errors="replace"),
            END,
            *((MODEL,) if number == len(events) - 1 else ()),
        )
        for number, event in enumerate(events)
    )


def _text(ids: Sequence[int]) -> str:
    return bytes(token for token in ids if token < END).decode(errors="replace")

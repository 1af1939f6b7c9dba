"""Conversion between events and token ids, as a value: the functions of a tokenizer with its chat template."""

from collections.abc import Callable, Sequence
from typing import Literal

from attrs import evolve, frozen

from .events import Assistant, Event, Feedback, System, ToolResult, User

Ids = tuple[int, ...]
Standing = Literal["nothing", "closed", "open"]  # the context before events
NOTHING: Standing = "nothing"  # the events start a conversation
CLOSED: Standing = "closed"  # after a completion that ended in a stop token
OPEN: Standing = "open"  # after a completion without a stop token
END, MODEL = 256, 257  # marks of the end of a text, and of the start of a model's output
MARKS: dict[type[Event], int] = {System: 258, User: 259, Assistant: MODEL, ToolResult: 260, Feedback: 261}


@frozen(kw_only=True)
class Codec:
    """The encoding of events as ids.

    `encode(events, standing)` returns the ids of each event, in order, to be appended to the existing ones: the last ones end
    with the generation prompt. After an "open" completion the first event's ids begin with the missing stop token.
    `decode(ids)` returns the text of a completion, without its stop token.
    """

    encode: Callable[[Sequence[Event], Standing], tuple[Ids, ...]]
    decode: Callable[[Sequence[int]], str]
    stop: Ids  # tokens that end a completion
    vocabulary: int  # all ids are below it


def byte_codec() -> Codec:
    """Return the codec of UTF-8 bytes: each text has a mark of its role before it, and an end mark after it.

    For byte-level models. Sampled bytes that are invalid UTF-8 are decoded with replacement characters; marks that the model
    samples are omitted.

    >>> byte_codec().encode((User("ab"),), NOTHING), byte_codec().decode((97, 256))
    (((259, 97, 98, 256, 257),), 'a')
    """
    return Codec(encode=_bytes, decode=_text, stop=(END,), vocabulary=262)


def widened(codec: Codec, vocabulary: int) -> Codec:
    """Return the codec for a model with a larger vocabulary: `decode` ignores the extra ids, and they stay in the transcript.

    Models whose vocabulary was rounded up have rows without a token, and may sample them.

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

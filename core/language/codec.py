"""Texts as token ids and back, as a value: what a tokenizer and its chat template come down to."""

from collections.abc import Callable, Sequence

from attrs import frozen

from .events import Event

Ids = tuple[int, ...]


@frozen(kw_only=True)
class Codec:
    """How events become ids.

    `encode(events, closed)` gives the ids of each of the events, in order, as they follow what stands: the last one's end
    where the model is to speak. `closed` says that what stands ends as it should, which is so at the beginning and after a
    completion that ended in a stop token; where it is False the first event's ids begin with what was left out.
    `decode(ids)` gives the text of a completion, its stop token left out.
    """

    encode: Callable[[Sequence[Event], bool], tuple[Ids, ...]]
    decode: Callable[[Sequence[int]], str]
    stop: Ids  # tokens that end a completion
    vocabulary: int  # ids are below it

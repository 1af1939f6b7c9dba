"""A Hugging Face tokenizer with a chat template as a codec: encodes new messages with the text that the template puts between.

A template renders whole conversations, and a second rendering may change earlier text. Here the template is rendered once for
each order of roles, with placeholders for the contents; the text that it puts between them is kept as ids, and the contents
are encoded between those. So ids are only ever appended, special tokens come from the template alone, and a text that
contains the name of a special token is encoded as ordinary text.
"""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen

from ....core.errors import ChoiceError, choose, message
from ....core.language.codec import CLOSED, NOTHING, Codec, Ids, Standing
from ....core.language.events import Event
from .rendering import OPENINGS, SAID, Schemas, encode_template, rendered, roles_of, special_tokens
from .rendering import encode_plain as encode_plain
from .tool_template import check_tools, tool_template

STAND_IN = "standin{}word"
LIKELY = (("tool",), ("user",))  # messages that may follow one of the model


@frozen
class Frames:
    """The ids that a tokenizer's template writes around messages, by (roles, True if they open the conversation)."""

    tokenizer: Any
    opens_with: str
    known: dict[tuple[tuple[str, ...], bool], tuple[Ids, ...]] = field(factory=dict, eq=False, repr=False)

    def ids(self, text: str) -> Ids:
        """Return the ids of a piece of the template: special tokens are encoded as such."""
        return encode_template(self.tokenizer, text)

    def of(self, roles: tuple[str, ...], opening: bool) -> tuple[Ids, ...]:
        """Return the ids before each message, and those after the last of them, up to where the model's output begins."""
        if (roles, opening) not in self.known:
            self.known[roles, opening] = tuple(map(self.ids, self._gaps(roles, opening)))
        return self.known[roles, opening]

    def tail(self) -> Ids:
        """Return the ids that end a message of the model."""
        before = (*OPENINGS[self.opens_with], SAID)
        return self.ids(self._parts(before, prompt=False)[-1])

    def _gaps(self, roles: tuple[str, ...], opening: bool) -> list[str]:
        before = () if opening else (*OPENINGS[self.opens_with], SAID)
        return self._parts((*before, *roles), prompt=True)[len(before) :]

    def _parts(self, roles: tuple[str, ...], *, prompt: bool) -> list[str]:
        """Return the rendered conversation, split at the contents of its messages."""
        words = [STAND_IN.format(number) for number in range(len(roles))]
        messages = [{"role": role, "content": word} for role, word in zip(roles, words, strict=True)]
        text = rendered(self.tokenizer, messages, prompt=prompt)
        parts = []
        for word, role in zip(words, roles, strict=True):
            part, found, text = text.partition(word)
            if not found:
                where, remedy = f"chat_codec: {role} messages", "choose roles that the template writes down in order"
                raise ChoiceError(message(where, got="left out or moved", wanted="in their place", remedy=remedy))
            parts.append(part)
        return [*parts, text]


def chat_codec(
    tokenizer: Any,
    *,
    opens_with: str = "system",
    tool_role: str = "tool",
    tools: Schemas = (),
    ends: Sequence[int] = (),
) -> Codec:
    """Return the codec of a transformers tokenizer, by its chat template. The model's output ends in the template's own token,
    in the tokenizer's end token, or in one of `ends` (`end_tokens` of the model's folder).

    `opens_with` states whether conversations begin with a "system" message or with the "user". `tool_role` is the role of
    tool results; feedback is the user's. `tools` are the JSON schemas of tools that the template shows to the model.
    No padding token is needed. Raises: ChoiceError for a tokenizer without a template, or one whose template ends no message
    of the model with a special token, refuses a role, leaves messages out or ignores tools.
    """
    choose("chat_codec: opens_with", opens_with, OPENINGS)
    if not getattr(tokenizer, "chat_template", None):
        where, remedy = "chat_codec: the tokenizer's chat_template", "set it, or take an instruction-tuned model's"
        raise ChoiceError(message(where, got="absent", wanted="a template", remedy=remedy))
    if tools:
        check_tools(tokenizer, tools)
    frames = Frames(tokenizer, opens_with)
    end = _end(frames)
    encode = _encoder(frames, end, tool_role, tools)
    eos = getattr(tokenizer, "eos_token_id", None)
    stop = tuple(dict.fromkeys((end, *(() if eos is None else (int(eos),)), *ends)))
    return Codec(encode=encode, decode=_decoder(tokenizer, stop), stop=stop, vocabulary=len(tokenizer))


def _encoder(
    frames: Frames, end: int, tool_role: str, tools: Schemas
) -> Callable[[Sequence[Event], Standing], tuple[Ids, ...]]:
    if tools:
        how: dict[str, Any] = {"opens_with": frames.opens_with, "tool_role": tool_role, "end": end}
        return tool_template(frames.tokenizer, tools, **how).encode
    for each in LIKELY:
        _behind(frames.of(tuple(tool_role if role == "tool" else role for role in each), False)[0], end)
    frames.of(OPENINGS[frames.opens_with], True)

    def encode(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
        if not events:
            return ()
        gaps = frames.of(roles_of(events, tool_role), standing == NOTHING)
        first = _behind(gaps[0], end) if standing == CLOSED else gaps[0]
        before = (first, *gaps[1:-1])
        spelled = tuple(encode_plain(frames.tokenizer, event.text) for event in events)
        ids = [(*gap, *text) for gap, text in zip(before, spelled, strict=True)]
        return (*ids[:-1], (*ids[-1], *gaps[-1]))

    return encode


def speller(tokenizer: Any, codec: Codec) -> Callable[[str], Ids]:
    """Return the function that encodes a text as a model's output: its ids, and the token that ends it."""
    return lambda text: (*encode_plain(tokenizer, text), codec.stop[0])


def _end(frames: Frames) -> int:
    special = special_tokens(frames.tokenizer)
    found = [token for token in frames.tail() if token in special]
    if not found:
        where, got = "chat_codec: what ends a message of the model", repr(frames.tokenizer.decode(frames.tail()))
        remedy = "let the template write the tokenizer's eos_token there"
        raise ChoiceError(message(where, got=got, wanted="with a special token", remedy=remedy))
    return found[0]


def _behind(gap: Ids, end: int) -> Ids:
    """Return the part of the ids between a message of the model and the next message that follows the end token."""
    if end not in gap:
        where, remedy = "chat_codec: what follows a message of the model", "let the template end each of them"
        raise ChoiceError(message(where, got=gap, wanted=f"with the token {end} that ends the last", remedy=remedy))
    return gap[gap.index(end) + 1 :]


def _decoder(tokenizer: Any, stop: Ids) -> Callable[[Sequence[int]], str]:
    def decode(ids: Sequence[int]) -> str:
        kept = ids[:-1] if ids and ids[-1] in stop else ids
        return str(tokenizer.decode(list(kept), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return decode

"""A Hugging Face tokenizer with a chat template as a codec: what it writes between messages, and nothing twice.

A template renders whole conversations, and where it is asked again it may render the past otherwise than it stood. Here it
is asked with stand-ins for what is said, once for each order of roles; what it puts between them is kept as ids, and texts
are spelled between those. So ids are only ever appended, special tokens come from the template alone, and a text that
contains the words of a special token is spelled letter by letter.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen

from ...core.errors import ChoiceError, choose, message
from ...core.language.codec import CLOSED, NOTHING, Codec, Ids, Standing
from ...core.language.events import Event

STAND_IN = "standin{}word"
OPENINGS = {"system": ("system", "user"), "user": ("user",)}
LIKELY = (("tool",), ("user",))  # what follows what a model says
SAID = "assistant"
ENCODING = threading.Lock()  # how a tokenizer takes special tokens is its state, which every call may change


@frozen
class Frames:
    """What a tokenizer's template writes around messages; ids by (roles, whether a conversation begins with them)."""

    tokenizer: Any
    opens_with: str
    known: dict[tuple[tuple[str, ...], bool], tuple[Ids, ...]] = field(factory=dict, eq=False, repr=False)

    def ids(self, text: str) -> Ids:
        """Of a piece of the template: special tokens count as such."""
        with ENCODING:
            return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def of(self, roles: tuple[str, ...], opening: bool) -> tuple[Ids, ...]:
        """What stands before each message, and behind the last of them, up to where the model speaks."""
        if (roles, opening) not in self.known:
            self.known[roles, opening] = tuple(map(self.ids, self._gaps(roles, opening)))
        return self.known[roles, opening]

    def tail(self) -> Ids:
        """What ends a message of the model."""
        before = (*OPENINGS[self.opens_with], SAID)
        return self.ids(self._parts(before, prompt=False)[-1])

    def _gaps(self, roles: tuple[str, ...], opening: bool) -> list[str]:
        before = () if opening else (*OPENINGS[self.opens_with], SAID)
        return self._parts((*before, *roles), prompt=True)[len(before) :]

    def _parts(self, roles: tuple[str, ...], *, prompt: bool) -> list[str]:
        """The rendered conversation, cut at what its messages say."""
        words = [STAND_IN.format(number) for number in range(len(roles))]
        messages = [{"role": role, "content": word} for role, word in zip(roles, words, strict=True)]
        try:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        except Exception as refused:  # of a template engine that only this library knows
            where, got = "chat_codec: the template's answer to " + ", ".join(roles), f"{refused!s:.200}"
            remedy = "give chat_codec another opens_with or tool_role, or the tokenizer another template"
            raise ChoiceError(message(where, got=repr(got), wanted="a conversation", remedy=remedy)) from refused
        parts = []
        for word, role in zip(words, roles, strict=True):
            part, found, text = text.partition(word)
            if not found:
                where, remedy = f"chat_codec: {role} messages", "choose roles that the template writes down in order"
                raise ChoiceError(message(where, got="left out or moved", wanted="in their place", remedy=remedy))
            parts.append(part)
        return [*parts, text]


def chat_codec(tokenizer: Any, *, opens_with: str = "system", tool_role: str = "tool") -> Codec:
    """The codec of a tokenizer of transformers, by its chat template. What a model says ends in the template's own token.

    `opens_with` says whether conversations begin with a "system" message or with the "user". `tool_role` is the role of
    what tools answer; feedback is the user's.
    No padding token is needed. Raises: ChoiceError for a tokenizer without a template, or one whose template ends no message
    of the model with a special token, refuses a role or leaves messages out.
    """
    choose("chat_codec: opens_with", opens_with, OPENINGS)
    if not getattr(tokenizer, "chat_template", None):
        where, remedy = "chat_codec: the tokenizer's chat_template", "set it, or take an instruction-tuned model's"
        raise ChoiceError(message(where, got="absent", wanted="a template", remedy=remedy))
    frames = Frames(tokenizer, opens_with)
    end = _end(frames)
    roles = {"System": "system", "User": "user", "ToolResult": tool_role, "Feedback": "user"}
    for each in LIKELY:
        _behind(frames.of(tuple(tool_role if role == "tool" else role for role in each), False)[0], end)
    frames.of(OPENINGS[opens_with], True)
    eos = getattr(tokenizer, "eos_token_id", None)
    stop = tuple(dict.fromkeys((end, *(() if eos is None else (int(eos),)))))

    def encode(events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
        if not events:
            return ()
        said = tuple(choose("encode: event", type(event).__name__, roles) for event in events)
        gaps = frames.of(said, standing == NOTHING)
        first = _behind(gaps[0], end) if standing == CLOSED else gaps[0]
        before = (first, *gaps[1:-1])
        spelled = tuple(spell(tokenizer, event.text) for event in events)
        ids = [(*gap, *text) for gap, text in zip(before, spelled, strict=True)]
        return (*ids[:-1], (*ids[-1], *gaps[-1]))

    return Codec(encode=encode, decode=_decoder(tokenizer, stop), stop=stop, vocabulary=len(tokenizer))


def spell(tokenizer: Any, text: str) -> Ids:
    """The ids of a text in which nothing is a special token."""
    with ENCODING:
        return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def speller(tokenizer: Any, codec: Codec) -> Callable[[str], Ids]:
    """The ids of what a model might say, with the token that ends it."""
    return lambda text: (*spell(tokenizer, text), codec.stop[0])


def _end(frames: Frames) -> int:
    special = set(frames.tokenizer.all_special_ids) | {
        number for number, token in frames.tokenizer.added_tokens_decoder.items() if token.special
    }
    found = [token for token in frames.tail() if token in special]
    if not found:
        where, got = "chat_codec: what ends a message of the model", repr(frames.tokenizer.decode(frames.tail()))
        remedy = "let the template write the tokenizer's eos_token there"
        raise ChoiceError(message(where, got=got, wanted="with a special token", remedy=remedy))
    return found[0]


def _behind(gap: Ids, end: int) -> Ids:
    """What follows the end of a message of the model, of what stands between it and the next message."""
    if end not in gap:
        where, remedy = "chat_codec: what follows a message of the model", "let the template end each of them"
        raise ChoiceError(message(where, got=gap, wanted=f"with the token {end} that ends the last", remedy=remedy))
    return gap[gap.index(end) + 1 :]


def _decoder(tokenizer: Any, stop: Ids) -> Callable[[Sequence[int]], str]:
    def decode(ids: Sequence[int]) -> str:
        kept = ids[:-1] if ids and ids[-1] in stop else ids
        return str(tokenizer.decode(list(kept), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return decode

"""Conversations as text by a tokenizer's chat template, and texts as ids."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.errors import ChoiceError, choose, message
from ....core.language.codec import Ids
from ....core.language.events import Event

ENCODING = threading.Lock()  # a tokenizer's treatment of special tokens is mutable state, which every call may change
OPENINGS = {"system": ("system", "user"), "user": ("user",)}
SAID = "assistant"
Messages = Sequence[Mapping[str, Any]]
Schemas = Sequence[Mapping[str, Any]]


def roles_of(events: Sequence[Event], tool_role: str) -> tuple[str, ...]:
    """Return the roles of events. Raises: ChoiceError for one that is no context.

    >>> from ....core.language.events import Feedback, User
    >>> roles_of([User("2 + 3?"), Feedback("Write a number.")], "tool")
    ('user', 'user')
    """
    roles = {"System": "system", "User": "user", "Assistant": SAID, "ToolResult": tool_role, "Feedback": "user"}
    return tuple(choose("encode: event", type(event).__name__, roles) for event in events)


def rendered(tokenizer: Any, messages: Messages, *, prompt: bool, tools: Schemas = ()) -> str:
    """Return a conversation as its template writes it, with the start of the model's output if `prompt`.

    Raises: ChoiceError if the template refuses it.
    """
    given: dict[str, Any] = {"tools": [dict(one) for one in tools]} if tools else {}
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **given))
    except Exception as refused:  # of the template engine, whose classes only transformers imports
        roles = ", ".join(one["role"] for one in messages)
        where, got = f"chat_codec: the template's answer to {roles}", f"{refused!s:.200}"
        remedy = "give chat_codec another opens_with or tool_role, or the tokenizer another template"
        raise ChoiceError(message(where, got=repr(got), wanted="a conversation", remedy=remedy)) from refused


def encode_template(tokenizer: Any, text: str) -> Ids:
    """Return the ids of a piece of a template: special tokens are encoded as such."""
    with ENCODING:
        return tuple(tokenizer.encode(text, add_special_tokens=False))


def encode_plain(tokenizer: Any, text: str) -> Ids:
    """Return the ids of a text, in which nothing is a special token."""
    with ENCODING:
        return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def special_tokens(tokenizer: Any) -> dict[int, str]:
    """Return the texts of a tokenizer's special tokens by their ids."""
    added = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return {**added, **dict(zip(tokenizer.all_special_ids, map(str, tokenizer.all_special_tokens), strict=True))}

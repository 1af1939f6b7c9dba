"""Tools in a chat template: the text that it puts around messages, with schemas, calls and results, as ids to be appended.

As in `chat_template` the template is rendered once for each order of roles, with placeholders for contents, names of tools and
ids of calls; results follow an assistant message with calls, as templates demand. The text of new messages is encoded as a
whole, from the end of the model's last message on, so that the ids are those of the conversation rendered at once.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from attrs import field, frozen

from ....core.errors import ChoiceError, describe_error, message
from ....core.language.codec import CLOSED, NOTHING, Codec, Ids, Standing
from ....core.language.events import Event, ToolResult
from ....core.language.tool_calls import CALL_PARSERS, BadCall, CallParser, Calls, ToolCall, call_of
from .rendering import ENCODING, OPENINGS, SAID, Messages, Schemas, rendered, roles_of, special_tokens

WORD, NAME, CALL = "standin{}word", "standin{}name", "callid{:03}"  # an id has nine letters and digits
SLOT = re.compile(r"standin(?P<word>\d+)word|standin(?P<name>\d+)name|callid(?P<id>\d{3})")
BEFORE = 900  # number of the first message of those that are rendered only because new ones follow
REPLY = 990
ARGUMENT = "standinargument"
CONTENT = ' a "b" \\ <c> é\n\t'  # a result that shows how a template writes results
Piece = tuple[str, str | int]  # ("", literal) | ("word" | "name" | "id", number of the message)


@frozen
class ToolTemplate:
    """The text that a template with tools writes around messages, by (roles, True if they open the conversation)."""

    tokenizer: Any
    schemas: Schemas
    opens_with: str
    tool_role: str
    end: str  # the token that ends messages of the model
    special: re.Pattern[str]
    written: Callable[[str], str]  # a result as the template writes it
    known: dict[tuple[tuple[str, ...], bool], tuple[Piece, ...]] = field(factory=dict, eq=False, repr=False)

    def encode(self, events: Sequence[Event], standing: Standing) -> tuple[Ids, ...]:
        """Return the ids of each event, as `Codec.encode` does."""
        if not events:
            return ()
        text, values, ends = "" if standing == NOTHING else self.end, list[tuple[int, int]](), list[int]()
        for kind, given in self.of(roles_of(events, self.tool_role), standing == NOTHING):
            value = given if isinstance(given, str) else self._value(kind, events[given])
            if kind:
                values.append((len(text), len(text) + len(value)))
            text += value
            if kind == "word":
                ends.append(len(text))
        ids: list[list[int]] = [[] for _ in events]
        for token, start in self._tokens(text, values)[standing == CLOSED :]:
            ids[min(bisect_right(ends, start), len(events) - 1)].append(token)
        return tuple(map(tuple, ids))

    def of(self, roles: tuple[str, ...], opening: bool) -> tuple[Piece, ...]:
        """Return the text of messages in pieces, after the end of the model's last message if they open no conversation."""
        if (roles, opening) not in self.known:
            new = [self._message(number, role) for number, role in enumerate(roles)]
            text = self._rendered(new, prompt=True) if opening else self._following(new)
            self.known[roles, opening] = _pieces(text, roles)
        return self.known[roles, opening]

    def _value(self, kind: str, event: Event) -> str:
        if not isinstance(event, ToolResult):
            return event.text
        return self.written(event.text) if kind == "word" else event.name if kind == "name" else event.id

    def _message(self, number: int, role: str) -> dict[str, Any]:
        of_tool = {"name": NAME.format(number), "tool_call_id": CALL.format(number)}
        return {"role": role, "content": WORD.format(number), **(of_tool if role == self.tool_role else {})}

    def _rendered(self, messages: Messages, *, prompt: bool) -> str:
        return rendered(self.tokenizer, messages, prompt=prompt, tools=self.schemas)

    def _following(self, new: Messages) -> str:
        """Return the text of messages that follow one of the model, after its end."""
        results = len([*takewhile(lambda one: one["role"] == self.tool_role, new)])
        if not results:
            reply = {"role": SAID, "content": WORD.format(REPLY)}
            return self._after_reply(self._rendered([*opening(self.opens_with), reply, *new], prompt=True))
        faults = list[ChoiceError]()
        for calls in dict.fromkeys((results, 1)):  # some templates refuse several calls, but no results
            reply = message_with_calls([(CALL.format(number), NAME.format(number)) for number in range(calls)])
            try:
                text = self._rendered([*opening(self.opens_with), reply, *new], prompt=True)
            except ChoiceError as fault:
                faults.append(fault)
            else:
                return self._after_reply(text)
        raise faults[-1]

    def _after_reply(self, text: str) -> str:
        mark = ARGUMENT if ARGUMENT in text else WORD.format(REPLY)
        _, found, after = text.rpartition(mark)
        _, ended, following = after.partition(self.end)
        if not found or not ended:
            where, remedy = "chat_codec: a message of the model with tools", "let the template write and end it"
            got = f"not ended by {self.end}" if found else "left out"
            raise ChoiceError(message(where, got=got, wanted=f"followed by {self.end}", remedy=remedy))
        return following

    def _tokens(self, text: str, values: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the ids of a text and where they start; special tokens that are not the template's are encoded as text."""
        spans = [found.span() for found in self.special.finditer(text)]
        foreign = [span for span in spans if any(span[0] < stop and start < span[1] for start, stop in values)]
        tokens, place = list[tuple[int, int]](), 0
        for start, stop in [*foreign, (len(text), len(text))]:
            for first, last, plain in ((place, start, False), (start, stop, True)):
                if first < last:
                    tokens += self._encoded(text[first:last], first, plain)
            place = stop
        return tokens

    def _encoded(self, text: str, place: int, plain: bool) -> list[tuple[int, int]]:
        how: dict[str, Any] = {"add_special_tokens": False, "return_offsets_mapping": True}
        with ENCODING:
            made = self.tokenizer(text, split_special_tokens=plain, **how)
        return [
            (token, place + start) for token, (start, _) in zip(made["input_ids"], made["offset_mapping"], strict=True)
        ]


def tool_template(tokenizer: Any, schemas: Schemas, *, opens_with: str, tool_role: str, end: int) -> ToolTemplate:
    """Return the template of a tokenizer with tools, after rendering conversations with one result and with two.

    Raises: ChoiceError for a template that ignores tools, leaves results out or changes them.
    """
    special = special_tokens(tokenizer)
    longest = sorted(map(re.escape, special.values()), key=len, reverse=True)
    how: dict[str, Any] = {"tokenizer": tokenizer, "schemas": schemas, "opens_with": opens_with, "tool_role": tool_role}
    how |= {"end": special[end], "special": re.compile("|".join(longest))}
    plain = ToolTemplate(**how, written=str)
    for roles, first in ((OPENINGS[opens_with], True), ((tool_role,), False), ((tool_role, tool_role), False)):
        plain.of(roles, first)
    calls = [("callid000", "standin0name")]
    result = {"role": tool_role, "content": CONTENT, "name": "standin0name", "tool_call_id": "callid000"}
    text = rendered(tokenizer, [*opening(opens_with), message_with_calls(calls), result], prompt=True, tools=schemas)
    for written in (str, str.strip, _in_json):
        if written(CONTENT) in text:
            return ToolTemplate(**how, written=written)
    where, wanted = "chat_codec: results of tools", "as they are, stripped or as JSON"
    raise ChoiceError(message(where, got="changed by the template", wanted=wanted, remedy="take another template"))


def check_tools(tokenizer: Any, schemas: Schemas) -> None:
    """Refuse a template that writes the same with tools as without. Raises: ChoiceError."""
    messages = [{"role": "user", "content": WORD.format(BEFORE)}]
    without, with_tools = (rendered(tokenizer, messages, prompt=True, tools=some) for some in ((), schemas))
    if with_tools == without:
        where, wanted = "chat_codec: tools", "written down by the template"
        remedy = "take a model whose chat template has tools, or train without"
        raise ChoiceError(message(where, got="ignored by the chat template", wanted=wanted, remedy=remedy))


def call_parser(tokenizer: Any, codec: Codec, schemas: Schemas, *, opens_with: str) -> CallParser:
    """Return the parser of the calls that a tokenizer's template writes: the one that reads back a call rendered by it.

    If none of `CALL_PARSERS` does, the tokenizer's own response template is tried. Raises: ChoiceError.
    """
    called = message_with_calls([("callid000", "standin0name")])
    end = special_tokens(tokenizer)[codec.stop[0]]
    first = opening(opens_with)
    reply = {"role": SAID, "content": WORD.format(REPLY)}
    start = rendered(tokenizer, first, prompt=True, tools=schemas)
    texts = [start, *(rendered(tokenizer, [*first, one], prompt=False, tools=schemas) for one in (reply, called))]
    prompt, answered, text = (one.rpartition(first[-1]["content"])[2] for one in texts)
    own = _own_parser(tokenizer, start, schemas)
    for before in (prompt, answered.partition(WORD.format(REPLY))[0], ""):
        body = text.removeprefix(before)
        for parse in (*CALL_PARSERS.values(), *own):
            for candidate in (body.partition(end)[0], body):
                if _same_calls(parse(candidate), called):
                    return parse
    where, wanted = "chat_codec: a tool call", f"in a format of {', '.join(CALL_PARSERS)}, or with a response_template"
    remedy = "take a model whose chat template writes one"
    raise ChoiceError(message(where, got=repr(text[:200]), wanted=wanted, remedy=remedy))


def _own_parser(tokenizer: Any, prompt: str, schemas: Schemas) -> tuple[CallParser, ...]:
    """Return the parser of a tokenizer that has a response template of transformers; () without one."""
    if not getattr(tokenizer, "response_template", None):
        return ()

    def parse(text: str) -> Calls:
        try:
            found = tokenizer.parse_response(text, prefix=prompt, tools=[dict(one) for one in schemas])
            return tuple(call_of(one["function"]) for one in found.get("tool_calls", ()))
        except Exception as error:  # of parsers of many formats
            return (BadCall(describe_error(error)),)

    return (parse,)


def opening(opens_with: str) -> list[dict[str, Any]]:
    """Return the messages that conversations begin with, with placeholders."""
    return [{"role": role, "content": WORD.format(BEFORE + place)} for place, role in enumerate(OPENINGS[opens_with])]


def message_with_calls(calls: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return a message of the model with calls (id, name)."""
    written = [
        {"id": one, "type": "function", "function": {"name": name, "arguments": {"value": ARGUMENT}}}
        for one, name in calls
    ]
    return {"role": SAID, "content": "", "tool_calls": written}


def _same_calls(found: Calls, written: dict[str, Any]) -> bool:
    wanted = [(one["function"]["name"], one["function"]["arguments"]) for one in written["tool_calls"]]
    return [(one.name, one.arguments) if isinstance(one, ToolCall) else () for one in found] == wanted


def _pieces(text: str, roles: tuple[str, ...]) -> tuple[Piece, ...]:
    """Return a rendered text in pieces. Raises: ChoiceError unless it has the content of each message once, in order."""
    pieces, place = list[Piece](), 0
    for found in SLOT.finditer(text):
        pieces += [("", text[place : found.start()]), (str(found.lastgroup), int(found[str(found.lastgroup)]))]
        place = found.end()
    words = [given for kind, given in pieces if kind == "word"]
    if words != [*range(len(roles))]:
        where, remedy = f"chat_codec: messages of {', '.join(roles)}", "choose roles that the template writes in order"
        got = "left out, moved or written with earlier ones"
        raise ChoiceError(message(where, got=got, wanted="in their place", remedy=remedy))
    return (*pieces, ("", text[place:]))


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]

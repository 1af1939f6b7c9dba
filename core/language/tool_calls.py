"""Tool calls in the texts of models: parsers of the formats that chat templates write, from a text to calls.

    hermes         <tool_call>{"name": ..., "arguments": {...}}</tool_call>, several in a row (Hermes, Qwen)
    llama          {"name": ..., "parameters": {...}} as the whole text, or after <|python_tag|> (Llama 3)
    mistral        [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": ...}, ...]
    mistral_args   [TOOL_CALLS]name[ARGS]{...}, several in a row, each with [CALL_ID]id before [ARGS] or without

A parser never raises: a call that cannot be read is a `BadCall` with the error to show to the model. Text around calls is
ignored, and so are calls in a text of reasoning, before </think> or [/THINK].
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

from attrs import frozen

from .parsers import Parsed, Parser

OPEN, CLOSE = "<tool_call>", "</tool_call>"
TOO_DEEP = "the call has too many levels"
PYTHON_TAG, TOOL_CALLS, ARGS = "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"
ARGUMENTS, PARAMETERS = "arguments", "parameters"  # key of the arguments in a call
REASONED, THOUGHT = "</think>", "[/THINK]"  # ends of a text of reasoning
DEEPEST = 64  # levels of lists and objects in a call
BLANK = re.compile(r"\s*")
BETWEEN = re.compile(r"[\s;]*")
HEAD = re.compile(r"\[TOOL_CALLS\]\s*([^\[\]{}]*?)\s*(?:\[CALL_ID\]\s*(\w*)\s*)?\[ARGS\]\s*")


@frozen
class ToolCall:
    """A call of a tool: its name, its arguments as JSON values, and its id if the model wrote one."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@frozen
class BadCall:
    """A text that begins a call and is none, and the error to show to the model."""

    error: str


Calls = tuple[ToolCall | BadCall, ...]
CallParser = Callable[[str], Calls]  # () for a text without a call
Found = tuple[int, int, ToolCall | BadCall]  # where a call starts and ends


def hermes_calls(text: str) -> Calls:
    """Return the calls of a text in tags, in order.

    >>> hermes_calls('<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>')
    (ToolCall(name='add', arguments={'a': 2}, id=''),)
    """
    return _without_reasoning(text, REASONED, _hermes(text))


def llama_calls(text: str) -> Calls:
    """Return the calls of a text that is a call as a whole, or has some after the tag; several are separated by semicolons.

    >>> llama_calls('{"name": "add", "parameters": {"a": 2}}'), llama_calls("2")
    ((ToolCall(name='add', arguments={'a': 2}, id=''),), ())
    """
    body = text.strip()
    if not body.startswith("{"):
        _, tag, body = body.partition(PYTHON_TAG)
        return _sequence(body.lstrip()) if tag else ()
    value, _ = _decoded(body, 0)
    keys = value if isinstance(value, dict) else body if isinstance(value, BadCall) else ()
    return _sequence(body) if "name" in keys and PARAMETERS in keys else ()


def mistral_calls(text: str) -> Calls:
    """Return the calls of a text in the list after the tag.

    >>> mistral_calls('[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2}, "id": "k3mWz81Qx"}]')
    (ToolCall(name='add', arguments={'a': 2}, id='k3mWz81Qx'),)
    """
    return _without_reasoning(text, THOUGHT, _mistral(text))


def mistral_args_calls(text: str) -> Calls:
    """Return the calls of a text whose names and arguments are behind tags, in order.

    >>> mistral_args_calls('[TOOL_CALLS]add[ARGS]{"a": 2}')
    (ToolCall(name='add', arguments={'a': 2}, id=''),)
    """
    return _without_reasoning(text, THOUGHT, _mistral_args(text))


CALL_PARSERS: Mapping[str, CallParser] = {
    "hermes": hermes_calls,
    "llama": llama_calls,
    "mistral": mistral_calls,
    "mistral_args": mistral_args_calls,
}


def tool_call_parser(calls: CallParser) -> Parser:
    """Return the parser whose action is the tuple of a text's calls, or the text itself if it has none.

    >>> tool_call_parser(hermes_calls)("5").action
    '5'
    """
    return lambda text: Parsed(calls(text) or text)


def call_of(value: Any, key: str = ARGUMENTS) -> ToolCall | BadCall:
    """Return the call that a JSON value states, with its arguments under `key`.

    >>> call_of({"name": "add", "arguments": {"a": 2}})
    ToolCall(name='add', arguments={'a': 2}, id='')
    >>> call_of({"name": "add", "arguments": "2"}).error
    'a call is {"name": ..., "arguments": {...}}'
    """
    name, arguments = (value.get("name"), value.get(key)) if isinstance(value, dict) else ((), ())
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return BadCall(f'a call is {{"name": ..., "{key}": {{...}}}}')
    own = value.get("id", "")
    return ToolCall(name, arguments, own if isinstance(own, str) else "")


def _without_reasoning(text: str, end: str, found: Iterable[Found]) -> Calls:
    """Return the calls after the last mark of the end of reasoning; one in the arguments of a call is none."""
    calls = tuple(found)
    inside = [(start, stop) for start, stop, call in calls if isinstance(call, ToolCall)]
    marks = [mark.start() for mark in re.finditer(re.escape(end), text)]
    after = max((mark for mark in marks if not any(start <= mark < stop for start, stop in inside)), default=0)
    return tuple(call for start, _, call in calls if start >= after)


def _hermes(text: str) -> Iterator[Found]:
    place = 0
    while (start := text.find(OPEN, place)) >= 0:
        place = start + len(OPEN)
        value, end = _decoded(text, _after(BLANK, text, place))
        if isinstance(value, BadCall):
            yield start, place, value
            continue
        closing = _after(BLANK, text, end)
        if not text.startswith(CLOSE, closing):
            yield start, place, BadCall(f"{CLOSE} is missing after a call")
            continue
        place = closing + len(CLOSE)
        yield start, place, call_of(value)


def _sequence(text: str) -> Calls:
    """Return the calls of JSON objects in a row, up to the first text that is none."""
    place, calls = 0, list[ToolCall | BadCall]()
    while not calls or text.startswith("{", place):
        value, place = _decoded(text, place)
        calls.append(value if isinstance(value, BadCall) else call_of(value, PARAMETERS))
        if isinstance(value, BadCall):
            break
        place = _after(BETWEEN, text, place)
    return tuple(calls)


def _mistral(text: str) -> Iterator[Found]:
    start = text.find(TOOL_CALLS)
    if start < 0:
        return
    value, end = _decoded(text, _after(BLANK, text, start + len(TOOL_CALLS)))
    if isinstance(value, BadCall):
        yield start, start, value
    elif not isinstance(value, list) or not value:
        yield start, start, BadCall(f'calls are [{{"name": ..., "{ARGUMENTS}": {{...}}}}, ...]')
    else:
        yield from ((start, end, call_of(one)) for one in value)


def _mistral_args(text: str) -> Iterator[Found]:
    place = 0
    while (start := text.find(TOOL_CALLS, place)) >= 0:
        place, head = start + len(TOOL_CALLS), HEAD.match(text, start)
        if not head:
            yield start, place, BadCall(f"a call is {TOOL_CALLS}name{ARGS}{{...}}")
            continue
        value, end = _decoded(text, head.end())
        if isinstance(value, BadCall):
            yield start, place, value
            continue
        place = end
        yield start, place, call_of({"name": head[1], ARGUMENTS: value, "id": head[2] or ""})


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


DECODER = JSONDecoder(parse_constant=_refused)


def _decoded(text: str, place: int) -> tuple[Any, int]:
    """Return the JSON value that starts at a place of a text, and where it ends; a `BadCall` if there is none."""
    try:
        value, end = DECODER.raw_decode(text, place)
    except JSONDecodeError as error:
        return BadCall(f"the call is no JSON ({error.msg} at character {error.pos - place})"), place
    except ValueError as error:
        return BadCall(f"the call is no JSON ({error})"), place
    except RecursionError:
        return BadCall(TOO_DEEP), place
    return (BadCall(TOO_DEEP), place) if _deep(value) else (value, end)


def _deep(value: Any) -> bool:
    """Return whether a JSON value has more than `DEEPEST` levels."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for one in level
            if isinstance(one, list | dict)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
    return any(isinstance(one, list | dict) for one in level)

"""Tools of a chat model: the schemas that it is shown, and the answers to its calls."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from .events import ToolResult
from .tool_calls import BadCall, ToolCall

MOST = 16  # calls of one completion that are made
LONGEST = 60  # characters of a model's value in an error
ID = re.compile(r"[A-Za-z0-9]{9}")  # of a call: the only form that all templates accept
TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


@frozen
class ToolSet:
    """Tools by their JSON schemas, {"type": "function", "function": {"name": ..., "parameters": ...}}.

    `call(name, arguments)` returns the text of a result, also that of an error, and does not raise for what a model wrote.
    `digest` identifies the schemas, which are part of each prompt.
    """

    schemas: tuple[Mapping[str, Any], ...]
    call: Callable[[str, Mapping[str, Any]], str]
    digest: str = ""


def results_of(tools: ToolSet, calls: Sequence[ToolCall | BadCall], before: int = 0) -> tuple[ToolResult, ...]:
    """Return the results of the calls of one completion, made in their order; `before` calls were made earlier.

    A call that cannot be read, of an unknown tool or with wrong arguments has an error as its result; so has each one after
    the first `MOST`. A call without an id of nine letters and digits is numbered.

    >>> schema = {"function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}}
    >>> tools = ToolSet((schema,), lambda name, arguments: str(arguments["a"] + 1))
    >>> [one.text for one in results_of(tools, [ToolCall("add", {"a": 2}), ToolCall("add", {}), ToolCall("sub", {})])]
    ['3', "Error: add lacks the argument 'a'.", "Error: there is no tool 'sub'; the tools are add."]
    """
    return tuple(_result(tools, call, place, before + place) for place, call in enumerate(calls))


def _result(tools: ToolSet, call: ToolCall | BadCall, place: int, number: int) -> ToolResult:
    read = call if isinstance(call, ToolCall) else ToolCall("", {})
    fault = _fault_of(tools, call) if place < MOST else f"more than {MOST} calls at a time"
    text = f"Error: {fault}." if fault else tools.call(read.name, read.arguments)
    own = read.id if ID.fullmatch(read.id) else f"{number:09d}"
    name, text = (one.encode(errors="replace").decode() for one in (read.name[:LONGEST], text))
    return ToolResult(name, json.dumps(read.arguments), text, auxiliary=False, id=own)


def _fault_of(tools: ToolSet, call: ToolCall | BadCall) -> str:
    if isinstance(call, BadCall):
        return call.error
    known = {one["function"]["name"]: one["function"] for one in tools.schemas}
    if call.name not in known:
        return f"there is no tool {_short(call.name)}; the tools are {', '.join(known)}"
    fault = argument_fault(known[call.name].get("parameters", {}), call.arguments)
    return f"{call.name} {fault}" if fault else ""


def argument_fault(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return the first fault of arguments by the JSON schema of a function's parameters, "" if there is none.

    >>> number = {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a"]}
    >>> argument_fault(number, {"a": 2.5}), argument_fault(number, {"a": "2"}), argument_fault(number, {"a": 2, "c": 1})
    ('', "has a wrong argument: a is '2', wanted number", "has no argument 'c', only a, b")
    """
    known = parameters.get("properties", {})
    for name in parameters.get("required", ()):
        if name not in arguments:
            return f"lacks the argument {name!r}"
    for name, value in arguments.items():
        if name not in known:
            return f"has no argument {_short(name)}, only {', '.join(known)}" if known else "takes no arguments"
        fault = _fault(known[name], value, name)
        if fault:
            return f"has a wrong argument: {fault}"
    return ""


def _fault(schema: Mapping[str, Any], value: Any, where: str) -> str:
    """Return the first fault of a value by its JSON schema, of the kinds that Python's type hints give."""
    if not schema or (value is None and schema.get("nullable")):
        return ""
    if "anyOf" in schema:
        faults = [_fault(one, value, where) for one in schema["anyOf"]]
        return "" if "" in faults else f"{where} is {_short(value)}, wanted one of {json.dumps(schema['anyOf'])}"
    named = schema.get("type", list(TYPES))
    types = [named] if isinstance(named, str) else named
    if not any(_is(value, one) for one in types):
        return f"{where} is {_short(value)}, wanted {' or '.join(types)}"
    if "enum" in schema and not any(value == one and type(value) is type(one) for one in schema["enum"]):
        return f"{where} is {_short(value)}, wanted one of {json.dumps(schema['enum'])}"
    inside = list[tuple[Mapping[str, Any], Any, str]]()
    if isinstance(value, list):
        first = schema.get("prefixItems", ())
        if first and len(value) != len(first):
            return f"{where} has {len(value)} items, wanted {len(first)}"
        each = first or [schema.get("items", {})] * len(value)
        inside = [(one, item, f"{where}[{place}]") for place, (one, item) in enumerate(zip(each, value, strict=True))]
    elif isinstance(value, dict):
        rest = schema.get("additionalProperties", {})
        inside = [(rest, item, f"{where}[{_short(key)}]") for key, item in value.items()]
    return next((fault for fault in (_fault(*one) for one in inside) if fault), "")


def _is(value: Any, name: str) -> bool:
    return isinstance(value, TYPES.get(name, ())) and (name == "boolean" or not isinstance(value, bool))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."

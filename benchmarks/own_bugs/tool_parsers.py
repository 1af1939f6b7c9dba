"""Parsers of tool calls in what a model wrote."""

import ast
import json
import re
from typing import Any

from .bug import Bug

Call = dict[str, Any]


def parse_tool_calls(text: str) -> list[Call]:
    """The calls `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` of a text, in their order."""
    calls = []
    for body in re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL):
        try:
            call = json.loads(body)
        except json.JSONDecodeError:
            continue
        if isinstance(call, dict) and "name" in call:
            calls.append({"name": call["name"], "arguments": call.get("arguments", {})})
    return calls


def parse_tool_calls_fixed(text: str) -> list[Call]:
    """Reads the JSON itself to find where it ends."""
    calls, decoder, at = [], json.JSONDecoder(), text.find("<tool_call>")
    while at >= 0:
        start = at + len("<tool_call>")
        while start < len(text) and text[start].isspace():
            start += 1
        try:
            call, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            at = text.find("<tool_call>", start)
            continue
        if isinstance(call, dict) and "name" in call and text[end:].lstrip().startswith("</tool_call>"):
            calls.append({"name": call["name"], "arguments": call.get("arguments", {})})
        at = text.find("<tool_call>", end)
    return calls


def parse_pythonic(text: str) -> Call | None:
    """The call `[name(key=value, ...)]` with Python's literals, or None."""
    match = re.fullmatch(r"\s*\[(\w+)\((.*)\)\]\s*", text, re.DOTALL)
    if match is None:
        return None
    arguments = {}
    for key, quoted, bare in re.findall(r'(\w+)=(?:"([^"]*)"|([^,]+))(?:,\s*|$)', match.group(2)):
        if quoted or not bare:
            arguments[key] = quoted
            continue
        try:
            arguments[key] = ast.literal_eval(bare)
        except (ValueError, SyntaxError, TypeError):
            arguments[key] = bare.strip("'")
    return {"name": match.group(1), "arguments": arguments}


def parse_pythonic_fixed(text: str) -> Call | None:
    """By Python's own parser."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        assert isinstance(tree, ast.List)
        (call,) = tree.elts
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        assert not call.args
        assert all(word.arg for word in call.keywords)
        arguments = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, AssertionError, RecursionError):
        return None
    return {"name": call.func.id, "arguments": arguments}


def parse_xml_call(text: str, types: dict[str, str]) -> Call | None:
    """The call `<function=name><parameter=key>value</parameter></function>`, values by the types of parameters."""
    match = re.search(r"<function=(\w+)>(.*?)</function>", text, re.DOTALL)
    if match is None:
        return None
    pairs = re.findall(r"<parameter=(\w+)>(.*?)</parameter>", match.group(2), re.DOTALL)
    return {
        "name": match.group(1),
        "arguments": {key: converted(unwrapped(value), types.get(key)) for key, value in pairs},
    }


def unwrapped(value: str) -> str:
    """Without the line breaks that the template puts around a value."""
    return value.removeprefix("\n").removesuffix("\n")


def converted(value: str, kind: str | None) -> Any:
    """A value as JSON would have it."""
    if kind != "string" and value.lower() == "null":
        return None
    if kind in ("integer", "number", "boolean", "object", "array"):
        try:
            return json.loads(value.lower() if kind == "boolean" else value)
        except json.JSONDecodeError:
            return value
    return value


def parse_xml_call_fixed(text: str, types: dict[str, str]) -> Call | None:
    """`None` is how templates write null."""
    match = re.search(r"<function=(\w+)>(.*?)</function>", text, re.DOTALL)
    if match is None:
        return None
    pairs = re.findall(r"<parameter=(\w+)>(.*?)</parameter>", match.group(2), re.DOTALL)
    arguments = {
        key: None
        if types.get(key) != "string" and unwrapped(value) == "None"
        else converted(unwrapped(value), types.get(key))
        for key, value in pairs
    }
    return {"name": match.group(1), "arguments": arguments}


def parse_openai_call(message: dict[str, Any]) -> list[Call]:
    """Names and arguments of an assistant's message in OpenAI's form, whose arguments are JSON text. Raises: ValueError."""
    calls = []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        calls.append({"name": function["name"], "arguments": json.loads(function["arguments"])})
    return calls


def parse_openai_call_fixed(message: dict[str, Any]) -> list[Call]:
    """A call without arguments has none."""
    calls = []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        calls.append({"name": function["name"], "arguments": json.loads(function.get("arguments") or "{}")})
    return calls


BUGS = [
    Bug(
        "end_tag_within_argument",
        "https://github.com/vllm-project/vllm/issues/45167",
        "tool_parsers",
        "A closing tag within a string argument ends the call, which is then dropped.",
        parse_tool_calls,
        parse_tool_calls_fixed,
        lambda f: f('<tool_call>{"name": "w", "arguments": {"t": "a</tool_call>b"}}</tool_call>'),
    ),
    Bug(
        "comma_within_single_quotes",
        "https://github.com/ml-explore/mlx-lm/issues/1785",
        "tool_parsers",
        "A single-quoted argument is cut at its first comma.",
        parse_pythonic,
        parse_pythonic_fixed,
        lambda f: f("[write(path='/tmp/a', content='Hello, world')]"),
    ),
    Bug(
        "none_is_text",
        "https://github.com/vllm-project/vllm/pull/38996",
        "tool_parsers",
        "`None`, which the template writes for null, becomes the text None.",
        parse_xml_call,
        parse_xml_call_fixed,
        lambda f: f("<function=f><parameter=a>None</parameter></function>", {"a": "object"}),
    ),
    Bug(
        "call_without_arguments_raises",
        "https://github.com/langchain-ai/langchain/pull/34190",
        "tool_parsers",
        "A call whose arguments are empty or None raises.",
        parse_openai_call,
        parse_openai_call_fixed,
        lambda f: f({"tool_calls": [{"function": {"name": "now", "arguments": ""}}]}),
    ),
]

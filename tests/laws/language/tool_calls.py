"""Laws of parsers of tool calls: what is written in a format is read back, and no text raises.

The subject is a `CallFormat`; names and arguments of calls have letters of all kinds, quotes, nesting and tags of formats.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.core.language.parsers import Parsed
from purestep.core.language.tool_calls import BadCall, CallParser, Calls, ToolCall, tool_call_parser
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite

TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "</think>",
    "[/THINK]",
    '{"name": "add", "arguments": {"a": 2}}',
    '{"name": "add", "parameters": {"a": 2}}',
    '"',
    "\\",
    "'",
    "}",
    "]",
    ";",
    "\n",
)


@frozen
class CallFormat:
    """A format of calls: the parser, and the function that writes a text with some calls, at most `most`."""

    parse: CallParser
    write: Callable[[Sequence[ToolCall]], str]
    most: int = 3


def hermes_text(calls: Sequence[ToolCall]) -> str:
    """Return calls in tags."""
    written = (json.dumps({"name": call.name, "arguments": call.arguments}) for call in calls)
    return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in written)


def tool_call_laws() -> Suite:
    """Return the laws of a format of calls."""
    return Suite("tool_call_laws", (_read_back(), _total()))


def words() -> SearchStrategy[str]:
    """Texts made of tags and of any letters."""
    return st.lists(st.sampled_from(TAGS) | st.text(max_size=4), max_size=4).map("".join)


def calls() -> SearchStrategy[list[ToolCall]]:
    """One to three calls, of names as Python has them and of any JSON values."""
    numbers = st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
    values = st.recursive(
        st.none() | st.booleans() | numbers | words(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words(), inner, max_size=3),
        max_leaves=6,
    )
    names = st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True)
    one = st.builds(ToolCall, names, st.dictionaries(words(), values, max_size=3))
    return st.lists(one, min_size=1, max_size=3)


def _read_back() -> Law:
    def check(form: CallFormat, given: list[ToolCall], seen: Seen) -> None:
        wanted = given[: form.most]
        seen("quotes in an argument", any('"' in str(call.arguments) for call in wanted))
        seen("a tag in an argument", any("<tool_call>" in str(call.arguments) for call in wanted))
        seen("nesting", any(isinstance(one, dict | list) for call in wanted for one in call.arguments.values()))
        found = [
            one if isinstance(one, ToolCall) else ToolCall(one.error, {}) for one in form.parse(form.write(wanted))
        ]
        same("calls", [(one.name, one.arguments) for one in found], [(one.name, one.arguments) for one in wanted])

    needs = ("quotes in an argument", "a tag in an argument", "nesting")
    return Law(
        name="read_back",
        claim="Calls that are written in a format are read back, with their names and arguments, in order.",
        source="core.language.tool_calls",
        inputs=lambda form: calls(),
        check=check,
        mutant=Mutant("ends a call at the first closing brace", ends_at_a_brace),
        needs=needs,
    )


def _total() -> Law:
    def check(form: CallFormat, drawn: tuple[list[ToolCall], int, str], seen: Seen) -> None:
        given, cut, more = drawn
        whole = form.write(given[: form.most])
        text = whole[: cut % (len(whole) + 1)] + more
        found = form.parse(text)
        seen("a call that cannot be read", any(isinstance(one, BadCall) and one.error for one in found))
        require(all(isinstance(one, ToolCall | BadCall) for one in found), "calls and errors alone")
        same("the action of its parser", tool_call_parser(form.parse)(text), Parsed(found or text))

    return Law(
        name="total",
        claim="Every text has calls, errors to show to the model, or neither; none raises.",
        source="core.language.tool_calls",
        inputs=lambda form: st.tuples(calls(), st.integers(0, 1 << 16), words()),
        check=check,
        mutant=Mutant("raises for a call that cannot be read", raises),
        needs=("a call that cannot be read",),
    )


# --- mutants ---


def _parsing(change: Callable[[CallParser, str], Calls]) -> Callable[[CallFormat], CallFormat]:
    return lambda form: evolve(form, parse=lambda text: change(form.parse, text))


def _cut(parse: CallParser, text: str) -> Calls:
    return parse(text.partition("}")[0] + "}" * text.count("}"))


def _raising(parse: CallParser, text: str) -> Calls:
    found = parse(text)
    for one in found:
        if isinstance(one, BadCall):
            raise ValueError(one.error)
    return found


def _single_quotes(parse: CallParser, text: str) -> Calls:
    return parse(text.replace('\\"', "'"))


def _last(parse: CallParser, text: str) -> Calls:
    return parse(text)[-1:]


ends_at_a_brace, raises = _parsing(_cut), _parsing(_raising)
MUTANTS: dict[str, Callable[[Any], Any]] = {
    "reads escaped quotes as single ones": _parsing(_single_quotes),
    "gives the last call alone": _parsing(_last),
}

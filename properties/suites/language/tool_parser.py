"""Laws of parsers of tool calls. Subject: a function from a text to the calls in it, in order.

from purestep.properties import tool_parser_laws, verify
print(verify(tool_parser_laws(), my_parser))                      # of the format of Hermes and Qwen
print(verify(tool_parser_laws(render=my_format), my_parser))      # my_format([("add", {"a": 2})]) -> text

A call is an object or dict with `name` and `arguments`, an OpenAI message's entry, or a pair; arguments may be a JSON text.
What is none of these, such as a record of an error, counts as no call.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...framework.compare import require
from ...framework.law import Broken, Law, Seen, Suite, law_constructor

Called = tuple[str, dict[str, Any]]
Parse = Callable[[str], Iterable[Any]]
Render = Callable[[Sequence[Called]], str]


def hermes(calls: Sequence[Called]) -> str:
    """Return calls in the format of Hermes and Qwen.

    >>> hermes([("add", {"a": 2})])
    '<tool_call>\\n{"name": "add", "arguments": {"a": 2}}\\n</tool_call>'
    """
    texts = [json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) for name, arguments in calls]
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)


def as_call(value: Any) -> Called | tuple[()]:
    """Return the name and arguments of a call, or () for what is none.

    >>> as_call({"function": {"name": "add", "arguments": '{"a": 2}'}})
    ('add', {'a': 2})
    """
    if isinstance(value, Mapping):
        value = value.get("function", value)
        name, arguments = value.get("name"), value.get("arguments", value.get("parameters"))
    elif isinstance(value, tuple) and len(value) == 2:
        name, arguments = value
    else:
        value = getattr(value, "function", value)
        name, arguments = getattr(value, "name", None), getattr(value, "arguments", None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return ()
    return (name, dict(arguments)) if isinstance(name, str) and isinstance(arguments, Mapping) else ()


def calls_of(parse: Parse, text: str) -> list[Called]:
    """Return the calls that a parser finds. Raises: Broken if it returns no iterable."""
    found = parse(text)
    require(isinstance(found, Iterable) and not isinstance(found, (str, Mapping)), f"calls are a list, got {found!r}")
    read = [as_call(value) for value in found]
    return [call for call in read if call]


# --- mutants ---
# Common errors in parsers of the format of Hermes.


CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def _read(texts: Iterable[str]) -> list[Any]:
    found = []
    for text in texts:
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return [value for value in found if isinstance(value, dict)]


def first_brace(text: str) -> list[Any]:
    """End the arguments at the first closing brace."""
    return _read(f"{found}}}}}" for found in re.findall(r"<tool_call>\s*(\{[^}]*)\}", text))


def first_mark(text: str) -> list[Any]:
    """End a call at the first closing mark, wherever it is."""
    return _read(CALL.findall(text))


def one_call(text: str) -> list[Any]:
    """Return the first call alone."""
    return _read(CALL.findall(text))[:1]


def at_the_start(text: str) -> list[Any]:
    """Find calls only if the text begins with one."""
    return _read(CALL.findall(text)) if text.startswith("<tool_call>") else []


def _numbers(value: Any) -> Any:
    return int(value) if isinstance(value, str) and re.fullmatch("-?[0-9]{1,9}", value) else value


def converts(text: str) -> list[Any]:
    """Convert strings that look like numbers."""
    found = _read(CALL.findall(text))
    return [{**call, "arguments": {key: _numbers(value) for key, value in call["arguments"].items()}} for call in found]


def repairs(text: str) -> list[Any]:
    """Close the braces of a call that was cut."""
    body = text.partition("<tool_call>")[2].partition("</tool_call>")[0].strip()
    return _read(CALL.findall(text)) or _read(body + end for end in ("}", "}}", "]}}", '"}}', "null}}"))[:1]


def raises(text: str) -> list[Any]:
    """Raise for a call that is no JSON."""
    return [json.loads(found) for found in CALL.findall(text)]


# --- laws ---


SOURCE = "A parser is the inverse of the format that the chat template shows to the model"
STRINGS = (
    "",
    "x",
    "5",
    "-1",
    "true",
    "null",
    "a b",
    "1 + 1",
    '"',
    "'",
    "\\",
    "\n",
    "{",
    "}",
    "{}",
    "}}",
    "[1]",
    "</s>",
    "é",
    "五",
    "🙂",
    "__import__('os')",
)
NESTED = "a nested argument"


def _values() -> Any:
    leaves = st.sampled_from(STRINGS) | st.integers(-9, 9) | st.booleans() | st.none() | st.sampled_from((0.5, -2.25))
    return leaves | st.lists(leaves, max_size=2) | st.dictionaries(st.sampled_from(("a", "b c")), leaves, max_size=2)


def drawn_calls(most: int = 3, values: Any = None) -> Any:
    """Lists of calls: names, and arguments with these values, or JSON values up to two levels deep."""
    arguments = st.dictionaries(
        st.sampled_from(("x", "y", "path")), _values() if values is None else values, max_size=3
    )
    return st.lists(st.tuples(st.sampled_from(("add", "search_web")), arguments), min_size=1, max_size=most)


def tool_parser_laws(
    render: Render = hermes,
    *,
    most: int = 3,
    marks: Sequence[str] = ("<tool_call>", "</tool_call>"),
    values: SearchStrategy[Any] | None = None,
) -> Suite:
    """The laws of a parser of tool calls; `render` writes calls as the model is meant to, at most `most` in a text.

    `marks` are texts by which the format knows a call; arguments may contain them, unless there are none. `values` is a
    strategy of arguments, for a format that cannot carry all of JSON: without nesting, or without its separators in texts.

    >>> from purestep.core.language.tool_calls import hermes_calls
    >>> from purestep.properties import verify
    >>> bool(verify(tool_parser_laws(), hermes_calls))
    True
    """
    law = law_constructor(lambda: drawn_calls(most, values), SOURCE, replaced=True)
    needs = values is None
    single = (
        _round_trip(law, render, needs),
        _around(law, render, values),
        _kept(law, render, needs),
        _cut(law, render, values),
        _any(law, render, values),
    )
    marked = [_marked(law, render, marks)] if marks else []
    return Suite("tool_parser_laws", (*single, *([_several(law, render)] if most > 1 else []), *marked))


Construct = Callable[..., Law]


def _same(where: str, got: Sequence[Called], wanted: Sequence[Called]) -> None:
    if json.dumps(got, sort_keys=True) != json.dumps(wanted, sort_keys=True):  # which tells 1 from true and 1.0
        raise Broken(f"{where}: got {list(got)!r}, wanted {list(wanted)!r}")


def _round_trip(law: Construct, render: Render, nested: bool) -> Law:
    def check(parse: Parse, calls: list[Called], seen: Seen) -> None:
        seen(NESTED, any(isinstance(value, dict) for value in calls[0][1].values()))
        _same("a call as it was written", calls_of(parse, render(calls[:1])), calls[:1])

    mutant = ("ends the arguments at the first closing brace", first_brace)
    claim = "A call is read as it was written: nested values, quotes, backslashes, line breaks, braces in strings."
    return law("round_trip", claim, mutant, check, *([NESTED] if nested else []))


def _several(law: Construct, render: Render) -> Law:
    def check(parse: Parse, calls: list[Called], seen: Seen) -> None:
        seen("several calls", len(calls) > 1)
        _same("several calls", calls_of(parse, render(calls)), calls)

    mutant = ("returns the first call alone", one_call)
    return law("several", "All calls of a text are read, in order.", mutant, check, "several calls")


def _around(law: Construct, render: Render, values: Any) -> Law:
    def check(parse: Parse, inputs: tuple[list[Called], str, str], seen: Seen) -> None:
        calls, before, after = inputs
        seen("a text before a call", before.strip())
        _same("with text around", calls_of(parse, f"{before}{render(calls)}{after}"), calls)

    mutant = ("finds calls at the start of a text only", at_the_start)
    texts = st.sampled_from(("", "\n", "I will look it up.\n", "Sure! {not a call}\n", "x < y & y > z\n"))
    claim = "Text before calls does not matter."
    needs = "a text before a call"
    return law("text_around", claim, mutant, check, needs, inputs=st.tuples(drawn_calls(1, values), texts, st.just("")))


def _kept(law: Construct, render: Render, any_string: bool) -> Law:
    def check(parse: Parse, calls: list[Called], seen: Seen) -> None:
        name, arguments = calls[0]
        texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
        seen("a string that looks like a value", any(value in ("5", "-1", "true", "1 + 1") for value in texts.values()))
        _same("a call with strings", calls_of(parse, render([(name, texts)])), [(name, texts)])

    mutant = ("converts strings that look like numbers", converts)
    claim = "Strings stay strings: no argument is converted or evaluated."
    needs = ["a string that looks like a value"] if any_string else []
    return law("strings_stay", claim, mutant, check, *needs)


def _marked(law: Construct, render: Render, marks: Sequence[str]) -> Law:
    def check(parse: Parse, inputs: tuple[str, str], seen: Seen) -> None:
        mark, text = inputs
        call = ("add", {"x": f"{text}{mark}{text}"})
        seen("a mark in a string")
        _same("a call with a mark of the format in a string", calls_of(parse, render([call])), [call])

    mutant = ("ends a call at the first closing mark", first_mark)
    claim = "A mark of the format in a string of the arguments neither begins nor ends a call."
    drawn = st.tuples(st.sampled_from(tuple(marks)), st.sampled_from(("", "a ", "{")))
    return law("marks_in_strings", claim, mutant, check, "a mark in a string", inputs=drawn)


def _cut(law: Construct, render: Render, values: Any) -> Law:
    def check(parse: Parse, calls: list[Called], seen: Seen) -> None:
        whole = render(calls[:1])
        for length in range(len(whole)):
            found = calls_of(parse, whole[:length])
            seen("a cut inside a call", length)
            require(
                not found or found == calls[:1], f"a call cut to {whole[:length]!r} is no other call: got {found!r}"
            )

    mutant = ("closes the braces of a call that was cut", repairs)
    claim = "A call that was cut short is no call, or the whole one where only the format's ending is missing."
    needs = "a cut inside a call"
    return law("cut_short", claim, mutant, check, needs, inputs=drawn_calls(1, values))


def _any(law: Construct, render: Render, values: Any) -> Law:
    def check(parse: Parse, inputs: tuple[list[Called], list[tuple[int, str]]], seen: Seen) -> None:
        calls, edits = inputs
        text = render(calls)
        for place, piece in edits:
            at = len(text) * place // 64
            text = text[:at] + piece + text[at + 1 :]
        seen("a changed text", edits)
        calls_of(parse, text)

    mutant = ("raises for a call that is no JSON", raises)
    pieces = st.sampled_from(("", "{", "}", '"', "[", ":", "\\", "\x00", "nul", "1e999", "[" * 2000, '{"a":' * 500))
    edits = st.lists(st.tuples(st.integers(0, 63), pieces), max_size=3)
    claim = "No text raises."
    return law("any_text", claim, mutant, check, "a changed text", inputs=st.tuples(drawn_calls(2, values), edits))

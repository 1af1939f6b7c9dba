"""Python functions as tools of a chat model: their JSON schemas, and calls with a time limit and results of limited length.

    tools = tool_set(tools_of(["calculator.py:add", "lookups"]))     # a function of a file, and all of a module
    task = prompt_task(..., tools=tools)

A function's name, type hints and docstring describe it to the model, as in transformers: the docstring has a line on each
argument, in a section "Args:". Its result is shown as it is if it is a text, else as JSON.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from types import ModuleType
from typing import Any, TextIO, get_type_hints

from attrs import frozen

from ....core.errors import ChoiceError, describe_error, message
from ....core.language.tools import ToolSet
from ..hugging_face.optional import library
from ..module_reference import PREFIX, imported
from .calls import DIED, TIMED_OUT, Perform, Returned, ToolFailure, in_threads, lasting_processes

WHERE, FORM = "tool", "MODULE:FUNCTION, FILE.py:FUNCTION, or a module for all its functions"
TIMEOUT = 10.0  # seconds of a call
LONGEST = 8000  # characters of a result, and of a call's prints
SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


@frozen
class Tool:
    """A function and its JSON schema. By its `reference` other processes import it; "" if they cannot."""

    name: str
    schema: Mapping[str, Any]
    function: Callable[..., Any]
    reference: str = ""


def tools_of(named: Sequence[str | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Return the tools that references name, or functions are: MODULE:FUNCTION, FILE.py:FUNCTION, or MODULE or FILE.py alone
    for all public functions that it defines.

    Raises: ChoiceError, naming the function, for one that is not there, whose signature or docstring does not describe it, or
    that has the name of another one; ImportError without transformers.

    >>> tools_of(["shutil:which"])
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: tool which is not to be described (Argument cmd is missing a type hint in function \
which), wanted type hints, and a docstring with a line on each argument under Args:; add what is missing
    """
    found = [pair for one in named for pair in (_named(one) if isinstance(one, str) else [(_reference(one), one)])]
    tools = tuple(_tool(function, reference) for reference, function in found)
    names = [tool.name for tool in tools]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        remedy = "rename or leave out one"
        raise ChoiceError(message(f"{WHERE} {twice[0]}", got="named twice", wanted="a name of its own", remedy=remedy))
    return tools


def tool_set(
    tools: Sequence[Tool], *, perform: Perform | tuple[()] = (), timeout: float = TIMEOUT, longest: int = LONGEST
) -> ToolSet:
    """Return the tools with their calls made by `perform`, each limited to `timeout` seconds and `longest` characters.

    Without `perform`, functions that can be imported are called in processes, which are killed after a time-out and whose
    prints are limited too, and others in threads. A call that raises, hangs or dies has an error as its result.
    Raises: ChoiceError.

    >>> def double(number: int) -> int:
    ...     '''Double a number.
    ...
    ...     Args:
    ...         number: the number
    ...     '''
    ...     return 2 * number
    >>> tool_set(tools_of([double]), perform=in_threads()).call("double", {"number": 4})
    '8'
    """
    if not timeout > 0 or longest < 1:
        got = timeout, longest
        raise ChoiceError(message("tools: timeout, longest", got=got, wanted="more than 0", remedy="give them more"))
    processes, threads = lasting_processes(), in_threads()
    known = {tool.name: tool for tool in tools}

    def call(name: str, arguments: Mapping[str, Any]) -> str:
        tool = known[name]
        way = (processes if tool.reference else threads) if isinstance(perform, tuple) else perform
        made = way(BoundedCall(tool.function, tool.reference, longest), (dict(arguments),), timeout)
        return made.value if isinstance(made, Returned) else f"Error: {_failed(made, timeout)}."

    schemas = tuple(tool.schema for tool in tools)
    return ToolSet(schemas, call, hashlib.sha256(json.dumps(schemas).encode()).hexdigest())


def _failed(failure: ToolFailure, timeout: float) -> str:
    if failure.kind == TIMED_OUT:
        return f"no answer within {timeout:g} s"
    return "the tool's process ended" if failure.kind == DIED else failure.error


class BoundedCall:
    """A function whose result is a text of limited length; sent to a process by its reference, its prints are limited too."""

    def __init__(self, function: Callable[..., Any], reference: str, longest: int, elsewhere: bool = False) -> None:
        self.function, self.reference, self.longest, self.elsewhere = function, reference, longest, elsewhere

    def __reduce__(self) -> Any:
        return (receive_function, (self.reference, self.longest)) if self.reference else super().__reduce__()

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        """Return the result for these arguments, which are JSON values."""
        hints = get_type_hints(self.function)
        given = {name: _as(hints.get(name), value) for name, value in arguments.items()}
        if not self.elsewhere:
            return show_result(self.function(**given), self.longest)
        printed = BoundedOutput(sys.stderr, self.longest)
        with redirect_stdout(printed), redirect_stderr(printed):
            return show_result(self.function(**given), self.longest)


def receive_function(reference: str, longest: int) -> BoundedCall:
    """Return the function that a reference names, as a process that was sent it calls it."""
    place, _, name = reference.rpartition(":")
    return BoundedCall(getattr(imported(WHERE, place), name), reference, longest, elsewhere=True)


class BoundedOutput:
    """A stream that passes on the first `left` characters, and a note if more are written."""

    def __init__(self, stream: TextIO, left: int) -> None:
        self.stream, self.left = stream, left

    def write(self, text: str) -> int:
        """Write a text, or the part of it that is left."""
        if self.left >= 0:
            note = "\n(further prints of a tool are left out)\n" if len(text) > self.left else ""
            self.stream.write(text[: self.left] + note)
            self.left = -1 if note else self.left - len(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self.stream, name)


def show_result(value: Any, longest: int) -> str:
    """Return a result as a text of at most `longest` characters, and a note if it is cut.

    >>> show_result("a dog", 20), show_result([1.5, None], 20), show_result({1, 2}, 20), show_result("a" * 12, 5)
    ('a dog', '[1.5, null]', '{1, 2}', 'aaaaa\\n(the first 5 of 12 characters)')
    """
    if isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError):
            text = str(value)
    return text if len(text) <= longest else f"{text[:longest]}\n(the first {longest} of {len(text)} characters)"


def _as(hint: Any, value: Any) -> Any:
    """Return a JSON value as a function with this type hint gets it."""
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value


def _named(reference: str) -> list[tuple[str, Callable[..., Any]]]:
    """Return the functions that a reference names, each with its own reference."""
    whole = ":" not in reference or reference.endswith(".py")
    place, _, name = (reference, "", "") if whole else reference.rpartition(":")
    if not place or not (name or whole):
        raise ChoiceError(message(WHERE, got=repr(reference), wanted=FORM, remedy="e.g. calculator.py:add"))
    module = imported(WHERE, place)
    names = [name] if name else _public(module)
    if not names:
        where, remedy = f"{WHERE}: {place}", "define one, or name one that it imports"
        raise ChoiceError(message(where, got="without public functions", wanted="at least one", remedy=remedy))
    for one in names:
        if not callable(getattr(module, one, None)):
            got = "absent" if not hasattr(module, one) else type(getattr(module, one)).__name__
            wanted, remedy = "a function", f"it defines {', '.join(_public(module)) or 'none'}"
            raise ChoiceError(message(f"{WHERE}: {one} in {place}", got=got, wanted=wanted, remedy=remedy))
    return [(f"{place}:{one}", getattr(module, one)) for one in names]


def _public(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _reference(function: Callable[..., Any]) -> str:
    """Return MODULE:FUNCTION if that is this function in other processes too, else ""."""
    place, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    module = sys.modules.get(place)
    if place == "__main__" or getattr(module, name, None) is not function:
        return ""
    return f"{getattr(module, '__file__', '') if place.startswith(PREFIX) else place}:{name}"


def _tool(function: Callable[..., Any], reference: str) -> Tool:
    name = getattr(function, "__name__", type(function).__name__)
    try:
        schema = library("transformers").utils.get_json_schema(function)
    except ImportError:
        raise
    except Exception as cause:  # classes of their own, and all that unusual signatures and hints raise
        lack = describe_error(cause, limit=160).partition(": ")[2] or type(cause).__name__
        wanted, remedy = "type hints, and a docstring with a line on each argument under Args:", "add what is missing"
        raise ChoiceError(
            message(f"{WHERE} {name}", got=f"not to be described ({lack})", wanted=wanted, remedy=remedy)
        ) from cause
    several = [one.name for one in inspect.signature(function).parameters.values() if one.kind in SEVERAL]
    if several or inspect.iscoroutinefunction(function):
        got = f"a function with the parameter {several[0]}" if several else "a coroutine function"
        wanted, remedy = "one that is called with named arguments", "wrap it in one"
        raise ChoiceError(message(f"{WHERE} {name}", got=got, wanted=wanted, remedy=remedy))
    return Tool(schema["function"]["name"], schema, function, reference)

"""An environment whose tools may raise or hang, made safe: each call has a time limit, and runs in a thread or process.

If a call fails, the model gets a message, the state is unchanged, and the failure is recorded. `calls` has two ways to
make a call: `in_threads` for any function, `in_processes` for those that may have to be killed.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from attrs import evolve, frozen

from ....core.errors import ChoiceError, message
from ....core.keys import Key
from ....core.language.parsers import Call
from ....core.language.text_env import Outcome, TextEnv
from .calls import RAISED, TIMED_OUT, Perform, Returned, ToolError, ToolFailure
from .calls import in_processes as in_processes
from .calls import in_threads as in_threads

P = TypeVar("P")
S = TypeVar("S")
Tool = Callable[[Any, Any, str], str]  # (params, state, argument) -> text


@frozen(kw_only=True)
class ToolFailed:
    """The failure of a tool, or of a step for an action of another class, on an argument."""

    tool: str
    argument: str
    failure: ToolFailure


def record_nothing(failed: ToolFailed) -> None:
    """Record nothing: the model's message already reports the failure."""


def guarded(
    env: TextEnv[P, S], perform: Perform, *, timeout: float, record: Callable[[ToolFailed], None] = record_nothing
) -> TextEnv[P, S]:
    """Return the environment with every call made by `perform` and abandoned after `timeout` seconds.

    If all calls succeed in time it behaves as before. A step that fails keeps the state and pays 0, a tool that fails answers
    with the error, and both pass it to `record`. A reset that fails leaves no state to go on from.
    Raises: ChoiceError; the environment itself raises ToolError at a reset that fails.

    >>> from purestep.core.language.parsers import Call
    >>> broken = TextEnv((), lambda _, key: (0, "?"), lambda _, state, action, key: 1 // 0)
    >>> world = guarded(broken, in_threads(), timeout=5.0, record=lambda failed: print(failed.failure.kind))
    >>> state, outcome = world.step((), 7, Call("DIVIDE", "1"), ())
    raised
    >>> state, outcome.observation
    (7, 'The tool failed: ZeroDivisionError: integer division or modulo by zero.')
    """
    if not timeout > 0:
        raise ChoiceError(message("guarded: timeout", got=timeout, wanted="more than 0", remedy="give it some seconds"))

    def reset(params: P, key: Key) -> tuple[S, str]:
        made = _shaped(perform(env.reset, (params, key), timeout), _is_reset, "(state, text)")
        if isinstance(made, ToolFailure):
            got, remedy = _told(made, timeout), "see to what it depends on"
            raise ToolError(message("guarded: reset", got=repr(got), wanted="a first observation", remedy=remedy))
        begun: tuple[S, str] = made.value
        return begun

    def step(params: P, state: S, action: Any, key: Key) -> tuple[S, Outcome]:
        made = _shaped(perform(env.step, (params, state, action, key), timeout), _is_step, "(state, Outcome)")
        if isinstance(made, ToolFailure):
            record(_failed(action, made))
            return state, Outcome(_told(made, timeout))
        after: tuple[S, Outcome] = made.value
        return after

    tools = {name: _guarded_tool(name, tool, perform, timeout, record) for name, tool in env.tools.items()}
    return evolve(env, reset=reset, step=step, tools=tools)


def _guarded_tool(
    name: str, tool: Tool, perform: Perform, timeout: float, record: Callable[[ToolFailed], None]
) -> Tool:
    def call(params: Any, state: Any, argument: str) -> str:
        made = _shaped(perform(tool, (params, state, argument), timeout), _is_text, "a text")
        if isinstance(made, ToolFailure):
            record(ToolFailed(tool=name, argument=argument, failure=made))
            return _told(made, timeout)
        text: str = made.value
        return text

    return call


def _is_reset(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str)


def _is_step(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Outcome)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _shaped(made: Returned | ToolFailure, fits: Callable[[Any], bool], wanted: str) -> Returned | ToolFailure:
    if isinstance(made, Returned) and not fits(made.value):
        return ToolFailure(RAISED, f"{type(made.value).__name__} given, {wanted} wanted")
    return made


def _failed(action: Any, failure: ToolFailure) -> ToolFailed:
    name = action.name if isinstance(action, Call) else type(action).__name__
    return ToolFailed(
        tool=name, argument=action.argument if isinstance(action, Call) else repr(action), failure=failure
    )


def _told(failure: ToolFailure, timeout: float) -> str:
    """Return the model's message for a failure."""
    if failure.kind == TIMED_OUT:
        return f"The tool gave no answer within {timeout:g} s."
    return f"The tool failed: {failure.error}."

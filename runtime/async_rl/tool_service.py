"""Tools of a run behind a service of replicas: a replica that hangs or dies costs one call."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from attrs import evolve

from ...core.keys import Key
from ...core.language.parsers import Call
from ...core.language.text_env import Outcome, TextEnv
from ..effects.tools.calls import DIED, Perform, Returned, ToolFailure
from ..effects.tools.guard import ToolFailed, guarded, in_processes, in_threads, record_nothing
from ..effects.tools.service import ServiceError, serving
from ..text.async_config import AsyncConfig
from ..text.components import TextComponents


@contextmanager
def served_tools(
    parts: TextComponents, given: AsyncConfig, record: Callable[[ToolFailed], None]
) -> Iterator[TextComponents]:
    """Yield the parts of a run whose tool calls go through a service of `tool_replicas` replicas; unchanged parts with 0.

    A call that hangs beyond `tool_timeout`, or whose replica dies, is retried by another replica; if that fails too, or no
    replica becomes free in that time, the failure is reported to the model and to `record`. A call is pickled and sent to a
    replica in a process, so the world's `step` has to be a function of a module.
    """
    if not given.tool_replicas:
        yield parts
        return

    def begin(number: int) -> AbstractContextManager[Perform]:
        return in_processes(1) if given.tool_engine == "process" else nullcontext(in_threads(1))

    with serving(begin, given.tool_replicas) as service:
        world = calling(parts.rules.env, _in_any_case(service.perform), timeout=given.tool_timeout, record=record)
        yield evolve(parts, rules=evolve(parts.rules, env=world))


def calling(
    env: TextEnv[Any, Any], perform: Perform, *, timeout: float, record: Callable[[ToolFailed], None] = record_nothing
) -> TextEnv[Any, Any]:
    """Return the environment with its tool calls run by `perform`, and all else unchanged. Raises: ChoiceError.

    >>> from ...core.language.zorplex.env import zorplex
    >>> gone = calling(zorplex(), lambda *call: ToolFailure(DIED, "gone"), timeout=1.0)
    >>> gone.step(gone.params, 7, Call("LOOKUP", "kra"), ())
    (7, Outcome(observation='The tool failed: gone.', reward=0.0, terminated=False, truncated=False))
    """
    elsewhere = guarded(env, perform, timeout=timeout, record=record)

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        world = elsewhere if isinstance(action, Call) else env
        return world.step(params, state, action, key)

    return evolve(elsewhere, reset=env.reset, step=step)


def _in_any_case(perform: Perform) -> Perform:
    """Return `perform` with a service that has no replica left reported as a failed call instead of an error."""

    def call(function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Returned | ToolFailure:
        try:
            return perform(function, arguments, seconds)
        except ServiceError as fault:
            return ToolFailure(DIED, str(fault))

    return call

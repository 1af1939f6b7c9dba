"""Tools of a run behind a service: replicas that may hang or die, at the price of one call."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from attrs import evolve

from ..effects.service import serving
from ..effects.tool_calls import Perform
from ..effects.tools import Failed, guarded, in_processes, in_threads
from ..language.parts import Parts
from ..recipes.asynchronous import Asynchronous


@contextmanager
def served_tools(parts: Parts, given: Asynchronous, record: Callable[[Failed], None]) -> Iterator[Parts]:
    """The parts of a run whose calls of tools go through a service of `tool_replicas` replicas; as they are with 0.

    A call that hangs beyond `tool_timeout`, or whose replica dies, is made by another replica; where that fails too the model
    is told, and `record` as well.
    """
    if not given.tool_replicas:
        yield parts
        return

    def begin(number: int) -> AbstractContextManager[Perform]:
        return in_processes(1) if given.tool_engine == "process" else nullcontext(in_threads(1))

    with serving(begin, given.tool_replicas) as service:
        world = parts.rules.env
        safe = guarded(world, service.perform, timeout=given.tool_timeout, record=record)
        yield evolve(parts, rules=evolve(parts.rules, env=evolve(world, step=safe.step, tools=safe.tools)))

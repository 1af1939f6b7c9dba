"""Processes of an actor library on this machine, kept by a child of this process and gone with it."""

import pickle
from collections.abc import Mapping
from queue import Empty, Queue
from typing import Any

from ....core.errors import message
from ..workers.process import Child, run_body
from ..workers.program import NOTE, READY
from .interface import EngineError


def start_child(
    body: Any,
    arguments: tuple[Any, ...],
    *,
    what: str,
    timeout: float,
    environment: Mapping[str, str],
    pass_fds: tuple[int, ...] = (),
    stderr: int | None = None,
) -> tuple[Any, Child]:
    """Start a child that runs the body; return its first note. Raises: EngineError if it sends none in time."""
    said: Queue[tuple[Any, ...]] = Queue()
    frame = pickle.dumps((body, arguments))
    child = run_body(frame, said.put, name=what, environment=environment, pass_fds=pass_fds, stderr=stderr)
    try:
        word, *rest = said.get(timeout=timeout)
        if word == READY:
            word, *rest = said.get(timeout=timeout)
    except Empty:
        word, rest = "", [f"timed out after {timeout:.1f} s"]
    except BaseException:
        child.process.end()
        raise
    if word == NOTE:
        return rest[0], child
    child.process.end()
    remedy = "see that its address is one of this machine, and that there are memory and free ports"
    raise EngineError(message(what, got=f"not begun ({rest[0]})", wanted="running", remedy=remedy))


def end_child(child: Child, seconds: float) -> None:
    """Ask a child to end, and kill it and its session after so many seconds. A second call does nothing."""
    child.stop()
    child.process.wait(seconds)
    child.process.end()

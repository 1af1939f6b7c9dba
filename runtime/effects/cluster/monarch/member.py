"""A member as an actor of Monarch. This module is sent by value: a member's process need not import the package for it."""

import os
import select
import signal
import sys
import threading
from types import ModuleType
from typing import Any


def member(actor: Any) -> Any:
    """Return the class of members; `actor` is the module monarch.actor. No method is `async`, as Monarch requires."""
    methods = {"__init__": _made, "pid": actor.endpoint(_pid), "perform": actor.endpoint(_perform)}
    return type("Member", (actor.Actor,), methods)


def _made(self: Any, path: list[str], program: str, keeper: int) -> None:
    """Run the program text of `member_program` and make its `Stage`; this process ends with the process `keeper`."""
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    threading.Thread(target=_end_with, args=(os.pidfd_open(keeper),), daemon=True).start()
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    self.program = ModuleType("purestep_member")
    exec(compile(program, "member_program.py", "exec"), vars(self.program))
    self.stage = self.program.Stage()


def _end_with(keeper: int) -> None:
    """Kill this process, and all that it has started, once the keeper has ended."""
    select.select([keeper], [], [])
    os.killpg(0, signal.SIGKILL)


def _pid(self: Any) -> int:
    """Return the process id; the process leads a process group of its own."""
    return os.getpid()


def _perform(self: Any, letter: bytes) -> bytes:
    """Make a call; return the message with its answer."""
    head = self.program.HEAD
    answer: bytes = self.stage.perform(*head.unpack_from(letter), letter[head.size :])
    return answer

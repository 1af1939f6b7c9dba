"""A member as an actor of Ray. This module is sent by value, so that Ray's processes need not import the package for it."""

import os
import sys
import threading
from types import ModuleType
from typing import Any


class Member:
    """A `Stage` of `member_program`, whose program text is passed, in a process that Ray has started."""

    def __init__(self, path: list[str], program: str) -> None:
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        self.program: Any = ModuleType("purestep_member")
        exec(compile(program, "member_program.py", "exec"), vars(self.program))
        self.stage = self.program.Stage()

    def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    def perform(self, letter: bytes) -> bytes:
        """Make a call; return the message with its answer."""
        head = self.program.HEAD
        answer: bytes = self.stage.perform(*head.unpack_from(letter), letter[head.size :])
        return answer

    def watch(self) -> None:
        """Block for ever: the caller is notified when this process ends."""
        threading.Event().wait()

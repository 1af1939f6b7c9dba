"""A member as an actor of Ray. This module is sent by value, so that Ray's processes need not import the package for it."""

import os
import sys
import threading
from types import ModuleType
from typing import Any


class Member:
    """The stage of `processes_member`, whose text comes along, in a process that Ray has started."""

    def __init__(self, path: list[str], program: str) -> None:
        sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
        self.program: Any = ModuleType("purestep_member")
        exec(compile(program, "processes_member.py", "exec"), vars(self.program))
        self.stage = self.program.Stage()

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def perform(self, letter: bytes) -> bytes:
        """Makes a call; gives the message of its answer."""
        head = self.program.HEAD
        answer: bytes = self.stage.perform(*head.unpack_from(letter), letter[head.size :])
        return answer

    def watch(self) -> None:
        """Never comes back: who has asked for it sees that this process ends."""
        threading.Event().wait()

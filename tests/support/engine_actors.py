"""What the contract of engines is tried with; it imports little, so that a member begins soon."""

import os
import subprocess
import time
from pathlib import Path


class Counter:
    """Counts from a number, and does what goes wrong with members when it is told to."""

    def __init__(self, start: int = 0, folder: str = "", fault: str = "") -> None:
        self.value, self.folder, self.fault, self.setups = start, folder, fault, 0

    def setup(self) -> None:
        """Something heavy, done once; notes its process, so that one that is left behind is found."""
        if self.setups:
            return
        if self.folder:
            Path(self.folder, f"{os.getpid()}").touch()
        if self.fault == "raises":
            raise ValueError("no such model")
        if self.fault == "hangs":
            time.sleep(60.0)
        if self.fault == "exits":
            os._exit(3)
        self.setups += 1

    def add(self, more: int = 1) -> int:
        """Counts on."""
        self.value += more
        return self.value

    def prepared(self) -> int:
        """How often `setup` did something."""
        return self.setups

    def pid(self) -> int:
        """The member's process."""
        return os.getpid()

    def echo(self, value: object) -> object:
        """The value."""
        return value

    def nap(self, seconds: float, value: object = "slept") -> object:
        """Is busy for that time."""
        time.sleep(seconds)
        return value

    def nap_if(self, pid: int, seconds: float) -> str:
        """Is busy where it is that process."""
        if os.getpid() == pid:
            time.sleep(seconds)
        return "awake"

    def fail(self, what: str) -> None:
        """Raises."""
        raise KeyError(what)

    def leave(self) -> None:
        """Raises what ends a program."""
        raise SystemExit(3)

    def strange(self) -> object:
        """Gives what cannot be sent."""
        return lambda: None

    def child(self) -> int:
        """Starts a process and leaves it running."""
        return subprocess.Popen(["sleep", "60"]).pid


class Plain:
    """Has nothing to set up, and cannot be made where it is told so."""

    def __init__(self, fault: str = "") -> None:
        if fault:
            raise ValueError(fault)

    def word(self) -> str:
        """Says something."""
        return "plain"

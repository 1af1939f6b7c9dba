"""An actor that fetches weights, for tests of transports on engines."""

import os
from typing import Any

import torch

from purestep.core.errors import PurestepError
from purestep.runtime.effects.weight_sync import weight_reader

SIZE = 100_000


def weights(version: int) -> dict[str, Any]:
    """The weights of a version, every byte of which says so."""
    return {"a": torch.arange(float(SIZE)) + version, "b": torch.full((7,), version % 256, dtype=torch.uint8)}


def right(version: int, params: Any) -> bool:
    """Return whether these are the weights of that version."""
    return all(torch.equal(params[name], leaf) for name, leaf in weights(version).items())


class Reader:
    """Fetches in a process of an engine."""

    def __init__(self, address: str) -> None:
        self.opened = weight_reader(address, weights(0))
        self.address, self.held = address, list[Any]()

    def setup(self) -> None:
        """Opens the address."""
        self.reader = self.opened.__enter__()

    def fetch(self, newer_than: int = -1, into: bool = False, seconds: float = 30.0) -> tuple[int, bool] | str:
        """Return the version fetched and whether every byte is right; (-1, True) where none is newer; an error as its text."""
        try:
            found = self.reader.fetch(newer_than, weights(0) if into else (), seconds)
        except PurestepError as error:
            return str(error)
        if found:
            self.held.append(found)
        return (found[0], right(*found)) if found else (-1, True)

    def still_right(self) -> bool:
        """Return whether all that was fetched is as it was."""
        return all(right(*found) for found in self.held)

    def shared(self) -> bool:
        """Return whether the newest is a mapping of Ray's store, and none of this process's own memory."""
        address = self.held[-1][1]["a"].data_ptr()
        with open("/proc/self/maps") as maps:
            for line in maps:
                low, high = (int(number, 16) for number in line.split()[0].split("-"))
                if low <= address < high:
                    return "plasma" in line or "/dev/shm" in line
        return False

    def other(self) -> str:
        """Return the error that a reader with another architecture gets, as its text."""
        try:
            with weight_reader(self.address, {"a": torch.zeros(3), "b": weights(0)["b"]}) as reader:
                return str(reader.fetch())
        except PurestepError as error:
            return str(error)

    def closed(self) -> bool:
        """Return whether no more weights come."""
        return bool(self.reader.closed())

    def pid(self) -> int:
        """The process."""
        return os.getpid()

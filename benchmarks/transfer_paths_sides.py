"""The publisher's side of `transfer_paths`: one process with an outlet of each way, that publishes when it is told."""

import time
from contextlib import ExitStack
from typing import Any

import torch

from purestep.runtime.effects.transfer import Outlet, outlet

from .transfer_sides import Params, filled, params_of

KEY = b"the key of a benchmark"
VERSIONS = 5  # what is published differs from one version to the next
OPTIONS: dict[str, dict[str, Any]] = {
    "shared memory": {"way": "shared", "slots": 2},
    "TCP, crc32": {"way": "tcp", "key": KEY, "checks": "crc32"},
    "TCP, xxh3": {"way": "tcp", "key": KEY, "checks": "xxh3"},
    "gloo broadcast": {"way": "broadcast", "readers": 1, "seconds": 120.0},
}
MONARCH = "Monarch's buffers"


def content(megabytes: float, version: int) -> Params:
    """The weights of a version."""
    return filled(params_of(megabytes), version % VERSIONS)


def published(weights: Outlet, version: int, params: Params) -> float:
    """Seconds that it took."""
    start = time.perf_counter()
    weights.publish(version, params)
    return time.perf_counter() - start


def serve(pipe: Any, megabytes: float, names: tuple[str, ...]) -> None:
    """Opens the outlets, says their addresses; then makes and publishes what it is told, and says so before and after."""
    torch.set_num_threads(1)
    with ExitStack() as stack:
        made = {name: stack.enter_context(outlet(params=params_of(megabytes), **OPTIONS[name])) for name in names}
        pipe.send({name: weights.address for name, weights in made.items()})
        while asked := pipe.recv():
            name, version = asked
            params = content(megabytes, version)
            pipe.send(())
            pipe.send(published(made[name], version, params))


def trainer() -> Any:
    """A class of Monarch's actors that does the same by its way; made when asked for, since few have Monarch."""
    from monarch.actor import Actor, endpoint

    class Trainer(Actor):
        """Publishes in a process of Monarch."""

        def __init__(self, megabytes: float) -> None:
            self.megabytes, self.opened = megabytes, outlet("monarch", params_of(megabytes), slots=2)
            self.weights = self.opened.__enter__()

        @endpoint
        def address(self) -> Any:
            """Where it is read."""
            return self.weights.address

        @endpoint
        def publish(self, version: int) -> float:
            """Seconds that it took."""
            return published(self.weights, version, content(self.megabytes, version))

    return Trainer

"""The publisher's side of `transfer_paths`: a process or an actor with a publisher, that publishes when it is asked to."""

import time
from typing import Any

import torch

from purestep.runtime.effects.weight_sync import WeightPublisher, weight_publisher

from .transfer_sides import Params, filled, params_of

VERSIONS = 5  # what is published differs from one version to the next
SHARED, RAY, ELSEWHERE = "shared memory", "Ray's store, this host", "Ray's store, another host"
MONARCH, PEERS = "Monarch's buffers", ("NIXL over TCP", "NIXL over TCP, checked")


def content(megabytes: float, version: int) -> Params:
    """The weights of a version."""
    return filled(params_of(megabytes), version % VERSIONS)


def published(weights: WeightPublisher, version: int, params: Params) -> float:
    """Seconds that it took."""
    start = time.perf_counter()
    weights.publish(version, params)
    return time.perf_counter() - start


def serve(pipe: Any, megabytes: float) -> None:
    """Opens the publisher in shared memory, sends its address; then publishes each version that it receives."""
    torch.set_num_threads(1)
    with weight_publisher("shared", params_of(megabytes), slots=2) as weights:
        pipe.send(weights.address)
        while asked := pipe.recv():
            (version,) = asked
            pipe.send(published(weights, version, content(megabytes, version)))


class Publisher:
    """The publisher by Ray's store, an actor of the engine."""

    def __init__(self, megabytes: float) -> None:
        self.megabytes, self.opened = megabytes, weight_publisher("ray", params_of(megabytes))

    def setup(self) -> None:
        """Opens the publisher."""
        torch.set_num_threads(1)
        self.weights = self.opened.__enter__()

    def address(self) -> str:
        """Where it is read."""
        return self.weights.address

    def publish(self, version: int) -> float:
        """Seconds that it took."""
        return published(self.weights, version, content(self.megabytes, version))

    def close(self) -> None:
        """Ends the publisher."""
        self.opened.__exit__(None, None, None)


def trainer() -> Any:
    """A class of Monarch's actors that does the same by its way; made when asked for, since few have Monarch."""
    from monarch.actor import Actor, endpoint

    class Trainer(Actor):
        """Publishes in a process of Monarch."""

        def __init__(self, megabytes: float) -> None:
            self.megabytes, self.opened = megabytes, weight_publisher("monarch", params_of(megabytes), slots=2)
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

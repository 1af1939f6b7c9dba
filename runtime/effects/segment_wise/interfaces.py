"""What the parts of the layer ask of each other: base classes to derive from, and what an engine has to answer.

A sample is a TensorDict, or a plain dict of lists for tests; which keys mean what stands in `samples`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from attrs import frozen

Sample = Any  # a TensorDict, or a dict
Workflow = Callable[[Any, Any], Any]  # (engine, data) -> a sample, or None for nothing worth keeping


@frozen
class RolloutStat:
    """How many samples were begun, and what became of them: submitted = running + accepted + rejected."""

    submitted: int = 0
    accepted: int = 0  # came to an end and were kept, those that were left out later included
    running: int = 0
    rejected: int = 0  # came to nothing, were not wanted, or were too old when they came


@frozen
class Account:
    """Where every sample is; both sums hold at any time, whatever the threads do.

    submitted = running + accepted + rejected        accepted = consumed + filtered + queued + cached
    """

    submitted: int = 0
    running: int = 0
    accepted: int = 0
    rejected: int = 0
    consumed: int = 0  # handed to the trainer
    filtered: int = 0  # accepted, and left out after all because they had become too old
    queued: int = 0  # wait in the output queue
    cached: int = 0  # wait in the result cache


class InferenceEngine(Protocol):
    """What samples: a server, a model in this process, a simulation. Its calls come from several threads."""

    def get_version(self) -> int:
        """The version of its weights, 0 at the beginning."""
        ...

    def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
        """The log-prob of each token from `start_index` on, given those before it, under the weights it has now."""
        ...


class CapacityModifier(ABC):
    """Changes how many samples may be begun. It may ask the manager and the executor whatever it likes."""

    @abstractmethod
    def modify_capacity(self, base_capacity: int, current_version: int, stats: RolloutStat) -> int:
        """The capacity, given what the manager and the modifiers before this one make it, and the numbers they saw."""


class RolloutCache(ABC):
    """Samples that wait for a batch, in order. Implementations must be thread-safe."""

    @abstractmethod
    def add(self, item: Sample) -> None:
        """Adds an item at the end."""

    @abstractmethod
    def get_all(self) -> list[Sample]:
        """All items, in a list of the caller's own; the items themselves are no copies."""

    @abstractmethod
    def take_first_n(self, n: int) -> list[Sample]:
        """Removes and returns the first n items, or as many as there are."""

    @abstractmethod
    def size(self) -> int:
        """How many items there are."""

    @abstractmethod
    def clear(self) -> None:
        """Removes all items."""

    @abstractmethod
    def filter_inplace(self, predicate: Callable[[Sample], bool]) -> int:
        """Keeps the items for which the predicate is true, in order; the number of those removed."""


class RolloutQueue(ABC):
    """Samples on their way from rollouts to the cache, first in, first out. Implementations must be thread-safe."""

    @abstractmethod
    def put(self, item: Sample, timeout: float | None = None) -> None:
        """Puts an item in, waiting for room. Raises: queue.Full when the seconds are over."""

    @abstractmethod
    def get(self, timeout: float | None = None) -> Sample:
        """Takes the first item, waiting for one. Raises: queue.Empty when the seconds are over."""

    @abstractmethod
    def put_nowait(self, item: Sample) -> None:
        """Puts an item in without waiting. Raises: queue.Full."""

    @abstractmethod
    def get_nowait(self) -> Sample:
        """Takes the first item without waiting. Raises: queue.Empty."""

    @abstractmethod
    def empty(self) -> bool:
        """Whether there is nothing."""

    @abstractmethod
    def qsize(self) -> int:
        """About how many items there are."""

    def held(self) -> AbstractContextManager[Any]:
        """A context in which no other thread puts or takes; one that holds nobody off unless a queue can do better."""
        return nullcontext()

"""The interfaces between the components: base classes to derive from, and the methods that an engine must have.

A sample is a TensorDict, or a plain dict of lists for tests; for the meaning of its keys see `samples`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from attrs import frozen

Sample = Any  # a TensorDict, or a dict
Workflow = Callable[[Any, Any], Any]  # (engine, data) -> a sample, or None for no sample


@frozen
class RolloutStat:
    """Numbers of rollouts, in total and by state: submitted = running + accepted + rejected."""

    submitted: int = 0
    accepted: int = 0  # ended with a sample that was kept, including those that were left out later
    running: int = 0
    rejected: int = 0  # had no sample, or one that was refused or too old


@frozen
class Account:
    """Number of samples in each place; both sums hold at any time, whatever the threads do.

    submitted = running + accepted + rejected        accepted = consumed + filtered + queued + cached
    """

    submitted: int = 0
    running: int = 0
    accepted: int = 0
    rejected: int = 0
    consumed: int = 0  # passed to the trainer
    filtered: int = 0  # accepted, and later left out because they had become too old
    queued: int = 0  # wait in the output queue
    cached: int = 0  # wait in the result cache


class InferenceEngine(Protocol):
    """A sampler: a server, a model in this process, a simulation. It is called by several threads."""

    def get_version(self) -> int:
        """Return the version of its weights, 0 at the beginning."""
        ...

    def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
        """Return the log-prob of each token from `start_index` on, given those before it, under its current weights."""
        ...


class CapacityModifier(ABC):
    """Modifier of the number of samples that may be started. It may call the manager and the executor."""

    @abstractmethod
    def modify_capacity(self, base_capacity: int, current_version: int, stats: RolloutStat) -> int:
        """Return the capacity, given that of the manager and the modifiers before this one, and the counts behind it."""


class RolloutCache(ABC):
    """Samples that wait for a batch, in order. Implementations must be thread-safe."""

    @abstractmethod
    def add(self, item: Sample) -> None:
        """Append an item."""

    @abstractmethod
    def get_all(self) -> list[Sample]:
        """Return all items, in a new list; the items themselves are not copied."""

    @abstractmethod
    def take_first_n(self, n: int) -> list[Sample]:
        """Remove and return the first n items, or as many as there are."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all items."""

    @abstractmethod
    def filter_inplace(self, predicate: Callable[[Sample], bool]) -> int:
        """Keep the items for which the predicate is true, in order; return the number of those removed."""


class RolloutQueue(ABC):
    """Samples on their way from rollouts to the cache, first in, first out. Implementations must be thread-safe."""

    @abstractmethod
    def put(self, item: Sample, timeout: float | None = None) -> None:
        """Put an item in, waiting for room. Raises: queue.Full when the seconds are over."""

    @abstractmethod
    def get(self, timeout: float | None = None) -> Sample:
        """Take the first item, waiting for one. Raises: queue.Empty when the seconds are over."""

    @abstractmethod
    def put_nowait(self, item: Sample) -> None:
        """Put an item in without waiting. Raises: queue.Full."""

    @abstractmethod
    def get_nowait(self) -> Sample:
        """Take the first item without waiting. Raises: queue.Empty."""

    @abstractmethod
    def empty(self) -> bool:
        """Return whether the queue is empty."""

    @abstractmethod
    def qsize(self) -> int:
        """Return the approximate number of items."""

    def held(self) -> AbstractContextManager[Any]:
        """Return a context in which no other thread puts or takes; by default it locks nothing."""
        return nullcontext()

"""The queue and the cache of one process, and two operations on a whole queue: to list it, and to remove items."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from queue import Empty, Full
from typing import Any

from ....core.errors import ChoiceError, message
from .interfaces import RolloutCache, RolloutQueue, Sample


class LocalRolloutCache(RolloutCache):
    """A list of samples under a lock.

    >>> cache = LocalRolloutCache()
    >>> for item in (1, 2, 3, 4):
    ...     cache.add(item)
    >>> cache.filter_inplace(lambda item: item != 2), cache.take_first_n(2), cache.get_all(), cache.size()
    (1, [1, 3], [4], 1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Sample] = []

    def add(self, item: Sample) -> None:
        """Append an item."""
        with self._lock:
            self._items.append(item)

    def get_all(self) -> list[Sample]:
        """Return all items, in a new list."""
        with self._lock:
            return list(self._items)

    def take_first_n(self, n: int) -> list[Sample]:
        """Remove and return the first n items, or as many as there are. Raises: ChoiceError for n below 0."""
        if n < 0:
            raise ChoiceError(message("take_first_n: n", got=n, wanted="0 or more", remedy="count what is wanted"))
        with self._lock:
            taken, self._items = self._items[:n], self._items[n:]
            return taken

    def size(self) -> int:
        """Return the number of items."""
        with self._lock:
            return len(self._items)

    def clear(self) -> None:
        """Remove all items."""
        with self._lock:
            self._items = []

    def filter_inplace(self, predicate: Callable[[Sample], bool]) -> int:
        """Keep the items for which the predicate is true; return the number of those removed.

        The predicate is called outside the lock, so it may use the cache; items added meanwhile stay.
        """
        unwanted = [item for item in self.get_all() if not predicate(item)]
        with self._lock:
            before = len(self._items)
            self._items = _without(self._items, unwanted)
            return before - len(self._items)


class LocalRolloutQueue(RolloutQueue):
    """A bounded queue between threads which one of them can lock. Raises: ChoiceError for a size below 1.

    >>> samples = LocalRolloutQueue(2)
    >>> samples.put("a"), samples.put_nowait("b"), samples.get(), samples.qsize(), samples.empty()
    (None, None, 'a', 1, False)
    """

    def __init__(self, maxsize: int) -> None:
        if maxsize < 1:
            raise ChoiceError(message("queue: maxsize", got=maxsize, wanted="1 or more", remedy="make some room"))
        self.maxsize = maxsize
        self._changed = threading.Condition(threading.RLock())
        self._items: deque[Sample] = deque()

    def put(self, item: Sample, timeout: float | None = None) -> None:
        """Put an item in, waiting for room. Raises: queue.Full when the seconds are over."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._items) < self.maxsize, timeout):
                raise Full
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Sample:
        """Take the first item, waiting for one. Raises: queue.Empty when the seconds are over."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._items) > 0, timeout):
                raise Empty
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def put_nowait(self, item: Sample) -> None:
        """Put an item in without waiting. Raises: queue.Full."""
        self.put(item, 0)

    def get_nowait(self) -> Sample:
        """Take the first item without waiting. Raises: queue.Empty."""
        return self.get(0)

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return self.qsize() == 0

    def qsize(self) -> int:
        """Return the number of items."""
        with self._changed:
            return len(self._items)

    def held(self) -> AbstractContextManager[Any]:
        """Return a context in which no other thread puts or takes."""
        return self._changed


def everything(queue: RolloutQueue) -> list[Sample]:
    """Return the items of a queue, which stay in it: takes all out and puts all back, while it holds the queue.

    Raises: RuntimeError if other threads filled a queue meanwhile that cannot be held.

    >>> samples = LocalRolloutQueue(3)
    >>> samples.put("a"), samples.put("b"), everything(samples), samples.qsize()
    (None, None, ['a', 'b'], 2)
    """
    with queue.held():
        items = _drained(queue)
        _put_back(queue, items, lambda lost: None)
        return items


def remove_items(queue: RolloutQueue, unwanted: Iterable[Sample], on_removed: Callable[[int], None]) -> None:
    """Remove these very items from a queue, the others stay in order; `on_removed` is called once with their number.

    Raises: RuntimeError if other threads filled a queue meanwhile that cannot be held; items that found no room then count as
    removed too.

    >>> samples, a = LocalRolloutQueue(3), ["a"]
    >>> samples.put(a), samples.put(["a"]), remove_items(samples, [a], print), samples.qsize()
    1
    (None, None, None, 1)
    """
    gone = 0

    def add(count: int) -> None:
        nonlocal gone
        gone += count

    try:
        with queue.held():
            items = _drained(queue)
            kept = _without(items, unwanted)
            add(len(items) - len(kept))
            _put_back(queue, kept, add)
    finally:
        if gone:
            on_removed(gone)  # after the queue was released, because the callback may use it


def _drained(queue: RolloutQueue) -> list[Sample]:
    """Take out the items that are in the queue now; later ones are left, or this might never end."""
    items = []
    for _ in range(queue.qsize()):
        try:
            items.append(queue.get_nowait())
        except Empty:
            break
    return items


def _put_back(queue: RolloutQueue, items: list[Sample], on_lost: Callable[[int], None]) -> None:
    for place, item in enumerate(items):
        try:
            queue.put_nowait(item)
        except Full:
            lost = len(items) - place
            on_lost(lost)
            remedy = "let nobody put samples in meanwhile, or define `held`"
            raise RuntimeError(
                message("queue: room to put back", got=place, wanted=len(items), remedy=remedy)
            ) from None


def _without(items: Iterable[Sample], unwanted: Iterable[Sample]) -> list[Sample]:
    """Return the items that are not among the unwanted, by identity: different samples may be equal."""
    out = {id(item) for item in unwanted}
    return [item for item in items if id(item) not in out]

"""The queue and the cache of one process, and the two things that are done to a queue as a whole."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from queue import Empty, Full
from typing import Any

from ....core.errors import ChoiceError, message
from .interfaces import RolloutCache, RolloutQueue, Sample


class LocalRolloutCache(RolloutCache):
    """A list under a lock.

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
        """Adds an item at the end."""
        with self._lock:
            self._items.append(item)

    def get_all(self) -> list[Sample]:
        """All items, in a list of the caller's own."""
        with self._lock:
            return list(self._items)

    def take_first_n(self, n: int) -> list[Sample]:
        """Removes and returns the first n items, or as many as there are. Raises: ChoiceError for less than none."""
        if n < 0:
            raise ChoiceError(message("take_first_n: n", got=n, wanted="0 or more", remedy="count what is wanted"))
        with self._lock:
            taken, self._items = self._items[:n], self._items[n:]
            return taken

    def size(self) -> int:
        """How many items there are."""
        with self._lock:
            return len(self._items)

    def clear(self) -> None:
        """Removes all items."""
        with self._lock:
            self._items = []

    def filter_inplace(self, predicate: Callable[[Sample], bool]) -> int:
        """Keeps the items for which the predicate is true; the number of those removed.

        The predicate is asked outside the lock, so it may look into the cache; what is added meanwhile stays.
        """
        unwanted = [item for item in self.get_all() if not predicate(item)]
        with self._lock:
            before = len(self._items)
            self._items = _without(self._items, unwanted)
            return before - len(self._items)


class LocalRolloutQueue(RolloutQueue):
    """A bounded queue between threads which one of them can hold for itself. Raises: ChoiceError for no room at all.

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
        """Puts an item in, waiting for room. Raises: queue.Full when the seconds are over."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._items) < self.maxsize, timeout):
                raise Full
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> Sample:
        """Takes the first item, waiting for one. Raises: queue.Empty when the seconds are over."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._items) > 0, timeout):
                raise Empty
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def put_nowait(self, item: Sample) -> None:
        """Puts an item in without waiting. Raises: queue.Full."""
        self.put(item, 0)

    def get_nowait(self) -> Sample:
        """Takes the first item without waiting. Raises: queue.Empty."""
        return self.get(0)

    def empty(self) -> bool:
        """Whether there is nothing."""
        return self.qsize() == 0

    def qsize(self) -> int:
        """How many items there are."""
        with self._changed:
            return len(self._items)

    def held(self) -> AbstractContextManager[Any]:
        """A context in which no other thread puts or takes."""
        return self._changed


def everything(queue: RolloutQueue) -> list[Sample]:
    """The items of a queue, which stay in it: takes all out and puts all back, holding the queue.

    Raises: RuntimeError where others filled a queue meanwhile that cannot be held.

    >>> samples = LocalRolloutQueue(3)
    >>> samples.put("a"), samples.put("b"), everything(samples), samples.qsize()
    (None, None, ['a', 'b'], 2)
    """
    with queue.held():
        items = _drained(queue)
        _put_back(queue, items, lambda lost: None)
        return items


def remove(queue: RolloutQueue, unwanted: Iterable[Sample], on_removed: Callable[[int], None]) -> None:
    """Takes these very items out of a queue, the others stay in order; says once how many are gone.

    Raises: RuntimeError where others filled a queue meanwhile that cannot be held; what found no room then is said too.

    >>> samples, a = LocalRolloutQueue(3), ["a"]
    >>> samples.put(a), samples.put(["a"]), remove(samples, [a], print), samples.qsize()
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
            on_removed(gone)  # after the queue was let go: who is told may ask for it


def _drained(queue: RolloutQueue) -> list[Sample]:
    """What is in the queue now; what comes in meanwhile is left, or this might never end."""
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
    """Those that are none of the unwanted, which are told by identity: samples may be equal."""
    out = {id(item) for item in unwanted}
    return [item for item in items if id(item) not in out]

"""What rollouts made, until the trainer has it: a queue, a cache, and the count of what is where."""

from contextlib import AbstractContextManager
from functools import partial
from queue import Empty, Full
from typing import Any

from attrs import evolve

from ..experiment_config import InferenceEngineConfig
from .capacity import FilteredSamplesCapacityModifier
from .interfaces import Account, RolloutCache, RolloutQueue, Sample
from .strategies import StalenessControlStrategy


class Storage:
    """Samples that were accepted. `account` has their part of an account; it changes under the lock, which others share.

    `put` may come from any thread that has the lock, all else from one thread at a time, without it.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        queue: RolloutQueue,
        cache: RolloutCache,
        strategy: StalenessControlStrategy,
        modifier: FilteredSamplesCapacityModifier | None,
        config: InferenceEngineConfig,
        consumed: int = 0,
    ) -> None:
        self.lock, self.queue, self.cache = lock, queue, cache
        self.strategy, self.modifier, self.config = strategy, modifier, config
        self.account = Account(consumed=consumed)
        self.purged = -1  # the version of the last purge; 0 is one

    def put(self, sample: Sample) -> bool:
        """Puts a sample into the queue; false where there is no room. To be called with the lock."""
        try:
            self.queue.put_nowait(sample)
        except Full:
            return False
        self.account = evolve(self.account, queued=self.account.queued + 1)
        return True

    def leave_out(self, version: int, *, fetch: bool = False) -> None:
        """Leaves out what is too old, in the queue and in the cache; with `fetch` the rest moves to the cache in between."""
        told = partial(self.filtered, version, "queued")
        self.purged = self.strategy.purge_stale_samples_from_queue(self.queue, version, self.purged, self.config, told)
        if fetch:
            self._fetch()
        self.filtered(version, "cached", self.strategy.filter_stale_from_cache(self.cache, version, self.config))

    def _fetch(self) -> None:
        while True:
            try:
                self.cache.add(self.queue.get_nowait())
            except Empty:
                return
            with self.lock:
                now = self.account
                self.account = evolve(now, queued=now.queued - 1, cached=now.cached + 1)

    def filtered(self, version: int, place: str, count: int) -> None:
        """Counts samples that were accepted and are left out, and tells the modifier, once."""
        if count <= 0:
            return
        with self.lock:
            now = self.account
            self.account = evolve(now, filtered=now.filtered + count, **{place: getattr(now, place) - count})
        if self.modifier is not None:
            self.modifier.on_samples_filtered(count, version)

    def take(self, count: int) -> list[Sample]:
        """The first `count` samples of the cache; none as long as there are fewer."""
        if self.cache.size() < count:
            return []
        batch = self.cache.take_first_n(count)
        with self.lock:
            now = self.account
            self.account = evolve(now, cached=now.cached - len(batch), consumed=now.consumed + len(batch))
        return batch

"""How many rollouts may be begun: the counts, the formula of `algorithms.staleness`, and what modifies it."""

import threading
from collections import Counter

from attrs import evolve

from ....algorithms.staleness import capacity
from ....core.errors import ChoiceError, StructureError, message
from .interfaces import CapacityModifier, RolloutStat


class FilteredSamplesCapacityModifier(CapacityModifier):
    """Pays back what samples cost that were accepted and then left out: without it each of them takes its place for ever.

    All methods are thread-safe.

    >>> modifier = FilteredSamplesCapacityModifier()
    >>> modifier.on_samples_filtered(5, version=3)
    >>> modifier.modify_capacity(2, 3, RolloutStat()), modifier.get_version_stats()
    (7, {3: 5})
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filtered = 0
        self._by_version: Counter[int] = Counter()

    def on_samples_filtered(self, count: int, version: int | None = None) -> None:
        """Records that so many samples were left out, at that version; 0 or less changes nothing."""
        if count <= 0:
            return
        with self._lock:
            self._filtered += count
            if version is not None:
                self._by_version[version] += count

    def on_capacity_consumed(self, count: int) -> None:
        """Takes back that much of what is paid, at most all of it; the tallies by version stay.

        For whoever also counts these samples as accepted no longer. `WorkflowExecutor` never does: what it left out stays
        among the accepted, so it has to stay paid back, also when other samples are trained on.
        """
        if count <= 0:
            return
        with self._lock:
            self._filtered -= min(count, self._filtered)

    def modify_capacity(self, base_capacity: int, current_version: int, stats: RolloutStat) -> int:
        """base + filtered. The sum may exceed the concurrency, to which the executor clamps it."""
        del current_version, stats
        return base_capacity + self.get_filtered_count()

    def get_filtered_count(self) -> int:
        """How many are paid back now."""
        with self._lock:
            return self._filtered

    def get_version_stats(self) -> dict[int, int]:
        """How many were ever left out at each version that was told; version 0 is one."""
        with self._lock:
            return dict(self._by_version)

    def reset(self) -> None:
        """Forgets all, for tests and repairs by hand."""
        with self._lock:
            self._filtered = 0
            self._by_version = Counter()


class StalenessManager:
    """Counts rollouts and says how many more may be begun. Thread-safe; no lock is held while a modifier is asked.

    min(max(1, c) - running, (n + v + 1) max(1, B) - (accepted + running)), then the modifiers in their order

    c is `max_concurrent_rollouts`, B `consumer_batch_size`, n `max_staleness`, v the version. The result may be negative,
    and with a modifier more than the concurrency leaves: `WorkflowExecutor.get_capacity` is what to go by.
    Raises: ChoiceError for a number below 0.

    >>> manager = StalenessManager(max_concurrent_rollouts=8, consumer_batch_size=4, max_staleness=1)
    >>> manager.on_rollout_submitted()
    >>> manager.get_capacity(0), manager.get_stats()
    (7, RolloutStat(submitted=1, accepted=0, running=1, rejected=0))
    """

    def __init__(self, max_concurrent_rollouts: int, consumer_batch_size: int, max_staleness: int) -> None:
        given = {
            "max_concurrent_rollouts": max_concurrent_rollouts,
            "consumer_batch_size": consumer_batch_size,
            "max_staleness": max_staleness,
        }
        for name, value in given.items():
            if value < 0:
                remedy = "0 staleness lets an update wait for its own samples"
                raise ChoiceError(message(f"StalenessManager: {name}", got=value, wanted="0 or more", remedy=remedy))
        self.max_concurrent_rollouts = max_concurrent_rollouts
        self.consumer_batch_size = consumer_batch_size
        self.max_staleness = max_staleness
        self._lock = threading.Lock()
        self._stats = RolloutStat()
        self._modifiers: tuple[CapacityModifier, ...] = ()

    def register_capacity_modifier(self, modifier: CapacityModifier) -> None:
        """Adds a modifier behind those there are; one that is there already is not added again."""
        if not callable(getattr(modifier, "modify_capacity", None)):
            got, remedy = type(modifier).__name__, "derive from CapacityModifier"
            raise StructureError(message("capacity modifier", got=got, wanted="modify_capacity", remedy=remedy))
        with self._lock:
            if not any(one is modifier for one in self._modifiers):
                self._modifiers = (*self._modifiers, modifier)

    def get_capacity(self, current_version: int) -> int:
        """How many more rollouts may be begun, as far as the manager and its modifiers know.

        Raises: ChoiceError for a version below 0, StructureError for a modifier that gives no number.
        """
        with self._lock:
            stats, modifiers = self._stats, self._modifiers
        found = capacity(
            running=stats.running,
            accepted=stats.accepted,
            version=current_version,
            batch=self.consumer_batch_size,
            concurrency=self.max_concurrent_rollouts,
            staleness=self.max_staleness,
        )
        for modifier in modifiers:
            found = modifier.modify_capacity(found, current_version, stats)
            if not isinstance(found, int):
                where, remedy = f"{type(modifier).__name__}.modify_capacity", "return how many rollouts may be begun"
                raise StructureError(message(where, got=repr(found), wanted="an int", remedy=remedy))
        return found

    def get_stats(self) -> RolloutStat:
        """The counts, as a value."""
        with self._lock:
            return self._stats

    def on_rollout_submitted(self) -> None:
        """A rollout is begun."""
        with self._lock:
            now = self._stats
            self._stats = evolve(now, submitted=now.submitted + 1, running=now.running + 1)

    def on_rollout_accepted(self) -> None:
        """A rollout came to an end, and its sample is kept. Raises: ChoiceError where none is under way."""
        with self._lock:
            now = self._ended("on_rollout_accepted")
            self._stats = evolve(now, accepted=now.accepted + 1)

    def on_rollout_rejected(self) -> None:
        """A rollout came to nothing; what it took is free again. Raises: ChoiceError where none is under way."""
        with self._lock:
            now = self._ended("on_rollout_rejected")
            self._stats = evolve(now, rejected=now.rejected + 1)

    def on_version_recovered(self, version: int) -> None:
        """A run goes on from weights of this version: what it took to make them counts as accepted.

        Without that, (n + version + 1) batches would be begun at once. Raises: ChoiceError once a rollout was begun.
        """
        with self._lock:
            if version < 0 or self._stats != RolloutStat():
                got, wanted = f"{version} after {self._stats.submitted} rollouts", "0 or more, before the first"
                remedy = "recover before anything is begun"
                raise ChoiceError(message("on_version_recovered: version", got=got, wanted=wanted, remedy=remedy))
            used = version * max(1, self.consumer_batch_size)
            self._stats = RolloutStat(submitted=used, accepted=used)

    def _ended(self, where: str) -> RolloutStat:
        if self._stats.running < 1:
            remedy = "call on_rollout_submitted when one is begun"
            raise ChoiceError(message(f"{where}: rollouts under way", got=0, wanted="1 or more", remedy=remedy))
        return evolve(self._stats, running=self._stats.running - 1)

"""How many rollouts may be begun: the scheduler's counts and its formula, and what modifies the result."""

import threading
from collections import Counter

from ....core.errors import ChoiceError, StructureError, message
from ...scheduling.seats import room
from ...scheduling.state import Rules, Schedule, begin, changed
from .interfaces import CapacityModifier, RolloutStat

ENDLESS = 1 << 62  # updates: the trainer is the caller's


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
    """Counts of rollouts, in a `Schedule` of the scheduler, and how many more may be begun. Thread-safe.

    min(max(1, c) - running, (n + v + 1) max(1, B) - (accepted + running)), then the modifiers in their order

    c is `max_concurrent_rollouts`, B `consumer_batch_size`, n `max_staleness`, v the version. The result may be negative,
    and with a modifier exceed the concurrency: `WorkflowExecutor.get_capacity` is what to go by. No lock is held while a
    modifier is asked. Raises: ChoiceError for a number below 0.

    >>> manager = StalenessManager(max_concurrent_rollouts=8, consumer_batch_size=4, max_staleness=1)
    >>> manager.on_rollout_submitted()
    >>> manager.get_capacity(0), manager.get_stats()
    (7, RolloutStat(submitted=1, accepted=0, running=1, rejected=0))
    """

    def __init__(self, max_concurrent_rollouts: int, consumer_batch_size: int, max_staleness: int) -> None:
        for name, value in (
            ("max_concurrent_rollouts", max_concurrent_rollouts),
            ("consumer_batch_size", consumer_batch_size),
            ("max_staleness", max_staleness),
        ):
            if value < 0:
                remedy = "0 staleness lets an update wait for its own samples"
                raise ChoiceError(message(f"StalenessManager: {name}", got=value, wanted="0 or more", remedy=remedy))
        batch, concurrency = max(1, consumer_batch_size), max(1, max_concurrent_rollouts)
        self.rules = Rules(batch=batch, concurrency=concurrency, staleness=max_staleness, updates=ENDLESS)
        self.schedule = begin(self.rules, prompts=0, workers=1)  # its counts are kept, its groups stay empty
        self._lock = threading.Lock()
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
            now, modifiers = self.schedule, self._modifiers
        # Modifiers pay back what was filtered, as published, so the scheduler is not to do it too.
        found, stats = room(self.rules, changed(now, version=current_version, filtered=0)), _stats(now)
        for modifier in modifiers:
            found = modifier.modify_capacity(found, current_version, stats)
            if not isinstance(found, int):
                where, remedy = f"{type(modifier).__name__}.modify_capacity", "return how many rollouts may be begun"
                raise StructureError(message(where, got=repr(found), wanted="an int", remedy=remedy))
        return found

    def get_stats(self) -> RolloutStat:
        """The counts, as a value."""
        return _stats(self.schedule)

    def on_rollout_submitted(self) -> None:
        """A rollout is begun."""
        self.count(submitted=1, running=1)

    def on_rollout_accepted(self) -> None:
        """A rollout came to an end, and its sample is queued. Raises: ChoiceError where none is running."""
        self.count(running=-1, accepted=1, queued=1)

    def on_rollout_rejected(self) -> None:
        """A rollout came to nothing; what it took is free again. Raises: ChoiceError where none is running."""
        self.count(running=-1, rejected=1)

    def on_version_recovered(self, version: int) -> None:
        """A run goes on from weights of this version: what it took to make them counts as accepted.

        Without that, (n + version + 1) batches would be begun at once. Raises: ChoiceError once a rollout was begun.
        """
        with self._lock:
            if version < 0 or self.schedule.submitted:
                got, wanted = f"{version} after {self.schedule.submitted} rollouts", "0 or more, before the first"
                remedy = "recover before anything is begun"
                raise ChoiceError(message("on_version_recovered: version", got=got, wanted=wanted, remedy=remedy))
            self.schedule = begin(self.rules, prompts=0, workers=1, version=version)

    def count(self, **more: int) -> None:
        """Adds to counts of the schedule, all at once. Raises: ChoiceError where fewer than none would be running."""
        with self._lock:
            new = {name: getattr(self.schedule, name) + number for name, number in more.items()}
            if new.get("running", 0) < 0:
                remedy = "call on_rollout_submitted when one is begun"
                raise ChoiceError(message("rollouts under way", got=0, wanted="1 or more", remedy=remedy))
            self.schedule = changed(self.schedule, **new)


def _stats(now: Schedule) -> RolloutStat:
    return RolloutStat(submitted=now.submitted, accepted=now.accepted, running=now.running, rejected=now.rejected)

"""The number of rollouts that may start: the scheduler's counts and its formula, and modifiers of the result."""

import threading
from collections import Counter

from ....core.errors import ChoiceError, StructureError, message
from ...async_rl.scheduler.dispatch import room
from ...async_rl.scheduler.state import Rules, Schedule, begin_schedule, with_fields
from .interfaces import CapacityModifier, RolloutStat

ENDLESS = 1 << 62  # updates: the caller decides when training ends


class FilteredSamplesCapacityModifier(CapacityModifier):
    """Modifier that adds back the capacity of samples that were accepted and then left out, which they would use for ever.

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
        """Record that so many samples were left out, at that version; 0 or less changes nothing."""
        if count <= 0:
            return
        with self._lock:
            self._filtered += count
            if version is not None:
                self._by_version[version] += count

    def on_capacity_consumed(self, count: int) -> None:
        """Withdraw that much of the added capacity, at most all of it; the counts by version stay.

        For callers that also stop counting these samples as accepted. `WorkflowExecutor` never does: samples that it left out
        stay among the accepted, so their capacity has to stay added, even when other samples are trained on.
        """
        if count <= 0:
            return
        with self._lock:
            self._filtered -= min(count, self._filtered)

    def modify_capacity(self, base_capacity: int, current_version: int, stats: RolloutStat) -> int:
        """Return base + filtered. The sum may exceed the concurrency, to which the executor clamps it."""
        del current_version, stats
        return base_capacity + self.get_filtered_count()

    def get_filtered_count(self) -> int:
        """Return the capacity that is currently added."""
        with self._lock:
            return self._filtered

    def get_version_stats(self) -> dict[int, int]:
        """Return the number of samples ever left out, for each version that was passed, 0 included."""
        with self._lock:
            return dict(self._by_version)

    def reset(self) -> None:
        """Reset all counts, for tests and manual repairs."""
        with self._lock:
            self._filtered = 0
            self._by_version = Counter()


class StalenessManager:
    """Counts of rollouts, in a `Schedule` of the scheduler, and the number that may still start. Thread-safe.

    min(max(1, c) - running, (n + v + 1) max(1, B) - (accepted + running)), then the modifiers in their order

    c is `max_concurrent_rollouts`, B `consumer_batch_size`, n `max_staleness`, v the version. The result may be negative,
    and with a modifier exceed the concurrency: use `WorkflowExecutor.get_capacity`. No lock is held while a modifier is
    called. Raises: ChoiceError for a number below 0.

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
        self.schedule = begin_schedule(
            self.rules, prompts=0, workers=1
        )  # only its counts are used, its groups stay empty
        self._lock = threading.Lock()
        self._modifiers: tuple[CapacityModifier, ...] = ()

    def register_capacity_modifier(self, modifier: CapacityModifier) -> None:
        """Append a modifier; one that is registered already is not added again."""
        if not callable(getattr(modifier, "modify_capacity", None)):
            got, remedy = type(modifier).__name__, "derive from CapacityModifier"
            raise StructureError(message("capacity modifier", got=got, wanted="modify_capacity", remedy=remedy))
        with self._lock:
            if not any(one is modifier for one in self._modifiers):
                self._modifiers = (*self._modifiers, modifier)

    def get_capacity(self, current_version: int) -> int:
        """Return how many more rollouts may start, according to the manager and its modifiers.

        Raises: ChoiceError for a version below 0, StructureError for a modifier that does not return an int.
        """
        with self._lock:
            now, modifiers = self.schedule, self._modifiers
        # Modifiers add back the filtered samples, as in the published interface, so the scheduler must not do it too.
        found, stats = room(self.rules, with_fields(now, version=current_version, filtered=0)), _stats(now)
        for modifier in modifiers:
            found = modifier.modify_capacity(found, current_version, stats)
            if not isinstance(found, int):
                where, remedy = f"{type(modifier).__name__}.modify_capacity", "return how many rollouts may be begun"
                raise StructureError(message(where, got=repr(found), wanted="an int", remedy=remedy))
        return found

    def get_stats(self) -> RolloutStat:
        """Return the counts, as a value."""
        return _stats(self.schedule)

    def on_rollout_submitted(self) -> None:
        """Count a rollout that has started."""
        self.count(submitted=1, running=1)

    def on_rollout_accepted(self) -> None:
        """Count a rollout that has ended with a queued sample. Raises: ChoiceError if none is running."""
        self.count(running=-1, accepted=1, queued=1)

    def on_rollout_rejected(self) -> None:
        """Count a rollout without a sample; its capacity is free again. Raises: ChoiceError if none is running."""
        self.count(running=-1, rejected=1)

    def on_version_recovered(self, version: int) -> None:
        """Resume from weights of this version: the samples that were used to train them count as accepted.

        Without that, (n + version + 1) batches would start at once. Raises: ChoiceError once a rollout has started.
        """
        with self._lock:
            if version < 0 or self.schedule.submitted:
                got, wanted = f"{version} after {self.schedule.submitted} rollouts", "0 or more, before the first"
                remedy = "recover before anything is begun"
                raise ChoiceError(message("on_version_recovered: version", got=got, wanted=wanted, remedy=remedy))
            self.schedule = begin_schedule(self.rules, prompts=0, workers=1, version=version)

    def count(self, **more: int) -> None:
        """Add to counts of the schedule, all at once. Raises: ChoiceError if fewer than 0 would be running."""
        with self._lock:
            new = {name: getattr(self.schedule, name) + number for name, number in more.items()}
            if new.get("running", 0) < 0:
                remedy = "call on_rollout_submitted when one is begun"
                raise ChoiceError(message("rollouts under way", got=0, wanted="1 or more", remedy=remedy))
            self.schedule = with_fields(self.schedule, **new)


def _stats(now: Schedule) -> RolloutStat:
    return RolloutStat(submitted=now.submitted, accepted=now.accepted, running=now.running, rejected=now.rejected)

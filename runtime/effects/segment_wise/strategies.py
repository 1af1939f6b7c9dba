"""Strategies of staleness, for standard PPO and for segment-wise decoupled PPO, based on `algorithms.staleness`."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from ....algorithms.staleness import segment_wise
from ....core.errors import PurestepError
from ..experiment_config import InferenceEngineConfig
from .containers import everything, remove_items
from .interfaces import RolloutCache, RolloutQueue, Sample
from .samples import finished_sample


def _unheard(count: int) -> None:
    """Ignore the number of dropped samples."""


class StalenessControlStrategy(ABC):
    """Base class of strategies, which remove samples that are too old from queue and cache. Stateless but for `config`."""

    def __init__(self, config: InferenceEngineConfig | None = None) -> None:
        self.config = InferenceEngineConfig() if config is None else config

    @abstractmethod
    def is_sample_too_stale(self, td: Sample, current_ver: int, config: InferenceEngineConfig | None = None) -> bool:
        """Return whether a sample is too old for an update of the weights of this version."""

    def should_filter_before_enqueue(self) -> bool:
        """Return whether samples are checked when their rollout ends: those too old are then counted as rejected alone."""
        return False

    def purge_stale_samples_from_queue(
        self,
        output_queue: RolloutQueue,
        current_ver: int,
        last_purged_ver: int,
        config: InferenceEngineConfig | None = None,
        on_dropped: Callable[[int], None] = _unheard,
    ) -> int:
        """Remove samples that are too old from the queue if the version rose since the last time; the others stay in order.

        Returns the version of the last purge, to be passed the next time; -1 at first, since 0 is a version. `on_dropped` is
        called once with the number of dropped samples, if any. Raises: RuntimeError if other threads filled the queue
        meanwhile.
        """
        if current_ver <= last_purged_ver:
            return last_purged_ver
        stale = [item for item in everything(output_queue) if self.is_sample_too_stale(item, current_ver, config)]
        if stale:
            remove_items(output_queue, stale, on_dropped)
        return current_ver

    def filter_stale_from_cache(
        self, result_cache: RolloutCache, current_ver: int, config: InferenceEngineConfig | None = None
    ) -> int:
        """Remove samples that are too old from the cache; return how many."""
        return result_cache.filter_inplace(lambda item: not self.is_sample_too_stale(item, current_ver, config))


class StandardPPOStrategy(StalenessControlStrategy):
    """Standard PPO: the capacity bounds the rollouts that start, and no sample is too old afterwards."""

    def is_sample_too_stale(self, td: Sample, current_ver: int, config: InferenceEngineConfig | None = None) -> bool:
        """Return False."""
        del td, current_ver, config
        return False


class SegmentWisePPOStrategy(StalenessControlStrategy):
    """Segment-wise decoupled PPO: samples of the version before are kept, older ones are left out.

    >>> strategy = SegmentWisePPOStrategy()
    >>> [strategy.is_sample_too_stale({"output_version": [made]}, 5) for made in (5, 4, 3)]
    [False, False, True]
    """

    def should_filter_before_enqueue(self) -> bool:
        """Return True: samples that cannot be trained on would only fill the queue."""
        return True

    def is_sample_too_stale(self, td: Sample, current_ver: int, config: InferenceEngineConfig | None = None) -> bool:
        """Return `algorithms.staleness.segment_wise`, with `max_head_offpolicyness` as the bound of recomputed samples.

        A sample without the versions that made it is kept, as is one without a sampled token.
        """
        try:
            found = finished_sample(td)
        except PurestepError:
            return False
        if not found.mask.any():
            return False
        bound = (config or self.config).max_head_offpolicyness
        return bool(segment_wise(found.version, found.mask, found.recomputed, current_ver, bound=bound))

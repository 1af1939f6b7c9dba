"""The components for a configuration: with the switch off there is no recomputer, no modifier, and no sample is too old."""

from collections.abc import Callable
from typing import Any

from ..experiment_config import InferenceEngineConfig
from .capacity import FilteredSamplesCapacityModifier, StalenessManager
from .containers import LocalRolloutCache, LocalRolloutQueue
from .executor import Job, WorkflowExecutor, run_in_thread
from .interfaces import InferenceEngine
from .recomputer import ProximalRecomputer
from .strategies import SegmentWisePPOStrategy, StalenessControlStrategy, StandardPPOStrategy

QUEUED_EACH = 16  # slots of the queue for each rollout that may run


def create_staleness_manager(config: InferenceEngineConfig) -> StalenessManager:
    """Return a manager with the bounds of the configuration, for one process that has all of the concurrency."""
    return StalenessManager(_concurrency(config), config.consumer_batch_size, config.max_head_offpolicyness)


def create_staleness_strategy(config: InferenceEngineConfig) -> StalenessControlStrategy:
    """Return `SegmentWisePPOStrategy` if the switch is on, else `StandardPPOStrategy`."""
    return SegmentWisePPOStrategy(config) if config.enable_segment_wise_ppo else StandardPPOStrategy(config)


def create_proximal_recomputer(
    inference_engine: InferenceEngine, logger: Any, config: InferenceEngineConfig
) -> ProximalRecomputer | None:
    """Return a recomputer if the switch is on, else None."""
    return ProximalRecomputer(inference_engine, logger) if config.enable_segment_wise_ppo else None


def create_filtered_capacity_modifier(config: InferenceEngineConfig) -> FilteredSamplesCapacityModifier | None:
    """Return a modifier if the switch is on, else None."""
    return FilteredSamplesCapacityModifier() if config.enable_segment_wise_ppo else None


def register_capacity_modifiers(
    staleness_manager: StalenessManager, filtered_capacity_modifier: FilteredSamplesCapacityModifier | None
) -> None:
    """Register the modifier with the manager, unless it is None."""
    if filtered_capacity_modifier is not None:
        staleness_manager.register_capacity_modifier(filtered_capacity_modifier)


def create_workflow_executor(
    inference_engine: InferenceEngine,
    staleness_manager: StalenessManager,
    config: InferenceEngineConfig,
    logger: Any,
    *,
    start: Callable[[Job], object] = run_in_thread,
) -> WorkflowExecutor:
    """Return an executor with all its components; its modifier is registered with the manager. `start` runs a job.

    The queue has room for `queue_size` samples, or for 16 of each rollout that may run.
    """
    modifier = create_filtered_capacity_modifier(config)
    register_capacity_modifiers(staleness_manager, modifier)
    room = QUEUED_EACH * _concurrency(config) if config.queue_size is None else config.queue_size
    return WorkflowExecutor(
        inference_engine,
        staleness_manager,
        config,
        strategy=create_staleness_strategy(config),
        recomputer=create_proximal_recomputer(inference_engine, logger, config),
        modifier=modifier,
        output_queue=LocalRolloutQueue(room),
        result_cache=LocalRolloutCache(),
        queue_size=room,
        logger=logger,
        start=start,
    )


def _concurrency(config: InferenceEngineConfig) -> int:
    given = config.max_concurrent_rollouts
    return max(1, config.consumer_batch_size) if given is None else given

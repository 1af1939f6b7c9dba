"""Segment-wise PPO as people get it wrong: the defects of the published implementation, each an edit of a right part."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from attrs import evolve

from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.token_losses import token_clip
from purestep.runtime.effects import segment_wise as layer
from purestep.runtime.effects.segment_wise.samples import MARK, PROXIMAL, finite_numbers

from .segment_wise_world import SegmentWise

Edit = Callable[[SegmentWise], SegmentWise]


def _parts(**parts: Any) -> Edit:
    return lambda subject: evolve(subject, **parts)


class _Untold(layer.SegmentWisePPOStrategy):
    def purge_stale_samples_from_queue(self, *arguments: Any, **_: Any) -> int:
        return super().purge_stale_samples_from_queue(*arguments[:4])


class _AtTheDoorAlone(layer.SegmentWisePPOStrategy):
    def purge_stale_samples_from_queue(self, *arguments: Any, **_: Any) -> int:
        return 0

    def filter_stale_from_cache(self, *_: Any, **__: Any) -> int:
        return 0


class _Reversed(layer.SegmentWisePPOStrategy):
    def purge_stale_samples_from_queue(self, *arguments: Any, **named: Any) -> int:
        queue, current, last, *_ = arguments
        if current > last:
            items = [queue.get_nowait() for _ in range(queue.qsize())]
            for item in reversed(items):
                queue.put_nowait(item)
        return super().purge_stale_samples_from_queue(*arguments, **named)


class _ZeroIsNone(layer.SegmentWisePPOStrategy):
    def is_sample_too_stale(self, td: Any, current_ver: int, config: Any = None) -> bool:
        if (td.get(MARK) if MARK in td else -1) == 0:
            td = {name: value for name, value in td.items() if name != MARK}
        return super().is_sample_too_stale(td, current_ver, config)


class _Unclamped(layer.WorkflowExecutor):
    def get_capacity(self) -> int:
        return self.manager.get_capacity(self.engine.get_version())


class _ConsumesRepayment(layer.WorkflowExecutor):
    def wait(self, count: int, *arguments: Any, **named: Any) -> list[Any]:
        batch = super().wait(count, *arguments, **named)
        if self.modifier is not None:
            self.modifier.on_capacity_consumed(len(batch))
        return batch


class _RejectsAndReports(layer.WorkflowExecutor):
    def _admit(self, sample: Any) -> None:
        version = self.engine.get_version()
        if self.strategy.is_sample_too_stale(sample, version, self.config) and self.modifier is not None:
            self.modifier.on_samples_filtered(1, version)
        super()._admit(sample)


class _NobodyMeanwhile(layer.WorkflowExecutor):
    def _recompute(self, under_way: Iterable[Any]) -> None:
        parts = [*self.cache.get_all(), *under_way]
        if self.recomputer is not None:
            self.recomputer.recompute_samples(parts)
            self.recomputer.recompute_all(self.queue, layer.LocalRolloutCache())


class _LeavesThoseUnderWay(layer.WorkflowExecutor):
    @contextmanager
    def updating(self, under_way: Iterable[Any] = ()) -> Iterator[None]:
        with super().updating():
            yield


class _PaysNothing(layer.FilteredSamplesCapacityModifier):
    def modify_capacity(self, base_capacity: int, current_version: int, stats: layer.RolloutStat) -> int:
        return base_capacity


class _BelowZero(layer.FilteredSamplesCapacityModifier):
    def on_capacity_consumed(self, count: int) -> None:
        self._filtered -= count


class _OnlyPositive(layer.FilteredSamplesCapacityModifier):
    def on_samples_filtered(self, count: int, version: int | None = None) -> None:
        super().on_samples_filtered(count, version or None)


class _Busy(layer.StalenessManager):
    """Holds its lock while it asks, and says so where a plain lock would wait for itself for ever."""

    def __init__(self, *arguments: int) -> None:
        super().__init__(*arguments)
        self._busy = False

    def get_capacity(self, current_version: int) -> int:
        with self._once():
            return super().get_capacity(current_version)

    def get_stats(self) -> layer.RolloutStat:
        with self._once():
            return super().get_stats()

    @contextmanager
    def _once(self) -> Iterator[None]:
        if self._busy:
            raise RuntimeError("a lock is taken twice by one thread")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


class _SlicesTwice(layer.ProximalRecomputer):
    def __init__(self, engine: Any, logger: Any) -> None:
        super().__init__(_Short(engine), logger)


class _Short:
    """An engine whose answer begins at `start_index` of what should have begun there already."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def get_version(self) -> int:
        return int(self.engine.get_version())

    def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
        found = self.engine.recompute_output_logprobs_sync(input_ids=input_ids, start_index=start_index)
        return [*found[start_index:], *found[:start_index]]


class _AllTokens(layer.ProximalRecomputer):
    def recompute_samples(self, samples: Iterable[Any]) -> None:
        for sample in samples:
            versions = sample["output_version"] if isinstance(sample, dict) else sample["versions"].flatten().tolist()
            if self._engine.get_version() - 1 in versions:
                self._all(sample, versions)

    def _all(self, sample: Any, versions: list[int]) -> None:
        current = self._engine.get_version()
        plain = isinstance(sample, dict)
        ids = sample["input_ids"] if plain else sample["input_ids"].flatten().tolist()
        start = len(ids) - sum(version >= 0 for version in versions)
        found = self._engine.recompute_output_logprobs_sync(input_ids=ids, start_index=start)
        scores = finite_numbers(found, len(ids) - start)
        if plain:
            sample.update({PROXIMAL: scores, MARK: current})
        else:
            sample.set(PROXIMAL, torch.tensor([[0.0] * start + scores]))
            sample.set(MARK, torch.tensor([current]))


class _AnyVersion(layer.ProximalRecomputer):
    def recompute_for_sample(self, trajectory: dict[str, Any], prompt_len: int) -> None:
        self._recompute_lists(trajectory, max(trajectory["output_version"], default=-1) + 1, prompt_len)


def _child_wins(subject: SegmentWise) -> SegmentWise:
    def configured(arguments: list[str]) -> tuple[layer.BaseExperimentConfig, str]:
        config, path = subject.configured(arguments)
        said = [one.partition("=")[2] == "true" for one in arguments if one.startswith("rollout.enable")]
        for value in said:
            config.rollout.enable_segment_wise_ppo = value
        return config, path

    return evolve(subject, configured=configured)


def _clamps(subject: SegmentWise) -> SegmentWise:
    def loss(config: layer.PPOActorConfig) -> Any:
        right = subject.loss(config)
        if not config.enable_segment_wise_ppo or config.behav_imp_weight_cap is None:
            return right

        def clamped(log_prob: Any, proximal: Any, behaviour: Any, advantage: Any, mask: Any) -> Any:
            high = config.behav_imp_weight_cap or 0.0
            weight = truncated_weights(proximal, behaviour, mask, high=high)
            return weight * token_clip(log_prob, proximal, advantage, mask, clip=config.eps_clip)

        return clamped

    return evolve(subject, loss=loss)


untold = _parts(strategy=_Untold)
age_when_put = _parts(strategy=_AtTheDoorAlone)
reverses = _parts(strategy=_Reversed)
zero_is_none = _parts(strategy=_ZeroIsNone)
unclamped = _parts(executor=_Unclamped)
consumes_repayment = _parts(executor=_ConsumesRepayment)
misses_newcomers = _parts(executor=_NobodyMeanwhile)
pays_nothing = _parts(modifier=_PaysNothing)
below_zero = _parts(modifier=_BelowZero)
holds_its_lock = _parts(manager=_Busy)
any_version = _parts(recomputer=_AnyVersion)
child_wins: Edit = _child_wins
clamps: Edit = _clamps

MUTANTS: dict[str, Edit] = {
    "reports as filtered what it rejects": _parts(executor=_RejectsAndReports),
    "leaves out those under way": _parts(executor=_LeavesThoseUnderWay),
    "recomputes all tokens of a sample": _parts(recomputer=_AllTokens),
    "slices the engine's answer again": _parts(recomputer=_SlicesTwice),
}
PARTS: dict[str, Edit] = {"takes version 0 for no version in the tallies": _parts(modifier=_OnlyPositive)}

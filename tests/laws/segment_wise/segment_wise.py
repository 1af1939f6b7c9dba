"""Laws of segment-wise PPO's executor: counts, starts, recomputation, filtering and batches, under every schedule.

The subject is a `SegmentWise`; it runs in a simulation, see `segment_wise_world`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from attrs import evolve

from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.language.token_losses import token_clip
from purestep.core.transcript.record import ABSENT
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.runtime.effects import segment_wise
from purestep.runtime.effects.segment_wise.samples import MARK, PROXIMAL, finite_numbers

from .segment_wise_mirror import Mirror
from .segment_wise_samples import score, tokens
from .segment_wise_world import Script, SegmentWise, balanced, fair, play, scripts, world

# --- mutants ---
# Common errors in segment-wise PPO: the defects of the published implementation, each an edit of a right part.


Edit = Callable[[SegmentWise], SegmentWise]


def _parts(**parts: Any) -> Edit:
    return lambda subject: evolve(subject, **parts)


class _Untold(segment_wise.SegmentWisePPOStrategy):
    def purge_stale_samples_from_queue(self, *arguments: Any, **_: Any) -> int:
        return super().purge_stale_samples_from_queue(*arguments[:4])


class _AtTheDoorAlone(segment_wise.SegmentWisePPOStrategy):
    def purge_stale_samples_from_queue(self, *arguments: Any, **_: Any) -> int:
        return 0

    def filter_stale_from_cache(self, *_: Any, **__: Any) -> int:
        return 0


class _Reversed(segment_wise.SegmentWisePPOStrategy):
    def purge_stale_samples_from_queue(self, *arguments: Any, **named: Any) -> int:
        queue, current, last, *_ = arguments
        if current > last:
            items = [queue.get_nowait() for _ in range(queue.qsize())]
            for item in reversed(items):
                queue.put_nowait(item)
        return super().purge_stale_samples_from_queue(*arguments, **named)


class _ZeroIsNone(segment_wise.SegmentWisePPOStrategy):
    def is_sample_too_stale(self, td: Any, current_ver: int, config: Any = None) -> bool:
        if (td.get(MARK) if MARK in td else -1) == 0:
            td = {name: value for name, value in td.items() if name != MARK}
        return super().is_sample_too_stale(td, current_ver, config)


class _Unclamped(segment_wise.WorkflowExecutor):
    def get_capacity(self) -> int:
        return self.manager.get_capacity(self.engine.get_version())


class _ConsumesRepayment(segment_wise.WorkflowExecutor):
    def wait(self, count: int, *arguments: Any, **named: Any) -> list[Any]:
        batch = super().wait(count, *arguments, **named)
        if self.modifier is not None:
            self.modifier.on_capacity_consumed(len(batch))
        return batch


class _RejectsAndReports(segment_wise.WorkflowExecutor):
    def _admit(self, sample: Any) -> None:
        version = self.engine.get_version()
        if self.strategy.is_sample_too_stale(sample, version, self.config) and self.modifier is not None:
            self.modifier.on_samples_filtered(1, version)
        super()._admit(sample)


class _NobodyMeanwhile(segment_wise.WorkflowExecutor):
    def _recompute(self, under_way: Iterable[Any]) -> None:
        parts = [*self.cache.get_all(), *under_way]
        if self.recomputer is not None:
            self.recomputer.recompute_samples(parts)
            self.recomputer.recompute_all(self.queue, segment_wise.LocalRolloutCache())


class _LeavesThoseUnderWay(segment_wise.WorkflowExecutor):
    @contextmanager
    def updating(self, under_way: Iterable[Any] = ()) -> Iterator[None]:
        with super().updating():
            yield


class _PaysNothing(segment_wise.FilteredSamplesCapacityModifier):
    def modify_capacity(self, base_capacity: int, current_version: int, stats: segment_wise.RolloutStat) -> int:
        return base_capacity


class _BelowZero(segment_wise.FilteredSamplesCapacityModifier):
    def on_capacity_consumed(self, count: int) -> None:
        self._filtered -= count


class _OnlyPositive(segment_wise.FilteredSamplesCapacityModifier):
    def on_samples_filtered(self, count: int, version: int | None = None) -> None:
        super().on_samples_filtered(count, version or None)


class _Busy(segment_wise.StalenessManager):
    """A manager that holds a plain lock while it calls modifiers, and raises an error instead of a deadlock."""

    def __init__(self, *arguments: int) -> None:
        super().__init__(*arguments)
        self._busy = False

    def get_capacity(self, current_version: int) -> int:
        with self._once():
            return super().get_capacity(current_version)

    def get_stats(self) -> segment_wise.RolloutStat:
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


class _SlicesTwice(segment_wise.ProximalRecomputer):
    def __init__(self, engine: Any, logger: Any) -> None:
        super().__init__(_Short(engine), logger)


class _Short:
    """An engine that cuts its answer at `start_index` a second time, and moves the rest to the end."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def get_version(self) -> int:
        return int(self.engine.get_version())

    def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
        found = self.engine.recompute_output_logprobs_sync(input_ids=input_ids, start_index=start_index)
        return [*found[start_index:], *found[:start_index]]


class _AllTokens(segment_wise.ProximalRecomputer):
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


class _AnyVersion(segment_wise.ProximalRecomputer):
    def recompute_for_sample(self, trajectory: dict[str, Any], prompt_len: int) -> None:
        self._recompute_lists(trajectory, max(trajectory["output_version"], default=-1) + 1, prompt_len)


def _child_wins(subject: SegmentWise) -> SegmentWise:
    def configured(arguments: list[str]) -> tuple[segment_wise.BaseExperimentConfig, str]:
        config, path = subject.configured(arguments)
        said = [one.partition("=")[2] == "true" for one in arguments if one.startswith("rollout.enable")]
        for value in said:
            config.rollout.enable_segment_wise_ppo = value
        return config, path

    return evolve(subject, configured=configured)


def _clamps(subject: SegmentWise) -> SegmentWise:
    def loss(config: segment_wise.PPOActorConfig) -> Any:
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


# --- laws ---


SOURCE = "AReaL's segment-wise decoupled PPO; arXiv:2505.24298, sections 4 and 5; worlds, E"
Check = Callable[[SegmentWise, Script, Seen], None]


def segment_wise_laws() -> Suite:
    """The laws of the executor and its parts at work."""
    counted = (_counted(), _begun(), _as_the_scheduler(), _progress())
    return Suite("segment_wise_laws", (*counted, _proximal(), _age(), _order()))


_law = law_constructor(scripts, SOURCE, most=400)


def _counted() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here, rejected = world(subject, script), 0
        for verb in play(here):
            now = balanced(here)
            seen("a sample that was not wanted", verb == "reject")
            seen("a sample too old when it came", verb == "finish" and now.rejected > rejected)
            seen("a sample that became too old", now.filtered)
            seen("a sample in the cache", now.cached)
            rejected = now.rejected

    claim = "submitted = running + accepted + rejected, accepted = consumed + filtered + queued + cached; each drop told once."
    mutant = ("drops from the queue without telling", untold)
    needs = ("a sample that was not wanted", "a sample that became too old", "a sample in the cache")
    return _law("every_sample_is_in_one_place", claim, mutant, check, *needs, "a sample too old when it came")


def _begun() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            now = here.executor.account()
            held, ahead = now.accepted - now.filtered + now.running, script.staleness + here.engine.version + 1
            more = here.submitted > len(here.begun)
            seen("as many as allowed", more and now.running == script.concurrency)
            seen("a full budget", more and held == ahead * script.batch)
            seen("a queue that will be full", more and now.running + now.queued == script.room)
            seen("a filtered sample", now.filtered)
            require(now.running <= script.concurrency, f"{now.running} under way")
            require(held <= ahead * script.batch, f"{held} let in at version {here.engine.version}")
            require(now.running + now.queued <= script.room, "more under way than the queue has room for")
            room = min(
                script.concurrency - now.running, ahead * script.batch - held, script.room - now.running - now.queued
            )
            require(not more or room < 1, f"{room} more could be begun")

    claim = (
        "As many rollouts are under way as concurrency, staleness and the queue's room allow: no more, and no fewer."
    )
    mutant = ("adds what is paid back after the minimum is taken", unclamped)
    needs = ("as many as allowed", "a full budget", "a queue that will be full", "a filtered sample")
    return _law("as_many_as_allowed", claim, mutant, check, *needs)


def _as_the_scheduler() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        mirror = Mirror(subject, script)
        for verb in mirror.moves():
            seen("a batch", verb == "batch")
            seen("a filtered sample", mirror.here.executor.account().filtered)
            seen("a rejected sample", mirror.here.executor.account().rejected)
            seen("a later version to begin with", script.version)
            same("rollouts begun", mirror.here.begun, mirror.dispatched)
            state, now = mirror.state, mirror.here.executor.account()
            numbers = (state.running, state.accepted, state.rejected, state.consumed, state.filtered)
            same("numbers", (now.running, now.accepted, now.rejected, now.consumed, now.filtered), numbers)

    claim = (
        "What is begun is what the pure scheduler begins: base + filtered, clamped, repays in the staleness term alone."
    )
    mutant = ("counts what it left out for ever", pays_nothing)
    needs = ("a batch", "a filtered sample", "a rejected sample", "a later version to begin with")
    return _law("begins_as_the_scheduler_does", claim, mutant, check, *needs)


def _progress() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here, learns=True):
            pass
        for _ in range(12):
            require(fair(here), f"no batch comes: {here.executor.account()} at version {here.engine.version}")
            here.update()
        lost = here.executor.account().filtered
        seen("more filtered than may be ahead", lost > script.staleness * script.batch)

    claim = "Whatever happened before, when rollouts end and more are submitted a batch comes, for ever."
    mutant = ("takes the repayment back when a batch is taken", consumes_repayment)
    return _law("a_batch_comes", claim, mutant, check, "more filtered than may be ahead")


def _proximal() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            pass
        fair(here)
        for version, batch in here.batches:
            for sample in batch:
                made = [token for _, token, _ in tokens(sample)]
                seen("tokens of several versions", len(set(made)) > 1)
                seen("a token of version 0 that was recomputed", 0 in made and version > 0)
                for place, token, proximal in tokens(sample):
                    wanted = score(place, min(token + 1, version))
                    same(f"proximal log-prob of a token of version {token}, at {version}", proximal, wanted)
        same("warnings", here.log.warnings, [])

    claim = "A token's proximal log-prob is the one under the version after its own, or under its own while that is the newest."
    mutant = ("misses what comes in while it recomputes", misses_newcomers)
    needs = ("tokens of several versions", "a token of version 0 that was recomputed")
    return _law("proximal_is_one_version_later", claim, mutant, check, *needs)


def _age() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            pass
        for version, batch in here.batches:
            for sample in batch:
                made = [token for _, token, _ in tokens(sample)]
                if int(sample.get(MARK, ABSENT)) >= 0:
                    seen("a sample older than the version before", version - min(made) > 1)
                    require(version - min(made) <= max(1, script.bound), f"tokens of {made} at {version}")
                else:
                    require(version - max(made) <= 1, f"tokens of {made} at {version}, never recomputed")
        seen("a sample that became too old", here.executor.account().filtered)

    claim = (
        "Nothing too old is handed out: by its newest token, or by its oldest where proximal log-probs were recomputed."
    )
    mutant = ("looks at the age when a sample comes in alone", age_when_put)
    return _law(
        "nothing_too_old_is_taken",
        claim,
        mutant,
        check,
        "a sample that became too old",
        "a sample older than the version before",
    )


def _order() -> Law:
    def check(subject: SegmentWise, script: Script, seen: Seen) -> None:
        here = world(subject, script)
        for _ in play(here):
            pass
        here.take()
        taken = set(here.taken)
        seen("several samples taken", len(taken) > 2)
        seen("a sample that became too old", here.executor.account().filtered)
        same("the order", here.taken, [number for number in here.accepted if number in taken])

    claim = "Samples are handed out in the order in which they were accepted, each once, also around those left out."
    mutant = ("puts back the newest first", reverses)
    return _law("first_in_first_out", claim, mutant, check, "several samples taken", "a sample that became too old")

"""Rollouts in threads of their own, and batches of what they made: counts that always add up, nothing lost, nothing stuck.

Every sample is in one place: under way, in the queue, in the cache, with the trainer, or left out. What is left out is told
once: as rejected where it was never accepted, to the capacity modifier where it was. No lock is held while an engine, a
workflow, a strategy or a modifier is asked, so these may ask the executor in turn, from whatever thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from attrs import evolve

from ....core.errors import ChoiceError, message
from ....core.keys import Key, permutation
from ..experiment_config import InferenceEngineConfig
from .capacity import FilteredSamplesCapacityModifier, StalenessManager
from .interfaces import Account, InferenceEngine, RolloutCache, RolloutQueue, Sample, Workflow
from .recomputer import ProximalRecomputer
from .rollouts import Job, RolloutError, Task, in_thread
from .samples import marked
from .storage import Storage
from .strategies import StalenessControlStrategy

LOOK = 0.1  # seconds after which a wait looks whether the engine's version rose by itself


class WorkflowExecutor:
    """Begins rollouts as far as the capacity allows, keeps what they made, and hands out batches. Thread-safe.

    `queue_size` is the room of the queue, so that no more is under way than it can take; `start` runs a job, in a thread
    unless told otherwise. A run that goes on from later weights tells the manager so first (`on_version_recovered`).
    """

    def __init__(
        self,
        inference_engine: InferenceEngine,
        staleness_manager: StalenessManager,
        config: InferenceEngineConfig,
        *,
        strategy: StalenessControlStrategy,
        recomputer: ProximalRecomputer | None,
        modifier: FilteredSamplesCapacityModifier | None,
        output_queue: RolloutQueue,
        result_cache: RolloutCache,
        queue_size: int,
        logger: Any,
        start: Callable[[Job], object] = in_thread,
    ) -> None:
        self.engine, self.manager, self.config = inference_engine, staleness_manager, config
        self.strategy, self.recomputer, self.modifier = strategy, recomputer, modifier
        self.queue, self.cache, self.queue_size = output_queue, result_cache, queue_size
        self.logger, self.start = logger, start
        self._changed = threading.Condition()  # guards all that follows
        used = staleness_manager.get_stats().accepted
        self._storage = Storage(self._changed, output_queue, result_cache, strategy, modifier, config, used)
        self._taking = threading.RLock()  # for whoever moves samples on; those who put them in never want it
        self._tasks: deque[Task] = deque()
        self._parked: list[Sample] = []  # came while the weights were being changed
        self._paused = self._updating = self._closed = False
        self._dispatching = self._asked = False
        self._news = 0  # rises with whatever a waiting thread should look at
        self._failures = 0  # rollouts in a row that raised
        self._error: BaseException | None = None

    def submit(self, data: Any, workflow: Workflow, should_accept: Callable[[Sample], bool] | None = None) -> None:
        """Lets `workflow(engine, data)` be run when there is capacity for it.

        It gives a sample, or None for nothing worth keeping; `should_accept` may refuse a sample. If it raises, the rollout
        is rejected and the logger warned. Raises: RolloutError after `close`, and for what `wait` would raise.
        """
        with self._changed:
            self._raise_error()
            self._tasks.append(Task(data, workflow, should_accept))
        self._dispatch()
        with self._changed:
            self._raise_error()

    def wait(self, count: int, timeout: float | None = None, *, key: Key | None = None) -> list[Sample]:
        """The next `count` samples in the order in which they came, those too old left out; shuffled if a key is given.

        Their proximal log-probs are those of `algorithms.staleness.proximal_version` at the engine's version.
        Raises: ChoiceError for less than one, or more than could ever be there: (staleness + 1) batches; TimeoutError when
        the seconds are over, and all samples stay; RolloutError when it is closed, when as many rollouts in a row raised as
        may be under way, and for errors of strategies, modifiers and engines.
        """
        most = (self.manager.max_staleness + 1) * max(1, self.manager.consumer_batch_size)
        if not 1 <= count <= most:
            wanted, remedy = f"1 to {most}, (staleness + 1) batches", "a larger batch could never fill"
            raise ChoiceError(message("wait: count", got=count, wanted=wanted, remedy=remedy))
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                self._raise_error()
                news = self._news
            try:
                batch = self._take(count, _left(end))
            except Exception as error:
                raise _stopped(error) from error
            self._dispatch()
            if batch:
                return batch if key is None else [batch[place] for place in permutation(key, len(batch)).tolist()]
            with self._changed:
                self._changed.wait_for(partial(self._has_news, news), min(LOOK, _left(end)))
                self._raise_error()
            if _left(end) <= 0:
                raise TimeoutError(f"wait: no {count} samples in {timeout} s; {self.account()}")

    @contextmanager
    def updating(self, under_way: Iterable[Sample] = ()) -> Iterator[None]:
        """The context to change the weights in: proximal log-probs are recomputed first, what is too old is left out after.

        What comes in meanwhile is recomputed too, as long as the weights are the old ones, and waits until they are the new
        ones; nothing is begun and nobody takes. `under_way` are samples that the engine has and goes on with.
        """
        with self._taking:
            with self._changed:
                self._updating = True
            try:
                self._recompute(under_way)
                yield
            finally:
                with self._changed:
                    self._updating = False
                    parked, self._parked = self._parked, []
                for sample in parked:
                    self._admit(sample)
                self._storage.leave_out(self.engine.get_version())
                self._dispatch()

    def get_capacity(self) -> int:
        """How many rollouts may be begun now: what the manager says, no more than concurrency and queue have room for."""
        with self._changed:
            running, queued = self.manager.get_stats().running, self._storage.account.queued
        most = min(max(1, self.manager.max_concurrent_rollouts), self.queue_size - queued)
        return min(self.manager.get_capacity(self.engine.get_version()), most - running)

    def account(self) -> Account:
        """Where every sample is, at one moment."""
        with self._changed:
            now = self.manager.get_stats()
            numbers = {"submitted": now.submitted, "running": now.running}
            return evolve(self._storage.account, **numbers, accepted=now.accepted, rejected=now.rejected)

    def pause(self) -> None:
        """Begins nothing more until `resume`; what is under way goes on."""
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        """Begins rollouts again."""
        with self._changed:
            self._paused = False
        self._dispatch()

    def close(self) -> None:
        """Forgets what was not begun and lets everybody who waits go; what is under way ends as it does."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._tell()

    # --- beginning ---

    def _dispatch(self) -> None:
        """Begins what may be begun. One thread does it, for the others too: nobody else raises the number under way.

        So what the capacity was is still allowed when its turn comes, though no lock was held while it was asked for.
        """
        with self._changed:
            self._asked = True
            if self._dispatching:
                return
            self._dispatching = True
        try:
            while self._round():
                pass
        except BaseException as error:
            with self._changed:
                self._dispatching = False
            if not isinstance(error, Exception):
                raise
            self._stop(error)

    def _round(self) -> bool:
        """Begins as much as there is room for, if anybody asked since the last round; otherwise ends the dispatching."""
        with self._changed:
            if not self._asked:
                self._dispatching = False
                return False
            self._asked, wanted = False, self._open() and len(self._tasks) > 0
        room = self.get_capacity() if wanted else 0
        with self._changed:
            count = min(room, len(self._tasks)) if self._open() else 0
            tasks = [self._tasks.popleft() for _ in range(count)]
            for _ in tasks:
                self.manager.on_rollout_submitted()
        for task in tasks:
            try:
                self.start(partial(self._run, task))
            except Exception as error:
                self._reject()
                self._stop(error)
        return True

    def _open(self) -> bool:
        return not (self._paused or self._updating or self._closed)

    # --- one rollout ---

    def _run(self, task: Task) -> None:
        try:
            sample = task.made(self.engine)
        except BaseException as error:
            self._reject(error)
        else:
            if sample is None:
                self._reject()
            else:
                self._admit(sample)
        self._dispatch()

    def _admit(self, sample: Sample) -> None:
        """Accepts or rejects what a rollout made."""
        try:
            early = self.strategy.should_filter_before_enqueue()
            stale = early and self.strategy.is_sample_too_stale(sample, self.engine.get_version(), self.config)
        except Exception as error:
            self._reject()
            self._stop(error)
            return
        with self._changed:
            self._failures = 0
            if self._updating:
                self._parked.append(sample)
                return
            if not stale and self._storage.put(sample):
                self.manager.on_rollout_accepted()
                self._tell()
                return
        self._reject()
        if not stale:
            self.logger.warning("a sample is rejected: somebody else filled the output queue")

    def _reject(self, error: BaseException | None = None) -> None:
        """Counts a rollout that came to nothing; many in a row that raise are more than bad luck."""
        with self._changed:
            self.manager.on_rollout_rejected()
            self._failures = self._failures + 1 if error else 0
            if error and self._failures >= max(1, self.manager.max_concurrent_rollouts):
                self._error = self._error or error
            self._tell()
        if error:
            self.logger.warning(f"a rollout is rejected: {error!r}")

    def _stop(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._tell()

    # --- from the queue to a batch ---

    def _take(self, count: int, seconds: float) -> list[Sample]:
        """A batch if there is one; none as long as another thread takes or changes the weights."""
        if not self._taking.acquire(timeout=min(seconds, LOOK)):
            return []
        try:
            self._storage.leave_out(self.engine.get_version(), fetch=True)
            batch = self._storage.take(count)
            if self.recomputer is None:
                return batch
            self.recomputer.recompute_samples(batch)  # of the version before; no later call will see them
            return [marked(sample) for sample in batch]
        finally:
            self._taking.release()

    def _recompute(self, under_way: Iterable[Sample]) -> None:
        """Sets proximal log-probs of all that is here, and of what comes in meanwhile."""
        if self.recomputer is None:
            return
        self.recomputer.recompute_all(self.queue, self.cache)
        self.recomputer.recompute_samples(under_way)
        known = 0
        while True:
            with self._changed:
                fresh = self._parked[known:]
            if not fresh:
                return
            self.recomputer.recompute_samples(fresh)
            known += len(fresh)

    # --- what threads tell each other ---

    def _tell(self) -> None:
        self._news += 1
        self._changed.notify_all()

    def _has_news(self, since: int) -> bool:
        return self._news != since

    def _raise_error(self) -> None:
        """What stopped the rollouts is raised once, wherever it happened."""
        if self._closed:
            raise RolloutError(message("executor", got="closed", wanted="open", remedy="make another one"))
        if self._error is not None:
            error, self._error, self._failures = self._error, None, 0
            raise _stopped(error) from error


def _stopped(error: BaseException) -> RolloutError:
    return RolloutError(f"rollouts stopped: {error!r}")


def _left(end: float | None) -> float:
    """Seconds that remain; more than anybody waits for at once, where there is no end."""
    return 1e9 if end is None else max(0.0, end - time.monotonic())

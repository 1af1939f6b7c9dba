"""Rollouts in threads of their own, and batches of their samples: consistent counts, no lost samples, no deadlocks.

Every sample is in one place: in progress, in the queue, in the cache, with the trainer, or left out. A sample that is left out
is reported once: as rejected if it was never accepted, to the capacity modifier if it was. No lock is held while an engine, a
workflow, a strategy or a modifier is called, so these may call the executor in turn, from any thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, Full
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, PurestepError, StructureError, message
from ....core.keys import Key, permutation
from ...async_rl.scheduler.state import Schedule
from ..experiment_config import InferenceEngineConfig
from .capacity import FilteredSamplesCapacityModifier, StalenessManager
from .interfaces import Account, InferenceEngine, RolloutCache, RolloutQueue, Sample, Workflow
from .recomputer import ProximalRecomputer
from .samples import is_sample, unlocked, with_version
from .strategies import StalenessControlStrategy

LOOK = 0.1  # seconds after which a wait checks whether the engine's version has changed
Job = Callable[[], None]


class RolloutError(PurestepError, RuntimeError):
    """Error for rollouts that cannot go on; its cause is the original exception."""


@frozen
class Task:
    """A rollout to start."""

    data: Any
    workflow: Workflow
    should_accept: Callable[[Sample], bool] | None = None

    def run(self, engine: InferenceEngine) -> Sample:
        """Return the sample of the workflow, `unlocked`, or None if it is not wanted.

        Raises: StructureError for a result that is no sample, and as the workflow does.

        >>> Task({"input_ids": [1]}, lambda engine, data: data, lambda sample: True).run(())
        {'input_ids': [1]}
        """
        sample = self.workflow(engine, self.data)
        if sample is None:
            return None
        if not is_sample(sample):
            got, remedy = type(sample).__name__, "return None for nothing"
            raise StructureError(message("workflow: result", got=got, wanted="a TensorDict or a dict", remedy=remedy))
        return unlocked(sample) if self.should_accept is None or self.should_accept(sample) else None


def run_in_thread(job: Job) -> None:
    """Run a job in a daemon thread, which the process does not wait for at its end."""
    threading.Thread(target=job, name="purestep-rollout", daemon=True).start()


class WorkflowExecutor:
    """Executor that starts rollouts as far as the capacity allows, stores their samples and returns batches. Thread-safe.

    `queue_size` is the room of the queue, so that no more rollouts run than it can take; `start` runs a job, by default in a
    thread. A run that resumes from later weights must first pass their version to the manager (`on_version_recovered`).
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
        start: Callable[[Job], object] = run_in_thread,
    ) -> None:
        self.engine, self.manager, self.config = inference_engine, staleness_manager, config
        self.strategy, self.recomputer, self.modifier = strategy, recomputer, modifier
        self.queue, self.cache, self.queue_size = output_queue, result_cache, queue_size
        self.logger, self.start = logger, start
        self._changed = threading.Condition()  # guards all fields below
        self._purged = -1  # the version of the last purge; 0 is a version
        self._taking = threading.RLock()  # for threads that take samples out; those that put them in never acquire it
        self._tasks: deque[Task] = deque()
        self._parked: list[Sample] = []  # arrived while the weights were being changed
        self._paused = self._updating = self._closed = False
        self._failures = 0  # consecutive rollouts that raised
        self._error: BaseException | None = None

    def submit(self, data: Any, workflow: Workflow, should_accept: Callable[[Sample], bool] | None = None) -> None:
        """Queue `workflow(engine, data)`, to be run when there is capacity for it.

        It returns a sample, or None for no sample; `should_accept` may refuse a sample. If it raises, the rollout is rejected
        and a warning is logged. Raises: RolloutError after `close`, and for the errors that `wait` would raise.
        """
        with self._changed:
            self._raise_error()
            self._tasks.append(Task(data, workflow, should_accept))
        self._dispatch()
        with self._changed:
            self._raise_error()

    def wait(self, count: int, timeout: float | None = None, *, key: Key | None = None) -> list[Sample]:
        """Return the next `count` samples in order of arrival, without those that are too old; shuffled if a key is given.

        Their proximal log-probs are those of `algorithms.staleness.proximal_version` at the engine's version.
        Raises: ChoiceError for less than 1, or more than there can ever be: (staleness + 1) batches; TimeoutError when the
        seconds are over, and all samples stay; RolloutError when it is closed, when as many consecutive rollouts raised as may
        run at once, and for errors of strategies, modifiers and engines.
        """
        most = (self.manager.rules.staleness + 1) * self.manager.rules.batch
        if not 1 <= count <= most:
            wanted, remedy = f"1 to {most}, (staleness + 1) batches", "a larger batch could never fill"
            raise ChoiceError(message("wait: count", got=count, wanted=wanted, remedy=remedy))
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                self._raise_error()
                seen = self.manager.schedule
            try:
                batch = self._take(count, _left(end))
            except Exception as error:
                raise _stopped(error) from error
            self._dispatch()
            if batch:
                return batch if key is None else [batch[place] for place in permutation(key, len(batch)).tolist()]
            with self._changed:
                self._changed.wait_for(partial(self._has_news, seen), min(LOOK, _left(end)))
                self._raise_error()
            if _left(end) <= 0:
                raise TimeoutError(f"wait: no {count} samples in {timeout} s; {self.account()}")

    @contextmanager
    def updating(self, under_way: Iterable[Sample] = ()) -> Iterator[None]:
        """Change the weights in this context: proximal log-probs are recomputed before, and too old samples left out after.

        Samples that arrive meanwhile are recomputed too, as long as the weights are the old ones, and are held back until they
        are the new ones; no rollout starts and no batch is taken. `under_way` are samples that the engine goes on generating.
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
                self._leave_out(self.engine.get_version())
                self._dispatch()

    def get_capacity(self) -> int:
        """Return how many rollouts may start now: the manager's number, limited by concurrency and room in the queue."""
        rules, now = self.manager.rules, self.manager.schedule
        most = min(rules.concurrency, self.queue_size - now.queued)
        return min(self.manager.get_capacity(self.engine.get_version()), most - now.running)

    def account(self) -> Account:
        """Return the number of samples in each place, at one moment."""
        now = self.manager.schedule
        return Account(
            submitted=now.submitted,
            running=now.running,
            accepted=now.accepted,
            rejected=now.rejected,
            consumed=now.consumed,
            filtered=now.filtered,
            queued=now.queued,
            cached=now.cached,
        )

    def pause(self) -> None:
        """Start no more rollouts until `resume`; running ones go on."""
        with self._changed:
            self._paused = True

    def resume(self) -> None:
        """Start rollouts again."""
        with self._changed:
            self._paused = False
        self._dispatch()

    def close(self) -> None:
        """Drop the tasks that have not started and wake all waiting threads; running rollouts go on to their end."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()

    # --- starting rollouts ---

    def _dispatch(self) -> None:
        """Start as many tasks as the capacity allows. If the counts change while it is computed, it is computed again."""
        try:
            while True:
                with self._changed:
                    before, wanted = self.manager.schedule, self._open() and len(self._tasks) > 0
                room = self.get_capacity() if wanted else 0
                if room < 1:
                    return
                with self._changed:
                    if not self._open() or self.manager.schedule is not before:
                        continue
                    tasks = [self._tasks.popleft() for _ in range(min(room, len(self._tasks)))]
                    for _ in tasks:
                        self.manager.on_rollout_submitted()
                for task in tasks:
                    self._begin(task)
        except Exception as error:
            self._stop(error)

    def _begin(self, task: Task) -> None:
        try:
            self.start(partial(self._run, task))
        except Exception as error:
            self._reject()
            self._stop(error)

    def _open(self) -> bool:
        return not (self._paused or self._updating or self._closed)

    # --- one rollout ---

    def _run(self, task: Task) -> None:
        try:
            sample = task.run(self.engine)
        except BaseException as error:
            self._reject(error)
        else:
            if sample is None:
                self._reject()
            else:
                self._admit(sample)
        self._dispatch()

    def _admit(self, sample: Sample) -> None:
        """Accept or reject the sample of a rollout."""
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
            if not stale and self._put(sample):
                return
        self._reject()
        if not stale:
            self.logger.warning("a sample is rejected: somebody else filled the output queue")

    def _put(self, sample: Sample) -> bool:
        """Accept a sample; return False if the queue has no room. The caller must hold the lock."""
        try:
            self.queue.put_nowait(sample)
        except Full:
            return False
        self.manager.on_rollout_accepted()
        self._changed.notify_all()
        return True

    def _reject(self, error: BaseException | None = None) -> None:
        """Count a rollout without a sample; too many consecutive ones that raised stop the rollouts."""
        with self._changed:
            self.manager.on_rollout_rejected()
            self._failures = self._failures + 1 if error else 0
            if error and self._failures >= self.manager.rules.concurrency:
                self._error = self._error or error
            self._changed.notify_all()
        if error:
            self.logger.warning(f"a rollout is rejected: {error!r}")

    def _stop(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    # --- from the queue to a batch ---

    def _take(self, count: int, seconds: float) -> list[Sample]:
        """Return a batch if there is one; an empty list while another thread takes samples or changes the weights."""
        if not self._taking.acquire(timeout=min(seconds, LOOK)):
            return []
        try:
            self._leave_out(self.engine.get_version(), fetch=True)
            batch = self.cache.take_first_n(count) if self.cache.size() >= count else []
            self.manager.count(cached=-len(batch), consumed=len(batch))
            if self.recomputer is None:
                return batch
            self.recomputer.recompute_samples(batch)  # those of the version before; no later call will see them
            return [with_version(sample) for sample in batch]
        finally:
            self._taking.release()

    def _leave_out(self, version: int, *, fetch: bool = False) -> None:
        """Remove samples that are too old from queue and cache; with `fetch`, move the rest of the queue to the cache."""
        told = partial(self._filtered, version, "queued")
        self._purged = self.strategy.purge_stale_samples_from_queue(
            self.queue, version, self._purged, self.config, told
        )
        while fetch:
            try:
                self.cache.add(self.queue.get_nowait())
            except Empty:
                break
            with self._changed:  # the thread that put it in has counted it by then
                self.manager.count(queued=-1, cached=1)
        self._filtered(version, "cached", self.strategy.filter_stale_from_cache(self.cache, version, self.config))

    def _filtered(self, version: int, place: str, count: int) -> None:
        """Count samples that were accepted and are left out, and report them to the modifier, once."""
        if count > 0:
            with self._changed:
                self.manager.count(**{place: -count, "filtered": count})
            if self.modifier is not None:
                self.modifier.on_samples_filtered(count, version)

    def _recompute(self, under_way: Iterable[Sample]) -> None:
        """Set proximal log-probs of all samples here, and of those that arrive meanwhile."""
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

    # --- communication between threads ---

    def _has_news(self, seen: Schedule) -> bool:
        return self.manager.schedule is not seen or self._closed or self._error is not None

    def _raise_error(self) -> None:
        """Raise the error that stopped the rollouts, once, whichever thread it happened in."""
        if self._closed:
            raise RolloutError(message("executor", got="closed", wanted="open", remedy="make another one"))
        if self._error is not None:
            error, self._error, self._failures = self._error, None, 0
            raise _stopped(error) from error


def _stopped(error: BaseException) -> RolloutError:
    return RolloutError(f"rollouts stopped: {error!r}")


def _left(end: float | None) -> float:
    """Return the seconds that remain; 1e9 if there is no end."""
    return 1e9 if end is None else max(0.0, end - time.monotonic())

"""A simulated trainer and engine around the executor of segment-wise PPO: rollouts run when a move selects them.

A rollout in progress is a dict; some end as a dict, others as a TensorDict. Weights are a version number only.
"""

from collections.abc import Callable, Iterator
from typing import Any

from attrs import Factory, define, frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from purestep.properties.framework.compare import same
from purestep.runtime.effects import segment_wise
from purestep.runtime.effects.segment_wise.samples import PROXIMAL

from .segment_wise_samples import columns, number_of, queued, score

PROMPT = 2  # tokens
Job = Callable[[], None]


@frozen
class SegmentWise:
    """The subject of the laws: functions that make the parts of the layer."""

    manager: Callable[[int, int, int], segment_wise.StalenessManager]
    modifier: Callable[[], segment_wise.FilteredSamplesCapacityModifier]
    strategy: Callable[[segment_wise.InferenceEngineConfig], segment_wise.StalenessControlStrategy]
    recomputer: Callable[[Any, Any], segment_wise.ProximalRecomputer]
    executor: Callable[..., segment_wise.WorkflowExecutor]
    configured: Callable[[list[str]], tuple[segment_wise.BaseExperimentConfig, str]]
    loss: Callable[[segment_wise.PPOActorConfig], Any]


def own_segment_wise() -> SegmentWise:
    """Return the library's own functions."""
    return SegmentWise(
        segment_wise.StalenessManager,
        segment_wise.FilteredSamplesCapacityModifier,
        segment_wise.SegmentWisePPOStrategy,
        segment_wise.ProximalRecomputer,
        segment_wise.WorkflowExecutor,
        segment_wise.load_expr_config,
        segment_wise.create_actor_loss,
    )


@frozen
class Script:
    """Bounds, the initial version, and moves, each a number that selects an action and its target."""

    concurrency: int
    batch: int
    staleness: int  # of what is begun
    bound: int  # of samples that were recomputed
    room: int  # of the queue
    version: int
    moves: tuple[int, ...]


@st.composite
def _scripts(draw: DrawFn, least: int, most: int) -> Script:
    return Script(
        concurrency=draw(st.sampled_from((5, 3, 2, 1))),
        batch=draw(st.sampled_from((1, 2, 3))),
        staleness=draw(st.sampled_from((2, 1, 0, 3))),
        bound=draw(st.sampled_from((1, 0, 3))),
        room=draw(st.sampled_from((2, 4, 64))),
        version=draw(st.sampled_from((0, 0, 0, 2))),
        moves=tuple(draw(st.binary(min_size=least, max_size=most))),
    )


def scripts(*, least: int = 60, most: int = 90) -> SearchStrategy[Script]:
    """Draw few samples and many moves."""
    return _scripts(least, most)


@define
class Engine:
    """An engine whose weights are a version number; `heard` is called whenever scores are requested."""

    version: int
    heard: Callable[[], None] = lambda: None

    def get_version(self) -> int:
        """The version."""
        return self.version

    def recompute_output_logprobs_sync(self, *, input_ids: list[int], start_index: int) -> list[float]:
        """The scores from `start_index` on."""
        self.heard()
        return [score(place, self.version) for place in range(start_index, len(input_ids))]


@define
class Log:
    """A logger that records warnings."""

    warnings: list[str] = Factory(list)

    def warning(self, text: str) -> None:
        """Record a warning."""
        self.warnings.append(text)


@define
class World:
    """The executor, and a record of each rollout's state."""

    script: Script
    engine: Engine
    log: Log
    modifier: segment_wise.FilteredSamplesCapacityModifier
    executor: segment_wise.WorkflowExecutor
    jobs: dict[int, Job] = Factory(dict)  # under way, in the order in which they were begun
    flights: dict[int, dict[str, Any]] = Factory(dict)  # what they have so far
    ends: dict[int, Any] = Factory(dict)  # what they are to end with
    begun: list[int] = Factory(list)
    accepted: list[int] = Factory(list)
    taken: list[int] = Factory(list)
    batches: list[tuple[int, list[Any]]] = Factory(list)  # (the version, the samples)
    submitted: int = 0

    def start(self, job: Job) -> None:
        """Begin a rollout: rollouts are begun in the order in which they were submitted."""
        number = len(self.begun)
        self.begun.append(number)
        self.jobs[number] = job
        prompt = [number] * PROMPT
        self.flights[number] = {"input_ids": prompt, "output_version": [], PROXIMAL: []}
        self.speak(number)

    def workflow(self, engine: Any, number: int) -> Any:
        """Return the result that a move has set for a rollout."""
        return self.ends.pop(number)

    def submit(self) -> None:
        """Submit one more rollout."""
        self.submitted += 1
        self.executor.submit(self.submitted - 1, self.workflow)

    def speak(self, number: int) -> None:
        """Add one token to a rollout, sampled with the current weights."""
        flight = self.flights[number]
        place = len(flight["input_ids"])
        flight["input_ids"].append(7)
        flight["output_version"].append(self.engine.version)
        flight[PROXIMAL].append(score(place, self.engine.version))

    def finish(self, number: int, *, wanted: bool = True) -> bool:
        """End a rollout; return whether its sample was accepted."""
        flight, job = self.flights.pop(number), self.jobs.pop(number)
        self.ends[number] = (flight if number % 2 else columns(flight)) if wanted else None
        before = self.executor.account().accepted
        job()
        kept = self.executor.account().accepted > before
        self.accepted.extend([number] * kept)
        return kept

    def take(self) -> list[int]:
        """Return a batch, or nothing if there is none."""
        try:
            batch = self.executor.wait(self.script.batch, 0.0)
        except TimeoutError:
            return []
        self.batches.append((self.engine.version, batch))
        numbers = [number_of(sample) for sample in batch]
        self.taken.extend(numbers)
        return numbers

    def update(self, meanwhile: bool = False) -> None:
        """Update the weights; with `meanwhile` the first rollout ends while proximal log-probs are recomputed."""
        arrived = list[int]()

        def arrive() -> None:
            self.engine.heard = lambda: None
            for number in list(self.flights)[:1]:
                arrived.append(number)
                self.finish(number)

        self.engine.heard = arrive if meanwhile else lambda: None
        with self.executor.updating(one for one in list(self.flights.values())):
            self.engine.heard = lambda: None
            self.engine.version += 1
        self.accepted.extend(one for one in arrived if one in self.waiting())

    def waiting(self) -> list[int]:
        """The rollouts whose samples are in the cache and in the queue, in this order."""
        return [number_of(sample) for sample in (*self.executor.cache.get_all(), *queued(self.executor.queue))]


def world(subject: SegmentWise, script: Script) -> World:
    """A world before the first move."""
    config = segment_wise.InferenceEngineConfig(
        max_concurrent_rollouts=script.concurrency,
        consumer_batch_size=script.batch,
        max_head_offpolicyness=script.bound,
    )
    engine, log, modifier = Engine(script.version), Log(), subject.modifier()
    manager = subject.manager(script.concurrency, script.batch, script.staleness)
    manager.on_version_recovered(script.version)
    segment_wise.register_capacity_modifiers(manager, modifier)
    here: list[World] = []
    executor = subject.executor(
        engine,
        manager,
        config,
        strategy=subject.strategy(config),
        recomputer=subject.recomputer(engine, log),
        modifier=modifier,
        output_queue=segment_wise.LocalRolloutQueue(script.room),
        result_cache=segment_wise.LocalRolloutCache(),
        queue_size=script.room,
        logger=log,
        start=lambda job: here[0].start(job),
    )
    here.append(World(script, engine, log, modifier, executor))
    return here[0]


def play(here: World, *, learns: bool = False) -> Iterator[str]:
    """Make the moves of the script, and yield the kind of each; if it `learns`, weights are updated only after a batch."""
    for move in here.script.moves:
        verb, pick = move % 16, move // 16
        running = list(here.flights)
        if verb < 3 or not running:
            here.submit()
            yield "submit"
        elif verb < 6:
            here.speak(running[pick % len(running)])
            yield "speak"
        elif verb < 11:
            number = running[pick % len(running)]
            if pick % 3 == 0:
                here.speak(number)
            here.finish(number, wanted=verb > 6)
            yield "finish" if verb > 6 else "reject"
        elif verb < 13 if not learns else len(here.batches) <= here.engine.version - here.script.version:
            yield "take" if here.take() else "look"
        else:
            here.update(meanwhile=pick % 2 == 0)
            yield "update"


def fair(here: World) -> bool:
    """Finish and submit rollouts repeatedly; return whether that results in a batch."""
    for _ in range(10):
        for _ in range(max(0, len(here.begun) + 20 - here.submitted)):
            here.submit()
        for _ in range(40):
            for number in list(here.flights)[:1]:
                here.finish(number)
        if here.take():
            return True
    return False


def balanced(here: World) -> segment_wise.Account:
    """Return the account, after it was checked against the recorded history."""
    now = here.executor.account()
    same("submitted", now.submitted, now.running + now.accepted + now.rejected)
    same("accepted", now.accepted, now.consumed + now.filtered + now.queued + now.cached)
    before = here.script.version * here.script.batch
    same("running", now.running, len(here.flights))
    same("begun", now.submitted, before + len(here.begun))
    same("handed out", now.consumed, before + len(here.taken))
    same("in the queue", now.queued, here.executor.queue.qsize())
    same("in the cache", now.cached, here.executor.cache.size())
    places = [*here.flights, *here.waiting(), *here.taken]
    same("each in one place", len(set(places)), len(places))
    same("left out", now.rejected + now.filtered, len(here.begun) - len(places))
    same("paid back", here.modifier.get_filtered_count(), now.filtered)
    return now

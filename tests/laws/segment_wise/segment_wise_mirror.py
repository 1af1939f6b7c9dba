"""The executor of segment-wise PPO beside the pure scheduler: with the same events, both must begin the same rollouts."""

from collections.abc import Iterator

from attrs import evolve

from purestep.core.machine import Event, Failed, Started
from purestep.properties.framework.compare import same
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import PUBLISH, Rules, Schedule

from .segment_wise_world import Script, SegmentWise, world

ENOUGH = 400  # rollouts submitted ahead: the scheduler ends when it has nothing to begin


class Mirror:
    """Executor and scheduler, and the dispatched samples, which have one seat each; their group is their number."""

    def __init__(self, subject: SegmentWise, script: Script) -> None:
        # The scheduler knows nothing of a queue of its own: let it bound neither.
        self.here = world(subject, evolve(script, room=ENOUGH))
        rules = Rules(
            batch=script.batch,
            concurrency=script.concurrency,
            staleness=script.staleness,
            updates=script.version + ENOUGH,
            retries=0,
        )
        slots = script.concurrency
        self.state: Schedule = begin_schedule(rules, prompts=ENOUGH, workers=1, slots=slots, version=script.version)
        self.machine = scheduler(rules)
        self.offset = self.state.prompts
        self.dispatched: list[int] = []
        self.trains = 0
        for _ in range(ENOUGH):
            self.here.submit()
        self.tell(Started())

    def tell(self, event: Event) -> None:
        """Send an event to the scheduler; when it trains, the executor must return the same batch."""
        self.state, said = self.machine.step(self.state, event)
        self.dispatched.extend(one.prompt - self.offset for one in said if isinstance(one, say.Dispatch))
        for one in said:
            if isinstance(one, say.Train):
                self.trains += 1
                same("the batch", self.here.take(), [group for group, _, _ in one.samples])
                self.tell(say.Consumed(one.version))
            elif isinstance(one, say.Abort):
                self.here.finish(one.group, wanted=False)  # it takes too long: the scheduler rejects it

    def moves(self) -> Iterator[str]:
        """Make the moves of the script in both, and yield the kind of each."""
        for move in self.here.script.moves:
            running, pick, trains = list(self.here.flights), move // 16, self.trains
            if move % 16 < 3 and running:
                self.here.speak(running[pick % len(running)])
                yield "speak"
            elif move % 16 < 11 and running:
                self._end(running[pick % len(running)], speaks=move % 16 > 8, wanted=move % 16 > 3)
                yield "batch" if self.trains > trains else "end"
            elif self.state.phase == PUBLISH:
                self._publish()
                yield "batch" if self.trains > trains else "update"

    def _end(self, number: int, *, speaks: bool, wanted: bool) -> None:
        if speaks:
            self.here.speak(number)
        if self.here.finish(number, wanted=wanted):
            version = self.state.version  # the order in which samples came is that of their versions, for both
            self.tell(say.Finished(number, 0, 0, 1, version, version))
        else:
            self.tell(Failed(say.Dispatch(number, 0, 0, number + self.offset, 0, self.state.version), "no"))

    def _publish(self) -> None:
        before = self.here.waiting()
        self.here.update()
        there = set(self.here.waiting())
        for number in before:
            if number not in there:
                self.tell(say.Filtered(number))
        self.tell(say.Published(self.state.version + 1))

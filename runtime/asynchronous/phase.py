"""One phase of a run: generators and a trainer at work, from the newest checkpoint on, until all updates are made."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attrs import asdict, define, evolve, field, frozen

from ...algorithms.language import LanguageState
from ...core.errors import NonFiniteError
from ...core.machine import Event
from ..drive import Effects, Entry, Inbox, Session, Told, drive
from ..effects import folder
from ..effects.clock import seconds
from ..effects.lines import Lines, lines
from ..effects.tensor_file import write_tensors
from ..effects.weights import Publisher, publishing
from ..effects.workers import working
from ..effects.workers_engines import Body, Engine, Hand, in_process, in_thread
from ..effects.workers_engines import Inbox as Box
from ..language.parts import Parts
from ..language.world import DIVERGED, Notice
from ..recipes.asynchronous import Asynchronous
from ..recipes.zorplex import Zorplex
from ..replay import to_lines
from ..scheduler import Schedule, begin, scheduler
from ..scheduling import messages as say
from ..scheduling.state import RECOMPUTE, Rules, with_workers
from ..values import line
from . import keeping
from .crew import Hands, crew
from .generating import Spec, generate, refusing
from .keeping import EVENTS, LEDGER, TIMELINE, TOTALS, Kept, Standing, live
from .learning import Anchored, Learning, learning_of, segment_wise
from .metering import Meter, metering
from .prompts import remembered
from .samples import Sample, stacked

ENGINES = {"process": in_process, "thread": in_thread}


@frozen(kw_only=True)
class Setting:
    """What a phase is about. `arguments` are its own: in turns, staleness is 0."""

    folder: Path
    tokenizer: Path | tuple[()]
    arguments: Zorplex
    parts: Parts
    facts: Mapping[str, Any]
    metadata: Mapping[str, Any]
    notice: Notice


def rules_of(arguments: Zorplex) -> Rules:
    """What the scheduler of a phase keeps to.

    >>> rules_of(Zorplex()).batch, rules_of(Zorplex()).group
    (128, 8)
    """
    tasks, given = arguments.tasks, arguments.asynchronous
    return Rules(
        batch=tasks.groups * tasks.samples,
        concurrency=max(1, arguments.generators()) * given.generator_slots,
        staleness=given.staleness,
        updates=tasks.steps,
        group=tasks.samples,
        stale=given.stale,
        proximal=RECOMPUTE if segment_wise(arguments) else "keep",
    )


def placed(given: Asynchronous) -> Engine:
    """The engine of a phase's generators, each on its device."""
    start, devices = ENGINES[given.generator_engine], given.named_devices()

    def engine(number: int, body: Body, arguments: tuple[Any, ...], inbox: Box) -> Hand:
        (spec,) = arguments
        return start(number, body, (evolve(spec, device=devices[number % len(devices)]),), inbox)

    return engine


@define
class Phase:
    """A phase under way: the trainer's handlers, and what the driver's thread keeps."""

    setting: Setting
    learning: Learning
    publisher: Publisher
    meter: Meter
    ledger: Lines
    timeline: Lines
    kept: Kept
    samples: dict[say.Name, Anchored]
    states: dict[int, tuple[LanguageState, dict[int, Any]]] = field(factory=dict)
    lock: threading.Lock = field(factory=threading.Lock)
    begun: float = field(factory=seconds)

    def now(self) -> float:
        """Seconds since the phase began, over all sessions."""
        return self.kept.seconds + seconds() - self.begun

    def span(self, actor: str, span: tuple[Any, ...]) -> None:
        """Notes what somebody did, from and to when by the machine's clock."""
        kind, start, end, version = span
        shift = self.kept.seconds - self.begun
        row = {"actor": actor, "kind": kind, "begin": round(start + shift, 4), "end": round(end + shift, 4)}
        with self.lock:
            self.timeline.write(line({**row, "version": version}) + "\n")

    def did(self, kind: str, start: float, version: int) -> float:
        """Notes what the trainer did since `start`; gives its seconds."""
        end = seconds()
        self.span("trainer", (kind, start, end, version))
        return end - start

    def arrived(self, name: say.Name, sample: Sample) -> None:
        """A whole sample is there."""
        self.samples[name] = Anchored(sample)
        self.meter.arrived(sample)

    def failed(self, calls: int) -> None:
        """So many more calls of tools have failed."""
        self.kept = evolve(self.kept, tool_failures=self.kept.tool_failures + calls)

    def lost(self, worker: int, why: str) -> None:
        """A generator is gone."""
        self.kept = evolve(self.kept, lost=self.kept.lost + 1)
        self.setting.notice(f"generator {worker} is lost: {why}; another one takes its place")

    def recompute(self, command: say.Recompute) -> Event:
        """Sets proximal log-probs of samples that are there; of others when they are learned from."""
        start = seconds()
        there = {name: self.samples[name] for name in command.samples if name in self.samples}
        self.samples.update(self.learning.anchored(there))
        self.meter.anchored(self.did("recompute", start, command.version))
        return say.Recomputed(command.version)

    def train(self, command: say.Train) -> Event:
        """Makes an update, and writes down what it learned from."""
        start, names = seconds(), command.samples
        if segment_wise(self.setting.arguments):
            self.samples.update(self.learning.anchored({name: self.samples[name] for name in names}))
            self.meter.anchored(self.did("recompute", start, command.version))
            start = seconds()
        batch = [self.samples[name].sample for name in names]
        try:
            learned = self.learning.update(command.version, batch)
        except NonFiniteError:
            write_tensors(self.setting.folder / DIVERGED, stacked(batch))
            raise
        if learned.note:
            self.setting.notice(f"update {command.version + 1}: {learned.note}")
        spent = self.did("train", start, command.version)
        written = [
            [*name, int(one.row.id[0]), one.head, one.tail, one.tokens] for name, one in zip(names, batch, strict=True)
        ]
        self.ledger.write(line({"version": command.version, "samples": written}) + "\n")
        self.meter.trained(command.version, batch, learned.figures, spent, self.now())
        return say.Consumed(command.version)

    def publish(self, command: say.Publish) -> Event:
        """Gives generators the weights there are now."""
        start = seconds()
        self.publisher.publish(command.version, self.learning.whole())
        self.states[command.version] = self.learning.state, dict(self.learning.past)
        self.did("publish", start, command.version)
        return say.Published(command.version)

    def save(self, schedule: Schedule, events: int) -> None:
        """Writes a checkpoint of the scheduler's version, with what it says by now."""
        start = seconds()
        state, past = self.states[schedule.version]
        self.states = {version: held for version, held in self.states.items() if version > schedule.version}
        for name in self.samples.keys() - set(live(schedule, self.samples)):
            del self.samples[name]
        with self.lock:
            spans = self.timeline.sync()
        kept = evolve(self.kept, schedule=schedule, events=events, spans=spans, seconds=self.now())
        standing = Standing(kept=kept, learner=state, past=past, samples=dict(self.samples))
        keeping.save(self.setting.folder, standing, facts=self.setting.facts, metadata=self.setting.metadata)
        self.did("save", start, schedule.version)


def logged(effects: Effects, log: Lines) -> Effects:
    """The same effects; what the machine is told is written down first."""

    def open_(inbox: Inbox) -> Session:
        session = effects.open(inbox)

        def follow() -> Entry:
            entry = session.follow()
            log.write(to_lines([evolve(entry, cause=None) if isinstance(entry, Told) else entry]))
            return entry

        return evolve(session, follow=follow)

    return Effects(open_)


def run_phase(setting: Setting, begun: LanguageState) -> Schedule:
    """Runs a phase to its end or to Ctrl-C; gives the last state of its scheduler.

    `begun` is the learner's state at version 0. Raises: CheckpointError, WorkersError, NonFiniteError.
    """
    standing, given = _standing(setting, begun), setting.arguments.asynchronous
    told: deque[Event] = deque()
    with _at_work(setting, standing, told) as (phase, effects, log):
        rules, groups = rules_of(setting.arguments), setting.arguments.tasks.groups
        first = with_workers(standing.kept.schedule, setting.arguments.generators(), given.generator_slots)
        saved, state = (first.version if standing.kept.sessions else -1), first
        for now in drive(scheduler(rules), first, effects):
            state = now
            phase.meter.wasted = state.tokens_wasted
            if state.version > saved:
                phase.save(state, log.sync())
                saved = state.version
            if state.fresh + len(state.again) < groups and not state.stopped:
                told.append(say.Submitted(groups))
        if state.version >= rules.updates:
            folder.write_json(setting.folder / TOTALS, totals(setting.arguments, state, phase))
    return state


def _standing(setting: Setting, begun: LanguageState) -> Standing:
    """Where the phase stands."""
    where = keeping.newest(setting.folder)
    if not isinstance(where, tuple):
        return keeping.load(where, setting.arguments, begun)
    given = setting.arguments.asynchronous
    rules, number = rules_of(setting.arguments), setting.arguments.generators()
    schedule = begin(rules, prompts=setting.arguments.tasks.groups, workers=number, slots=given.generator_slots)
    return Standing(kept=Kept(schedule=schedule), learner=begun, past={}, samples={})


@contextmanager
def _at_work(setting: Setting, standing: Standing, told: deque[Event]) -> Iterator[tuple[Phase, Effects, Lines]]:
    """Generators at work, and all that a phase writes to."""
    arguments, given, kept = setting.arguments, setting.arguments.asynchronous, standing.kept
    version, home, number = kept.schedule.version, setting.folder, arguments.generators()
    learning = learning_of(arguments, setting.parts, version, standing.learner, dict(standing.past))
    with ExitStack() as stack:
        publisher = stack.enter_context(publishing(learning.whole()))
        publisher.publish(version, learning.whole())
        log = stack.enter_context(lines(home / EVENTS, kept.events))
        session = {"session": kept.sessions + 1, "version": version, "generators": number}
        log.write(line({**session, "slots": given.generator_slots}) + "\n")
        phase = Phase(
            setting=setting,
            learning=learning,
            publisher=publisher,
            meter=stack.enter_context(metering(home, arguments, version)),
            ledger=stack.enter_context(lines(home / LEDGER, version)),
            timeline=stack.enter_context(lines(home / TIMELINE, kept.spans)),
            kept=evolve(kept, sessions=kept.sessions + 1),
            samples=dict(standing.samples),
            states={version: (standing.learner, dict(standing.past))},
        )
        spec = Spec(arguments=arguments, tokenizer=setting.tokenizer, weights=publisher.path, device="cpu")
        workers = stack.enter_context(
            working(
                generate,
                (spec,),
                size=number,
                patience=given.patience,
                engine=placed(given),
                refuse=refusing(arguments, setting.parts),
            )
        )
        hands = Hands(
            workers=workers,
            count=number,
            slots=given.generator_slots,
            request=remembered(arguments, learning.key),
            trainer={say.Recompute: phase.recompute, say.Train: phase.train, say.Publish: phase.publish},
            arrived=phase.arrived,
            span=phase.span,
            failures=phase.failed,
            lost=phase.lost,
            notice=setting.notice,
        )
        yield phase, logged(crew(hands, told), log), log


def totals(arguments: Zorplex, state: Schedule, phase: Phase) -> dict[str, Any]:
    """How a phase ended."""
    names = ("version", "submitted", "accepted", "rejected", "filtered", "consumed", "queued", "cached", "running")
    names = (*names, "waiting", "ignored", "tokens_used", "tokens_wasted")
    kept = phase.kept
    return {
        **{name: getattr(state, name) for name in names},
        "seconds": phase.now(),
        "sessions": kept.sessions,
        "lost_generators": kept.lost,
        "tool_failures": kept.tool_failures,
        "generators": arguments.generators(),
        "batch": rules_of(arguments).batch,
        "group": arguments.tasks.samples,
        "staleness": arguments.asynchronous.staleness,
        "settings": asdict(arguments.asynchronous),
    }

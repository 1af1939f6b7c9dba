"""A running phase: handlers of the trainer's commands, and the state and logs written meanwhile."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from ...algorithms.language.learner import LanguageState
from ...core.errors import NonFiniteError
from ...core.language.types import Sample
from ...core.machine import Event
from ..effects.checkpoint.tensor_file import write_tensors
from ..effects.clock import seconds
from ..effects.json_lines import Lines
from ..effects.weight_sync import WeightPublisher
from ..machine.json_codec import json_line
from ..runs.logging import DIVERGED
from ..runs.recipe import Notice
from ..text.components import TextComponents
from ..text.config import TextConfig, held_out_tasks
from ..text.conversations import Keep, TrainedAttempt
from ..text.equal_rewards import EqualRewards
from ..text.failures import Failures, failures_of
from ..text.learner_backend import SINGLE_PROCESS, LearnerBackend
from ..text.report import on_the_way
from ..text.training_loop import Publish, evaluation_due
from . import checkpoint
from .checkpoint import PhaseCheckpoint, PhaseState, live_samples
from .metrics import Meter
from .placement import Placement
from .preparation import Ready, Starts, kept_starts, starts_from
from .samples import stacked, summary_of_sample
from .scheduler import events as say
from .scheduler.state import Schedule
from .trainer import SampleWithProximal, VersionedLearner, segment_wise


@frozen(kw_only=True)
class PhaseConfig:
    """Settings of a phase. `arguments` are its own: in a sync phase, staleness is 0."""

    folder: Path
    tokenizer: Path | tuple[()]
    arguments: TextConfig
    parts: TextComponents
    facts: Mapping[str, Any]
    metadata: Mapping[str, Any]
    notice: Notice
    place: Placement  # of its generators
    backend: LearnerBackend = SINGLE_PROCESS


@define
class Phase:
    """A running phase: handlers of the trainer's commands, and the state held by the driver's thread."""

    setting: PhaseConfig
    learning: VersionedLearner
    publisher: WeightPublisher
    meter: Meter
    ledger: Lines
    timeline: Lines
    kept: PhaseCheckpoint
    samples: dict[say.Name, SampleWithProximal]
    publish_record: Publish
    starts: Starts  # of groups, where the task's episodes are prepared
    keep: Keep  # called with the attempts of each update
    states: dict[int, tuple[LanguageState, dict[int, Any]]] = field(factory=dict)
    lock: threading.Lock = field(factory=threading.Lock)
    begun: float = field(factory=seconds)
    known: bool = False  # whether states of starts were checked to have a JSON form
    equal: EqualRewards = field(
        default=Factory(
            lambda self: EqualRewards(self.setting.folder.parent, self.setting.arguments, self.setting.notice),
            takes_self=True,
        )
    )
    failures: Failures = field(
        default=Factory(lambda self: failures_of(self.setting.parts.task, self.setting.notice), takes_self=True)
    )

    def now(self) -> float:
        """Return the seconds since the phase began, over all sessions."""
        return self.kept.seconds + seconds() - self.begun

    def span(self, actor: str, span: tuple[Any, ...]) -> None:
        """Write a row of the timeline: an actor's work, its begin and end by the machine's clock."""
        kind, start, end, version = span
        shift = self.kept.seconds - self.begun
        row = {"actor": actor, "kind": kind, "begin": round(start + shift, 4), "end": round(end + shift, 4)}
        with self.lock:
            self.timeline.write(json_line({**row, "version": version}) + "\n")

    def did(self, kind: str, start: float, version: int) -> float:
        """Write the trainer's work since `start` to the timeline; return its seconds."""
        end = seconds()
        self.span("trainer", (kind, start, end, version))
        return end - start

    def arrived(self, name: say.Name, sample: Sample) -> None:
        """Store a finished sample."""
        self.samples[name] = SampleWithProximal(sample)
        self.meter.arrived(sample)

    def prepared(self, starts: Starts, ready: Ready) -> None:
        """Store new starts and publish the records of their preparation.

        Raises: StructureError for states without a JSON form.
        """
        preparation = self.setting.parts.task.preparation
        if not self.known and not isinstance(preparation, tuple):
            starts_from(kept_starts({0: ready.starts[0]}), preparation, str(self.setting.folder))
        self.starts, self.known = starts, True
        for one in ready.records:
            self.publish_record(one.number, one.rows)
        self.meter.prepared(ready)

    def failed(self, calls: int) -> None:
        """Count failed calls of tools."""
        self.kept = evolve(self.kept, tool_failures=self.kept.tool_failures + calls)

    def lost(self, worker: int, why: str) -> None:
        """Count a lost generator, and report it."""
        self.kept = evolve(self.kept, lost=self.kept.lost + 1)
        self.setting.notice(f"generator {worker} is lost: {why}; another one takes its place")

    def recompute(self, command: say.Recompute) -> Event:
        """Set proximal log-probs of the samples that are still there; others get theirs when they are trained on."""
        start = seconds()
        there = {name: self.samples[name] for name in command.samples if name in self.samples}
        self.samples.update(self.learning.with_proximal(there))
        self.meter.add_recompute_seconds(self.did("recompute", start, command.version))
        return say.Recomputed(command.version)

    def train(self, command: say.Train) -> Event:
        """Run an update, and write the samples that it trained on to the ledger."""
        start, names = seconds(), command.samples
        if segment_wise(self.setting.arguments):
            self.samples.update(self.learning.with_proximal({name: self.samples[name] for name in names}))
            self.meter.add_recompute_seconds(self.did("recompute", start, command.version))
            start = seconds()
        batch = [self.samples[name].sample for name in names]
        self.failures.add(f"update {command.version + 1}", [one.raised for one in batch if one.raised], len(batch))
        self.equal.add(f"update {command.version + 1}", [summary_of_sample(one) for one in batch])
        try:
            learned = self.learning.update(command.version, batch)
        except NonFiniteError:
            write_tensors(self.setting.folder / DIVERGED, stacked(batch))
            raise
        if learned.note and not self.equal.reported:
            self.setting.notice(f"update {command.version + 1}: {learned.note}")
        spent = self.did("train", start, command.version)
        written = [
            [*name, int(one.row.id[0]), one.head, one.tail, one.tokens] for name, one in zip(names, batch, strict=True)
        ]
        self.ledger.write(json_line({"version": command.version, "samples": written}) + "\n")
        self.keep(
            command.version + 1,
            [int(one.row.group[0]) for one in batch],
            lambda place: trained_sample(batch[place], learned.advantage[place]),
        )
        self.meter.trained(command.version, batch, {**learned.figures, **self._evaluated()}, spent, self.now())
        return say.Consumed(command.version)

    def _evaluated(self) -> dict[str, float]:
        """Return the metrics of an evaluation during training, if one is due for the current weights."""
        setting, version = self.setting, self.learning.version
        every = setting.arguments.episodes.eval_every_n_versions
        if not evaluation_due(every, before=version - 1, after=version):
            return {}
        start, held_out = seconds(), held_out_tasks(setting.arguments)
        line_, figures = on_the_way(setting.parts, self.learning.whole(), **held_out, version=version)
        setting.notice(f"version {version}: {line_}")
        self.did("evaluate", start, version)
        return figures

    def publish(self, command: say.Publish) -> Event:
        """Publish the current weights to the generators."""
        start = seconds()
        self.publisher.publish(command.version, self.learning.whole())
        with self.lock:
            before = {version: held for version, held in self.states.items() if version == command.version - 1}
            self.states = {**before, command.version: (self.learning.state, dict(self.learning.past))}
        self.did("publish", start, command.version)
        return say.Published(command.version)

    def save(self, schedule: Schedule, events: int) -> None:
        """Write a checkpoint of the scheduler's version, with the scheduler's current state."""
        start = seconds()
        with self.lock:
            state, past = self.states[schedule.version]
        for name in self.samples.keys() - set(live_samples(schedule, self.samples)):
            del self.samples[name]
        with self.lock:
            spans = self.timeline.sync()
        starts = kept_starts(self.starts.needed(schedule))
        kept = evolve(self.kept, schedule=schedule, events=events, spans=spans, seconds=self.now(), starts=starts)
        standing = PhaseState(kept=kept, learner=state, past=past, samples=dict(self.samples))
        about = {"facts": self.setting.facts, "metadata": self.setting.metadata}
        checkpoint.save(self.setting.folder, standing, **about, backend=self.setting.backend)
        self.did("save", start, schedule.version)


def trained_sample(sample: Sample, advantage: Any) -> TrainedAttempt:
    """Return a sample that was trained on, with the advantages [L] of its tokens."""
    return TrainedAttempt(sample.row, advantage, sample.mode, sample.parts, sample.raised)

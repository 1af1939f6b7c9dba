"""The trainer's side of a phase: weights by version, the handlers of its commands, and the state and logs written meanwhile."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import Factory, define, evolve, field, frozen

from ...algorithms.language.learner import LanguageState
from ...core import keys
from ...core.errors import NonFiniteError, StructureError, message
from ...core.keys import Key
from ...core.language.equal_rewards import AttemptSummary
from ...core.language.types import Sample, stacked
from ...core.machine import Event
from ...core.record import replace, take
from ...core.transcript.log_probs import with_proximal
from ...core.transcript.record import LENGTH
from ..effects.checkpoint.tensor_file import write_tensors
from ..effects.clock import seconds
from ..effects.json_lines import Lines
from ..effects.weight_sync import WeightPublisher
from ..machine.json_codec import json_line
from ..runs.logging import DIVERGED
from ..runs.recipe import Notice
from ..text.build_learner import SINGLE_PROCESS, LearnerBackend, Reader
from ..text.components import TextComponents
from ..text.config import TextConfig, held_out_tasks
from ..text.conversations import Keep, TrainedAttempt
from ..text.equal_rewards import EqualRewards
from ..text.evaluation import ACCURACY
from ..text.failures import Failures, failures_of
from ..text.report import on_the_way
from ..text.trainer import Trainer, TrainStepResult
from ..text.training_loop import UPDATE, Publish, evaluation_due
from . import checkpoint
from .checkpoint import PhaseCheckpoint, PhaseState, live_samples
from .metrics import Meter
from .placement import Placement
from .preparation import Ready, Starts, kept_starts, starts_from
from .scheduler import events as say
from .scheduler.state import Schedule


def segment_wise(arguments: TextConfig) -> bool:
    """Return whether each token's proximal policy is the one that follows the version that sampled it, by one update.

    >>> from ..text.config import TaskRun
    >>> segment_wise(TaskRun())
    False
    """
    given = arguments.asynchronous
    return given.loss == "decoupled" and given.proximal == "segment_wise"


def due_versions(sample: Sample, version: int) -> set[int]:
    """Return the token versions below `version`, so that an update of them exists, whose proximal log-probs are not set."""
    found: set[int] = set(sample.row.version[sample.row.is_action].tolist())
    return {one for one in found if 0 <= one < version} - sample.final


@define
class VersionedLearner:
    """The weights of a version and, where segment-wise proximal policies need them, of earlier ones."""

    arguments: TextConfig
    parts: TextComponents
    trainer: Trainer
    read: Reader
    key: Key
    version: int
    state: LanguageState
    past: dict[int, Any] = field(factory=dict)  # parameters by version, as far as samples may still need them

    def whole(self) -> dict[str, torch.Tensor]:
        """Return all parameters of the library's model, for generators and evaluation."""
        return self.parts.whole(self.state.params.policy)

    def with_proximal(self, samples: Mapping[Any, Sample]) -> dict[Any, Sample]:
        """Return samples with proximal log-probs under the weights of version + 1, for each token of a version already updated.

        log q_t = log pi_{v_t + 1}(token_t),   v_t < v

        Source: worlds E.2's invariant; Fu et al. 2025, arXiv:2505.24298, section 5, segment by segment.
        Raises: StructureError where weights of a version are not kept any more.
        """
        after = dict(samples)
        wanted = sorted({one for each in samples.values() for one in due_versions(each, self.version)})
        for made_by in wanted:
            names = [name for name, each in after.items() if made_by in due_versions(each, self.version)]
            rows = stacked([after[name] for name in names])
            read = self.read(replace(self.state, params=self._params(made_by + 1)), rows)
            rows = with_proximal(rows, read.log_prob, rows.version == made_by)
            for place, name in enumerate(names):
                each = after[name]
                after[name] = evolve(each, row=take(rows, [place]), final=each.final | {made_by})
        return after

    def _params(self, version: int) -> Any:
        if version == self.version:
            return self.state.params
        if version not in self.past:
            wanted, remedy = f"one of {sorted(self.past)}", "keep weights as long as samples may need them"
            raise StructureError(
                message("with_proximal: weights of version", got=version, wanted=wanted, remedy=remedy)
            )
        return replace(self.state.params, policy=self.past[version])

    def update(self, version: int, samples: Sequence[Sample]) -> TrainStepResult:
        """Run all optimizer steps that turn weights `version` into `version + 1`.

        A learner counts its optimizer steps; here its step is set to the version, so that "interpolated" compares equal units.
        Raises: StructureError for another version, NonFiniteError; then nothing has changed.
        """
        if version != self.version:
            remedy = "train each version once, in order"
            raise StructureError(message("update: version", got=version, wanted=self.version, remedy=remedy))
        step = torch.full_like(self.state.step, version)
        key = keys.fold_in(keys.fold_in(self.key, UPDATE), version)
        learned = self.trainer(replace(self.state, step=step), stacked(samples), key)
        if segment_wise(self.arguments):
            self.past[version] = self.state.params.policy
            oldest = version + 1 - self.arguments.asynchronous.staleness
            self.past = {one: params for one, params in self.past.items() if one >= oldest}
        self.state = replace(learned.state, step=step + 1)
        self.version = version + 1
        return learned


def learning_of(
    arguments: TextConfig,
    parts: TextComponents,
    version: int,
    state: LanguageState,
    past: dict[int, Any],
    backend: LearnerBackend = SINGLE_PROCESS,
) -> VersionedLearner:
    """Return the trainer of a run, with weights of a version. Raises: ChoiceError."""
    _, trainer = backend.learner(arguments, parts)
    return VersionedLearner(
        arguments=arguments,
        parts=parts,
        trainer=trainer,
        read=backend.reader(arguments, parts),
        key=keys.key(arguments.episodes.seed),
        version=version,
        state=state,
        past=past,
    )


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
    samples: dict[say.Name, Sample]
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
        self.samples[name] = sample
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
        batch = [self.samples[name] for name in names]
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


def summary_of_sample(sample: Sample) -> AttemptSummary:
    """Return the summary of a finished attempt, as `text.equal_rewards.summary_of` the attempt's own."""
    row, calls = sample.row, int(sample.row.calls[0])
    return AttemptSummary(
        group=int(row.group[0]),
        reward=sample.figures["reward"],
        solved=sample.figures.get(ACCURACY) == 1.0,
        cut_off=calls > 0 and int(row.finish_reason[0, calls - 1]) == LENGTH,
        error=sample.raised,
    )


def trained_sample(sample: Sample, advantage: Any) -> TrainedAttempt:
    """Return a sample that was trained on, with the advantages [L] of its tokens."""
    return TrainedAttempt(sample.row, advantage, sample.mode, sample.parts, sample.raised)

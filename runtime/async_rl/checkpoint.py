"""Files of an asynchronous training phase: checkpoints of all state that decides its future, and logs cut back to them.

PHASE/checkpoints/     the learner, samples that wait, the scheduler's state
PHASE/events.jsonl     the scheduler's events; each session begins with a row of its own
PHASE/ledger.jsonl     the samples that each update trained on
PHASE/timeline.jsonl   the work of the trainer and of each generator, with times
PHASE/metrics.jsonl    a row for each update
PHASE/conversations.jsonl  the attempts of each update, as they were trained on
PHASE/rollouts.jsonl   where episodes are prepared: the records that preparations publish
PHASE/totals.json      the final counters; evaluation.json: the evaluation of the final weights
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from attrs import evolve, frozen

from ...algorithms.language.learner import LanguageState
from ...core.errors import CheckpointError, message
from ...core.language.types import Parts, Sample, Transcript, stacked
from ...core.transcript.record import empty
from ...core.tree import tree_map
from ..effects.checkpoint.description import read_description
from ..effects.checkpoint.manifest import MANIFEST, DamagedError, damaged
from ..effects.checkpoint.single import check_finite, machine_of, newest_usable
from ..effects.layout import TOTALS as TOTALS
from ..machine.persistent_map import entries, is_sound
from ..runs.run import arguments_of, names_in, with_numbers_of
from ..text.build_learner import SINGLE_PROCESS, LearnerBackend
from ..text.config import TextConfig
from .preparation import KeptStart
from .scheduler.events import Name
from .scheduler.state import CLASSES, THERE, Schedule

T = TypeVar("T")
EVENTS, LEDGER, TIMELINE = "events.jsonl", "ledger.jsonl", "timeline.jsonl"
SUMMARY = ("figures", "mode", "head", "tail", "tokens", "raised", "parts")  # of a sample, besides its tensors
COUNTED = ("submitted", "waiting", "running", "accepted", "rejected", "consumed", "filtered", "queued", "cached")


@frozen(kw_only=True)
class PendingSample:
    """A sample that waits to be trained on, without its tensors."""

    TAG: ClassVar[str] = "waiting"
    name: Name
    figures: dict[str, float]
    mode: str
    head: int
    tail: int
    tokens: int
    done: tuple[int, ...]  # versions of its tokens whose proximal log-probs are set
    raised: str = ""  # the error that its environment raised, if any
    parts: Parts = ()  # of its reward, by name


@frozen(kw_only=True)
class PhaseCheckpoint:
    """State in a checkpoint besides tensors."""

    TAG: ClassVar[str] = "kept"
    schedule: Schedule
    waiting: tuple[PendingSample, ...] = ()
    past: tuple[int, ...] = ()  # versions whose weights are kept
    events: int = 0  # lines of the log
    spans: int = 0  # lines of the timeline
    sessions: int = 0  # begun
    seconds: float = 0.0  # over all sessions so far
    lost: int = 0  # generators lost
    tool_failures: int = 0
    starts: tuple[KeptStart, ...] = ()  # of groups, where the task's episodes are prepared


@frozen(kw_only=True)
class PhaseState:
    """Checkpointed state of a training phase."""

    kept: PhaseCheckpoint
    learner: LanguageState
    past: dict[int, Any]  # parameters
    samples: dict[Name, Sample]


def live_samples(schedule: Schedule, names: Iterable[Name]) -> tuple[Name, ...]:
    """Return the names of samples that the scheduler counts as finished and not yet trained on, sorted."""
    found = {
        (number, seat, one.attempt)
        for number, group in entries(schedule.groups)
        for seat, one in enumerate(group.seats)
        if one.status == THERE
    }
    return tuple(sorted(found.intersection(names)))


def save(
    phase: Path,
    standing: PhaseState,
    *,
    facts: Mapping[str, Any],
    metadata: Mapping[str, Any],
    backend: LearnerBackend = SINGLE_PROCESS,
) -> None:
    """Write a checkpoint of the scheduler's version. Raises: CheckpointError."""
    names = tuple(sorted(standing.samples))
    waiting = tuple(_pending(name, standing.samples[name]) for name in names)
    rows = stacked([standing.samples[name] for name in names]) if names else ()
    past = {str(version): standing.past[version] for version in sorted(standing.past)}
    kept = evolve(standing.kept, waiting=waiting, past=tuple(sorted(standing.past)))
    tree = {"learner": standing.learner, "rows": rows, "past": past}
    backend.save(phase, kept.schedule.version, tree, machine=kept, facts=facts, metadata=metadata)


def _pending(name: Name, sample: Sample) -> PendingSample:
    summary: dict[str, Any] = {one: getattr(sample, one) for one in SUMMARY}
    return PendingSample(name=name, done=tuple(sorted(sample.final)), **summary)


def use_newest_of_phase(
    phase: Path, use: Callable[[Path], T], backend: LearnerBackend = SINGLE_PROCESS
) -> T | tuple[()]:
    """Return the result of `use` on a phase's newest usable checkpoint; () where none was ever finished.

    A damaged one is named on standard error. Raises: CheckpointError, and errors of `use`.
    """
    if not phase.is_dir():
        return ()
    found = newest_usable(lambda report, without: backend.newest(phase, report=report, without=without), use)
    return () if found is None else found


def newest_of_phase(phase: Path, backend: LearnerBackend = SINGLE_PROCESS) -> Path | tuple[()]:
    """Return the folder of the newest good checkpoint; () where there is none. Raises: CheckpointError."""
    return use_newest_of_phase(phase, lambda where: where, backend)


def kept_in(where: Path) -> tuple[PhaseCheckpoint, Mapping[str, Any]]:
    """Return a checkpoint's state besides tensors, and the arguments it was written with. Raises: CheckpointError."""
    manifest = read_description(where).manifest
    kept = machine_of(where, manifest.machine, [*CLASSES, PhaseCheckpoint, KeptStart, PendingSample])
    if not isinstance(kept, PhaseCheckpoint):
        remedy = "name the folder of a phase, RUN/sync or RUN/async"
        raise CheckpointError(message(str(where), got="of another kind", wanted="a phase's", remedy=remedy))
    fault = _fault(kept, manifest.step)
    if fault:
        raise DamagedError(damaged(where / MANIFEST, f"with {fault}", f"a phase saved at version {manifest.step}"))
    return kept, manifest.metadata


def _fault(kept: PhaseCheckpoint, version: int) -> str:
    """Return the first impossible value for this version, such as a negative count, as text; "" if there is none."""
    now = kept.schedule
    counts = {"events": kept.events, "spans": kept.spans, "sessions": kept.sessions, "seconds": kept.seconds}
    counts |= {name: value for name in COUNTED if (value := getattr(now, name)) < 0} | {"groups": now.next_group}
    sums = (
        now.submitted == now.waiting + now.running + now.accepted + now.rejected,
        now.accepted == now.consumed + now.filtered + now.queued + now.cached,
        len({one.name for one in kept.waiting}) == len(kept.waiting),
        is_sound(now.groups) and is_sound(now.workers),
        all(is_sound(line.items) for line in (now.again, now.pending, now.free)),
        all(0 <= line.first <= line.next for line in (now.again, now.pending, now.free)),
    )
    negative = [name for name, value in counts.items() if not value >= 0]
    if negative:
        return f"{negative[0]} {counts[negative[0]]}"
    return f"version {now.version}" if now.version != version else "" if all(sums) else "counts that do not add up"


def load_state(
    where: Path, arguments: TextConfig, begun: LanguageState, backend: LearnerBackend = SINGLE_PROCESS
) -> PhaseState:
    """Return the state in a checkpoint; `begun` is a learner's state with the run's structure. Raises: CheckpointError."""
    kept, metadata = kept_in(where)
    like: dict[str, Any] = {
        "learner": begun,
        "rows": blank(arguments, len(kept.waiting)) if kept.waiting else (),
        "past": {str(version): begun.params.policy for version in kept.past},
    }
    classes = [*CLASSES, PhaseCheckpoint, KeptStart, PendingSample]
    tree = backend.load(where, like, classes=classes, names=names_in(read_description(where).manifest)).tree
    check_finite(where, tree["learner"].params.policy, "learner.params.policy")
    if arguments_of(metadata)[1] != arguments:  # numbers may have changed since
        tree["learner"] = with_numbers_of(tree["learner"], begun)
    samples = {one.name: _restored(one, tree["rows"], place) for place, one in enumerate(kept.waiting)}
    past = {version: tree["past"][str(version)] for version in kept.past}
    return PhaseState(kept=kept, learner=tree["learner"], past=past, samples=samples)


def blank(arguments: TextConfig, number: int) -> Transcript:
    """Return a transcript with the structure of this number of samples."""
    return empty(arguments.sampling.capacity, arguments.episodes.max_turns, id=torch.zeros(number, dtype=torch.int64))


def _restored(pending: PendingSample, rows: Transcript, place: int) -> Sample:
    row = tree_map(lambda leaf: leaf[place : place + 1], rows)
    summary: dict[str, Any] = {one: getattr(pending, one) for one in SUMMARY}
    return Sample(row=row, final=frozenset(pending.done), **summary)

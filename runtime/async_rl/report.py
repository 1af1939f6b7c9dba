"""Reports on a run with generators, from the files of its folder: figures, a comparison, an audit, pictures.

RUN/comparison.txt  comparison.json     phases side by side
RUN/timeline.png                        work of the trainer and each generator over time
RUN/staleness.png                       ages of samples
RUN/learning_curve.png                  of the last phase
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError, message
from ...core.language.task import TextTask
from ..effects import folder
from ..effects.reporting.curves_picture import curves_picture
from ..effects.reporting.language_picture import language_picture
from ..effects.reporting.metrics import read_metrics
from ..effects.reporting.timeline_picture import Lane, staleness_picture, timeline_picture
from ..text.columns import LABEL, own_figures
from ..text.evaluation import read_evaluation_result
from ..text.report import BEFORE, DRAWN, Result, accuracy_before, drawn_in, read_before, read_result, title_of
from . import recorded
from .audit import Audit, Bounds, audited, reported_events, taken_of
from .checkpoint import LEDGER, TIMELINE, TOTALS
from .comparison import Comparison, Evaluation, PhaseTotals
from .run import ASYNC, SYNC, arguments_in, phases_of
from .scheduler.timeline import TRAINER, Span, actors, merged, middle, shifts, spans_of

COMPARISON, TABLE = "comparison.json", "comparison.txt"
TIMES, AGES = "timeline.png", "staleness.png"
ENLARGED = 4  # updates in the enlarged part of the timeline
# of the whole time, and of the enlarged part: spans with smaller gaps are drawn as one
SAME, SAME_THERE = 1 / 4000, 1 / 500


def finished_phases(run: Path) -> tuple[str, ...]:
    """Return the phases that have ended and were evaluated, in order."""
    files = (TOTALS, folder.EVALUATION)
    return tuple(name for name in (SYNC, ASYNC) if all((run / name / file).exists() for file in files))


def audit(run: Path, phase: str) -> Audit:
    """Audit the samples that a phase trained on, also if it was stopped before its end.

    Raises: CheckpointError, StructureError.
    """
    home = _begun(run, phase)
    totals = recorded.recorded_totals(home) if (home / TOTALS).exists() else ()
    return audited(
        tuple(recorded.recorded_ledger(home)),
        _bounds(run, phase),
        reported_events(recorded.recorded_events(home)),
        totals,
    )


def _begun(run: Path, phase: str) -> Path:
    home = run / phase
    if not (home / LEDGER).exists():
        there = [name for name in (SYNC, ASYNC) if (run / name / LEDGER).exists()]
        wanted = f"one of {there}" if there else f"a run with a phase; train it: purestep train RECIPE --run {run}"
        raise CheckpointError(message(str(home), got="no phase of a run", wanted=wanted, remedy="name another one"))
    return home


def _bounds(run: Path, phase: str) -> Bounds:
    arguments = arguments_in(run)
    tasks = arguments.episodes
    staleness = 0 if phase == SYNC else arguments.asynchronous.staleness
    return Bounds(batch=tasks.groups * tasks.samples, group=tasks.samples, staleness=staleness)


def phase_of(run: Path, name: str) -> PhaseTotals:
    """Return the figures of a phase that has ended. Raises: CheckpointError, StructureError."""
    home = _begun(run, name)
    totals, spans = recorded.recorded_totals(home), spans_of(recorded.timeline(home))
    start, seconds = _started(spans), totals["seconds"]
    taken, rows = taken_of(recorded.recorded_ledger(home)), read_metrics(home / folder.METRICS)
    ages = Counter(one.version - one.head for one in taken)
    waited, updated, anchored = (
        sum(row.get(name, 0.0) for row in rows) for name in ("rollout_seconds", "update_seconds", "proximal_seconds")
    )
    updates = max(1, len(rows))
    counts = ("submitted", "accepted", "rejected", "filtered", "consumed", "tokens_used", "tokens_wasted")
    same = ("generators", "staleness", "sessions", "lost_generators", "tool_failures")
    return PhaseTotals(
        name=name,
        updates=totals["version"],
        seconds=seconds,
        start=start,
        tokens_sampled=reported_events(recorded.recorded_events(home)).tokens,
        ages=tuple(ages[age] for age in range(max(ages, default=-1) + 1)),
        shifts=shifts(spans, start, max(seconds, start)),
        waited=max(0.0, waited - start) / updates,
        updated=updated / updates,
        anchored=anchored / updates,
        after=_evaluation(folder.read_json(home / folder.EVALUATION), "after", home / folder.EVALUATION),
        **{name: totals[name] for name in (*counts, *same)},
    )


def _started(spans: Iterable[Span]) -> float:
    """Return the time of the first work of a generator."""
    return min((one.begin for one in spans if one.actor != TRAINER), default=0.0)


def _evaluation(file: Any, name: str, where: Path) -> Evaluation:
    """Return the standings in a file of results, under a name or, with "", at its top; {} of a task's own evaluation."""
    if DRAWN in file:
        return {}
    held = file.get(name) if name else file
    known = held if isinstance(held, dict) and held else {"sampled": ()}
    return {how: read_evaluation_result(known[how], f"{where}: {how}") for how in known}


def comparison(run: Path, task: TextTask | tuple[()] = ()) -> Comparison:
    """Return the phases of a run that have ended, side by side; the task is needed where it has an evaluation of its own.

    Raises: CheckpointError where none has ended, StructureError.
    """
    there = finished_phases(run)
    if not there:
        remedy = f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(str(run), got="without a phase that has ended", wanted="one", remedy=remedy))
    before = _evaluation(folder.read_json(run / BEFORE), "", run / BEFORE)
    return Comparison(tuple(phase_of(run, name) for name in there), before, own=_own(run, there, task))


def _own(run: Path, phases: tuple[str, ...], task: TextTask | tuple[()]) -> dict[str, Result]:
    """Return the results of the task's own evaluation, before and after each phase; {} if the task has none."""
    if isinstance(task, tuple) or isinstance(task.evaluation, tuple):
        return {}
    before, found = read_before(run, task), dict[str, Result]()
    for name in phases:
        path = run / name / folder.EVALUATION
        found[f"after {name}"] = read_result(task, folder.read_json(path).get("after"), str(path))
    return {**({} if isinstance(before, tuple) else {"before": before}), **found}


def write_comparison(run: Path, task: TextTask | tuple[()] = ()) -> str:
    """Write comparison.json and comparison.txt, with the audits of the phases; return the text."""
    held = comparison(run, task)
    audits = {one.name: audit(run, one.name) for one in held.phases}
    lines = [f"audit, {name}: {one.line()}" for name, one in audits.items()]
    text = "\n".join([held.text(), *lines])
    wrong = {name: list(one.wrong) for name, one in audits.items()}
    folder.write_json(run / COMPARISON, {**held.described(), "wrong": wrong})
    folder.write_text(run / TABLE, text + "\n")
    return text


def write_timeline(run: Path, out: Path) -> Path:
    """Draw the timeline of each phase of the run. Raises: CheckpointError for a run without one."""
    lanes = [_lane(run, name) for name in (SYNC, ASYNC) if (run / name / TIMELINE).exists()]
    if not any(lane.spans for lane in lanes):
        wanted, remedy = "a phase that has begun", f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(str(run), got="without a timeline", wanted=wanted, remedy=remedy))
    return timeline_picture([lane for lane in lanes if lane.spans], out)


def _lane(run: Path, name: str) -> Lane:
    spans = spans_of(recorded.timeline(run / name))
    end = max((one.end for one in spans), default=0.0)
    start, window = min(end, _started(spans)), middle(spans, ENLARGED)
    return Lane(
        name=name,
        actors=actors(spans),
        spans=merged(spans, gap=end * SAME),
        close=merged(spans, gap=(window[1] - window[0]) * SAME_THERE if window else 0.0),
        end=end,
        shares={one.actor: one.utilisation() for one in shifts(spans, start, end)},
        window=window,
    )


def write_staleness(run: Path, out: Path) -> Path:
    """Draw the ages of the samples trained on, for each phase of the run. Raises: CheckpointError for a run without any."""
    ages, bounds = dict[str, tuple[int, ...]](), dict[str, int]()
    for name in (SYNC, ASYNC):
        counted = Counter(one.version - one.head for one in taken_of(recorded.recorded_ledger(run / name)))
        if counted:
            ages[name] = tuple(counted[age] for age in range(max(counted) + 1))
            bounds[name] = _bounds(run, name).staleness
    if not ages:
        wanted, remedy = "an update", f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(str(run), got="without an update", wanted=wanted, remedy=remedy))
    return staleness_picture(ages, bounds, out)


def _results(run: Path) -> tuple[Path, ...]:
    """Return the files of results of a run, before reinforcement learning and after each phase."""
    return run / BEFORE, *(run / name / folder.EVALUATION for name in (SYNC, ASYNC))


def write_curve(run: Path, out: Path) -> Path:
    """Draw the learning curve of the last phase that has begun. Raises: ChoiceError if it has no updates."""
    begun = [name for name in (SYNC, ASYNC) if (run / name / folder.METRICS).exists()]
    last = begun[-1] if begun else phases_of(arguments_in(run))[-1]
    path, start = run / last / folder.METRICS, accuracy_before(run)
    rows = read_metrics(path) if path.exists() else []
    found = [drawn for one in _results(run) if (drawn := drawn_in(one))]
    if found:
        curves = {name: [one] for _, held in found for name, one in held.items()}
        return curves_picture([rows], curves, out, axis=found[0][0])
    title = f"{title_of(run)}, {last}"
    return language_picture(rows, out, title=title, start=start, figures=own_figures(rows), labels=LABEL)

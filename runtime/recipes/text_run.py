"""Runs of language models, with or without generators: started, resumed, evaluated, drawn and sampled from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from attrs import evolve

from ...core.errors import CheckpointError, ChoiceError, message
from ..async_rl import report as phases_report
from ..async_rl import run as phases
from ..effects import folder
from ..effects.checkpoint.atomic_files import lock
from ..effects.checkpoint.directory import step_folders
from ..effects.openai_server.client import ServerError
from ..effects.reporting.plot import learning_curve
from ..effects.reporting.png import check_picture
from ..effects.task_reference import EVERY, trust
from ..runs.arguments import changed, flag
from ..runs.changing import rows_in
from ..runs.curves import picture_of
from ..runs.kinds import record_of, with_generators
from ..runs.recipe import Components, Context, Notice, Phases, SessionResult
from ..runs.run import restore_run
from ..runs.trusting import NOTHING, Trust
from ..text import report
from ..text import run as session
from ..text.build_learner import SINGLE_PROCESS, LearnerBackend, of_ranks
from ..text.components import TextComponents
from ..text.config import TextConfig, generator_count, held_out_tasks
from ..text.sampling import check_server, evaluation_source
from ..text.training_loop import policy_of
from .text_options import HeldOut, Moves, Over, trust_of

SERVER = ("server", "server_seconds")  # settings of a run that a server samples for, which may change
ALONE_HERE = {"engine": "processes", "transfer": "auto"}  # defaults when --hosts "" moves generators to this machine


def build(arguments: TextConfig, context: Context) -> Components | Phases:
    """Return the run of these arguments, with generators or without.

    Raises: CheckpointError, ChoiceError, StructureError.
    """
    if generator_count(arguments) > 0:
        return phases.components(arguments, context)
    return session.components(arguments, context)


def resume(
    run: Path,
    *,
    options: Moves,
    notice: Notice,
    store: LearnerBackend = SINGLE_PROCESS,
    changes: Mapping[str, Any],
) -> SessionResult:
    """Resume the run in a folder, on ranks if ranks saved it. Raises: CheckpointError, ChoiceError, EngineError."""
    _check_changes(run, changes)
    moved = {**_moved(run, options), **changes}
    if options.trust:
        trust(EVERY)
    if store is SINGLE_PROCESS and of_ranks(run):
        from ..text.distributed_learner import in_process_group  # here: it takes torch a second to import

        found: list[SessionResult] = []

        def program(backend: LearnerBackend) -> int:
            found.append(session.resume(run, notice=notice, moved=moved, backend=backend, trust=trust_of(options)))
            return 0

        in_process_group(program)
        return found[0]
    return session.resume(run, notice=notice, moved=moved, backend=store, trust=trust_of(options))


EXAMINED = ("held_out", "draw", "eval_samples")  # settings that decide on which tasks a run is evaluated


def _check_changes(run: Path, changes: Mapping[str, Any]) -> None:
    """Refuse numbers that a run cannot take. Raises: ChoiceError."""
    held, given = record_of(run), with_generators(run)
    number = changes.get("generators")
    if number is not None and (not given or number < 1):
        wanted = "at least 1" if given else "none, in a run that has no generators"
        remedy = "leave it out, or train anew with --generators"
        raise ChoiceError(message(f"resume {run}: --generators", got=number, wanted=wanted, remedy=remedy))
    for name in EXAMINED if given else ():
        if name in changes:
            got, wanted = changes[name], f"{held.get(name)}: phases are compared on the same tasks"
            raise ChoiceError(message(f"resume {run}: {flag(name)}", got=got, wanted=wanted, remedy="leave it out"))
    if "kl" in changes and bool(changes["kl"]) != bool(held.get("kl", 0.0)):
        wanted = "more than 0" if held.get("kl") else "0: it has no reference policy"
        remedy = "train anew with it"
        raise ChoiceError(message(f"resume {run}: --kl", got=changes["kl"], wanted=wanted, remedy=remedy))


def _same_tasks(run: Path) -> bool:
    """Return whether a run is evaluated on the tasks with which it began."""
    return not any(row["setting"] in EXAMINED for row in rows_in(record_of(run)))


def _moved(run: Path, options: Moves) -> Mapping[str, Any]:
    """Return the arguments that change where the run samples. Raises: ChoiceError for those that do not fit the run."""
    given = with_generators(run)
    wanted, remedy = f"a run {'without' if given else 'with'} generators", "leave it out, or train anew with it"
    every = {name: getattr(options, name) for name in ("engine", "hosts", "transfer", "devices", *SERVER)}
    every["trust_network"] = (options.trust_network and given) or None
    moved = {name: value for name, value in every.items() if value is not None}
    for name in moved:
        if (name in SERVER) is given:
            raise ChoiceError(message(flag(name), got="given", wanted=wanted, remedy=remedy))
    if set(SERVER) & set(moved) and record_of(run).get("server") == "":
        where = flag(next(name for name in SERVER if name in moved))
        raise ChoiceError(message(where, got="given", wanted="a run that a server samples for", remedy=remedy))
    return {**(ALONE_HERE if moved.get("hosts") == "" else {}), **moved}


def report_lines(run: Path, notice: Notice) -> Iterator[str]:
    """Evaluate a finished run, draw it and write its model; yield the lines to print. Raises: CheckpointError."""
    trusted = Trust(every=True)  # it has just been trained
    if with_generators(run):
        parts, params, _ = sampling_model(run, trust=trusted)
        yield phases_report.write_comparison(run, parts.task)
        yield from _drawn(run, run, notice)
        yield f"model: {report.write_model(run, parts, params)}"
        return
    yield from _evaluated(run, trusted)
    try:
        yield f"learning curve: {report.draw_report(run, run / folder.PICTURE)}"
    except ChoiceError as nothing:
        notice(f"no picture: {nothing}")


def evaluation_lines(run: Path, options: HeldOut, notice: Notice) -> Iterator[str]:
    """Try held-out tasks with the newest checkpoint; yield the lines to print. Raises: CheckpointError, ChoiceError."""
    if options.trust:
        trust(EVERY)
    if with_generators(run):
        yield from _evaluated_phase(run, options)
    elif options.phase:
        remedy = "leave it out"
        raise ChoiceError(message("--phase", got=options.phase, wanted="a run with generators", remedy=remedy))
    else:
        yield from _evaluated(run, trust_of(options), options.trial, options.server)


def _evaluated(run: Path, trusted: Trust, trial: Any = (), server: str | None = None) -> Iterator[str]:
    found_at = restore_run(run, trust=trusted)
    usual = found_at.arguments
    asked = usual if isinstance(trial, tuple) else usual.evaluated(trial)
    as_begun = asked == usual
    if server is not None:
        if not usual.sampling.server:
            remedy = "leave it out"
            raise ChoiceError(message("--server", got="given", wanted="a run that a server samples for", remedy=remedy))
        asked = changed(asked, {"server": server})
        check_server(asked)
    parts = found_at.components.opened if as_begun else evolve(found_at.components.opened, task=asked.task())
    params = parts.whole(policy_of(found_at.state))
    learner = found_at.state.learner
    version = 0 if isinstance(learner, tuple) else int(learner.step)
    with lock(run) if asked.sampling.server else nullcontext():  # the server samples for a run that trains
        try:
            source = evaluation_source(run, asked, parts, params, version)
            found = report.evaluation(parts, params, **held_out_tasks(asked), source=source)
        except ServerError:
            yield f"model: {report.write_model(run, parts, params)}"
            raise
    before = report.read_before(run, parts.task) if as_begun and _same_tasks(run) else ()
    yield report.write_after(run, found_at.loop.iteration, found, asked.examined(), before)
    yield f"evaluation: {found.line()}"
    yield f"model: {report.write_model(run, parts, params)}"


def _evaluated_phase(run: Path, options: HeldOut) -> Iterator[str]:
    usual = phases.arguments_in(run)
    asked = usual.evaluated(options.trial)
    torch.set_num_threads(usual.machine.threads)
    parts, params, named = sampling_model(run, options.phase, trust_of(options))
    parts = parts if asked == usual else evolve(parts, task=asked.task())
    found = report.evaluation(parts, params, **held_out_tasks(asked))
    before = report.read_before(run, parts.task) if asked == usual else ()
    yield report.table_of({**({} if isinstance(before, tuple) else {"before": before}), f"after {named}": found})
    yield f"evaluation: {found.line()}"


def sampling_model(
    run: Path, phase: str = "", trust: Trust = NOTHING
) -> tuple[TextComponents, dict[str, torch.Tensor], str]:
    """Return the parts of a run with generators, all parameters of a phase's newest checkpoint, and the name of the phase.

    It is the last phase, unless one is named. Raises: CheckpointError where there is no checkpoint of it; TrustError.
    """
    there = [name for name in (phases.SYNC, phases.ASYNC) if step_folders(run / name / folder.CHECKPOINTS)]
    named = phase or (there[-1] if there else phases.phases_of(phases.arguments_in(run))[-1])
    parts, policy = phases.phase_policy(run, named, trust)
    return parts, dict(parts.whole(policy)), named


def sampler_of(run: Path, trusted: Trust = NOTHING) -> tuple[TextComponents, dict[str, torch.Tensor], TextConfig, str]:
    """Return the parts of a run, all parameters of its newest checkpoint, its arguments, and the name of that checkpoint.

    Raises: CheckpointError, TrustError.
    """
    if with_generators(run):
        parts, params, phase = sampling_model(run, trust=trusted)
        return parts, params, phases.arguments_in(run), phase
    found = restore_run(run, trust=trusted)
    params = dict(found.components.opened.whole(policy_of(found.state)))
    return found.components.opened, params, found.arguments, f"iteration {found.loop.iteration}"


def plot_lines(runs: Sequence[Path], out: Path | tuple[()], options: Over) -> Iterator[str]:
    """Draw one run in its pictures, or the success of several in one; yield the lines to print.

    `out` is the picture or, of a single run with generators, the folder of its pictures. Raises: CheckpointError, ChoiceError.
    """
    if len(runs) == 1 and with_generators(runs[0]):
        place = out or runs[0]
        for file in (phases_report.TIMES, phases_report.AGES, folder.PICTURE):
            check_picture(place / file)
        faults: list[str] = []
        yield from _drawn(runs[0], place, faults.append)
        if faults:
            yield "\n".join(faults)
    elif len(runs) == 1:
        yield str(report.draw_report(runs[0], picture_of(runs, out)))
    elif any(map(with_generators, runs)):
        yield str(_success(runs, picture_of(runs, out), options.over))
    else:
        yield str(report.pictures(runs, picture_of(runs, out)))


def _drawn(run: Path, place: Path, notice: Notice) -> Iterator[str]:
    """Draw the available pictures of a run with generators into a folder; yield a line for each."""
    pictures = (
        ("timeline", phases_report.write_timeline, phases_report.TIMES),
        ("staleness", phases_report.write_staleness, phases_report.AGES),
        ("learning curve", phases_report.write_curve, folder.PICTURE),
    )
    for name, draw, file in pictures:
        try:
            yield f"{name}: {draw(run, place / file)}"
        except (CheckpointError, ChoiceError) as nothing:
            notice(f"no picture: {nothing}")


def _success(runs: Sequence[Path], out: Path, over: str) -> Path:
    """Draw the share of successful attempts, averaged over runs, a line for each phase."""
    files = {
        label: [path for run in runs if (path := run / phase / folder.METRICS).exists()]
        for label, phase in (("in turns", phases.SYNC), ("at once", phases.ASYNC))
    }
    kinds = {label: paths for label, paths in files.items() if paths}
    if not kinds:
        wanted, remedy = "runs with one", f"go on with them: {folder.resume_command(runs[0])}"
        raise ChoiceError(message("purestep plot: RUN", got="runs without an update", wanted=wanted, remedy=remedy))
    column, label = report.success_column([path for paths in kinds.values() for path in paths])
    return learning_curve(
        kinds,
        out,
        x="steps" if over == "samples" else "seconds",
        y=column,
        title=f"{report.title_of(runs[0])}, in turns and at once",
        x_label="attempts learned from" if over == "samples" else "seconds since the phase began",
        y_label=label,
        smooth=5,
    )

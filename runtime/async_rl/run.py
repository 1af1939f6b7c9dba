"""A run in a folder with samples from generators: a warm start, then one phase or two, each of which can be resumed.

RUN/warm/      the warm start, a run of the usual kind without reinforcement learning
RUN/sync/      alternating: generators wait for weights, the trainer for samples
RUN/async/     concurrent
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...algorithms.language.learner import LanguageState
from ...core.errors import CheckpointError, message
from ..effects import folder
from ..effects.checkpoint.description import read_description
from ..effects.clock import seconds
from ..effects.weight_sync.shared_memory.layout import layout
from ..runs.arguments import changed
from ..runs.kinds import record_in_file
from ..runs.recipe import Context, Notice, Phases, SessionResult
from ..runs.run import arguments_of, load_run_state, perform
from ..runs.training_machine import Loop
from ..runs.trusting import NOTHING, Trust, check_trust
from ..text import run as turns
from ..text.async_config import AsyncConfig
from ..text.build_learner import LearnerBackend
from ..text.components import TextComponents, text_components
from ..text.config import TextConfig, generator_count, held_out_tasks
from ..text.report import BEFORE, evaluation, with_curves, write_before
from ..text.training_loop import learning_components, phases, policy_of
from . import checkpoint
from .checkpoint import TOTALS
from .placement import Placement, assign_generators
from .run_phase import run_phase
from .training_phase import PhaseConfig

WARM, SYNC, ASYNC = "warm", "sync", "async"


def outcome_of(phases: Sequence[str], interrupted: bool, seconds: Mapping[str, float]) -> SessionResult:
    """Return the outcome of a session after which these phases are finished.

    >>> outcome_of(["sync"], True, {"sync": 2.0}).progress
    ' and saved; sync is over'
    """
    over = f"; {' and '.join(phases)} is over" if phases else ""
    spent = tuple(f"{name} {each:.1f} s" for name, each in seconds.items() if each)
    return SessionResult(interrupted=interrupted, progress=f" and saved{over}", spent=spent, session=tuple(phases))


def phases_of(arguments: TextConfig) -> tuple[str, ...]:
    """Return the phases that follow the warm start.

    >>> from ..text.config import TaskRun
    >>> phases_of(TaskRun())
    ('sync',)
    """
    given = arguments.asynchronous
    if given.mode == "sync":
        return (SYNC,)
    return (SYNC, ASYNC) if given.compare else (ASYNC,)


def arguments_in(run: Path) -> TextConfig:
    """Return the arguments of the run in a folder. Raises: CheckpointError, ChoiceError."""
    arguments: TextConfig = arguments_of(record_in_file(folder.existing(run) / folder.ARGUMENTS))[1]
    return arguments


def components(arguments: TextConfig, context: Context) -> Phases:
    """Return the phases of a run with generators. Raises: as `turns.components_in`; CheckpointError (other data)."""
    run, backend, notice = context.run, turns.backend_of(context), context.notice
    parts = turns.components_in(arguments, context)
    if context.kept:
        _check_data(run, parts)

    @contextmanager
    def opened() -> Iterator[Placement]:
        over = context.kept and all((run / phase / TOTALS).exists() for phase in phases_of(arguments))
        given = AsyncConfig() if over else arguments.asynchronous
        with assign_generators(given, notice, lambda: layout(parts.whole(parts.begin())).size) as place:
            yield place

    return Phases(
        opened=opened,
        perform=lambda place: _go_on(run, arguments, parts, place, notice, backend),
        write=lambda run: turns.write_tokenizer(run, arguments, parts),
    )


def _check_data(run: Path, parts: TextComponents) -> None:
    """Refuse a task whose data differ from those that the run began with. Raises: CheckpointError."""
    for name in folder.PHASES:
        recorded = checkpoint.use_newest_of_phase(
            run / name, lambda where: read_description(where).manifest.environment
        )
        turns.check_data(run, dict(recorded), parts)


def phase_policy(run: Path, phase: str, trust: Trust = NOTHING) -> tuple[TextComponents, Any]:
    """Return the parts of a run, and the policy of a phase's newest checkpoint. Raises: CheckpointError, TrustError."""
    arguments = arguments_in(run)
    check_trust(run, trust, arguments.functions())
    parts = text_components(arguments, run / turns.TOKENIZER)
    _check_data(run, parts)
    algorithm, _ = learning_components(arguments, parts)
    begun = algorithm.init(parts.begin())
    found = checkpoint.use_newest_of_phase(
        run / phase, lambda where: checkpoint.load_state(where, arguments, begun).learner.params.policy
    )
    if isinstance(found, tuple):
        remedy = f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(f"{run / phase}", got="without a checkpoint", wanted="one", remedy=remedy))
    return parts, found


def _go_on(
    run: Path, arguments: TextConfig, parts: TextComponents, place: Placement, notice: Notice, backend: LearnerBackend
) -> SessionResult:
    """Run the remaining phases of a run."""
    spent, ended, since = dict[str, float](), list[str](), seconds()
    begun = _warmed(run, arguments, parts, notice, backend)
    spent["warm start"] = seconds() - since
    if isinstance(begun, tuple):
        return outcome_of((), True, spent)
    tasks = held_out_tasks(arguments)
    if not (run / BEFORE).exists():
        write_before(run, evaluation(parts, parts.whole(begun.params.policy), **tasks), notice)
    for phase in phases_of(arguments):
        since = seconds()
        if not (run / phase / TOTALS).exists():
            setting = _setting(run, phase, arguments, parts, place, notice, backend)
            last = run_phase(setting, begun)
            spent[phase] = seconds() - since
            if last.version < setting.arguments.episodes.steps:
                return outcome_of(ended, True, spent)
        if not (run / phase / folder.EVALUATION).exists():
            since = seconds()
            _, policy = phase_policy(run, phase, Trust(every=True))
            found = evaluation(parts, parts.whole(policy), **tasks, version=arguments.episodes.steps)
            written = {**arguments.examined(), "after": found.described(), **with_curves({f"after {phase}": found})}
            folder.write_json(run / phase / folder.EVALUATION, written)
            notice(f"after {phase}: {found.line()}")
            spent["evaluation"] = spent.get("evaluation", 0.0) + seconds() - since
        ended.append(phase)
    return outcome_of(ended, False, spent)


def _setting(
    run: Path,
    phase: str,
    arguments: TextConfig,
    parts: TextComponents,
    place: Placement,
    notice: Notice,
    backend: LearnerBackend,
) -> PhaseConfig:
    own = changed(arguments, {"mode": phase, "generators": generator_count(arguments)})
    own = changed(own, {"staleness": 0}) if phase == SYNC else own
    number = f"{generator_count(own)} generators" if generator_count(own) > 1 else "a generator"
    notice(f"{phase}: {number}, {own.episodes.steps} updates, staleness at most {own.asynchronous.staleness}")
    return PhaseConfig(
        folder=run / phase,
        tokenizer=() if arguments.model.model else run / turns.TOKENIZER,
        arguments=own,
        parts=parts,
        facts=turns.facts(parts),
        metadata=turns.text_record(own),
        notice=notice,
        place=place,
        backend=backend,
    )


def _warmed(
    run: Path, arguments: TextConfig, parts: TextComponents, notice: Notice, backend: LearnerBackend
) -> LanguageState | tuple[()]:
    """Return the learner after the warm start, resumed from its checkpoints; () after Ctrl-C."""
    algorithm, _ = learning_components(arguments, parts, backend)
    many = phases(arguments).warm
    if not many:
        return algorithm.init(parts.begin())
    home = run / WARM
    made = turns.components_of(home, arguments, parts, backend)
    found = checkpoint.use_newest_of_phase(home, lambda where: load_run_state(where, made, backend), backend)
    held, loop = found or (made.begin(), Loop(iterations=many, chunk=1, every=arguments.machine.save_every))
    if loop.iteration < many:
        outcome = perform(turns.text_record(arguments), made, held, loop, Context(home, True, backend, notice))
        if outcome.interrupted:
            return ()
        held = outcome.session.state
    return algorithm.init(policy_of(held))

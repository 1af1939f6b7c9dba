"""A run in a folder whose samples come from generators: a warm start, then one phase or two, each of which can be resumed.

RUN/warm/      the warm start, a run of the usual kind without reinforcement
RUN/sync/      in turns: generators wait for weights, the trainer for samples
RUN/async/     at once
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...algorithms.language import LanguageState
from ...core.errors import CheckpointError, ChoiceError, choose, message
from ..effects import folder
from ..effects.checkpoint import check_finite
from ..effects.clock import seconds
from ..effects.sharded.description import described
from ..effects.tokenizer import save_tokenizer
from ..effects.weights_layout import layout
from ..language import session as turns
from ..language.config import TextConfig, absolute, generators
from ..language.parts import Parts, parts_of
from ..language.report import BEFORE, evaluation, with_curves, write_before
from ..language.team import ALONE, Team
from ..language.validate_task import validate_task
from ..language.world import Held, Notice, held_at, learning_parts, phases, policy_of
from ..runs.arguments import changed
from ..runs.loop_check import check_loop
from ..runs.recipe import Context, Outcome
from ..runs.run import arguments_of, perform
from ..runs.training_machine import Loop
from ..runs.trusting import NOTHING, Trust, check_trust
from ..values import decode, encode
from . import keeping
from .config import Asynchronous
from .keeping import TOTALS
from .phase import Setting
from .placing import Place, placed
from .running import run_phase

WARM, SYNC, ASYNC = "warm", "sync", "async"
MOVABLE = ("engine", "hosts", "transfer", "devices", "trust_network")  # arguments that say where generators work
ALONE_HERE = {"engine": "processes", "transfer": "auto"}  # theirs on this machine


def outcome_of(phases: Sequence[str], interrupted: bool, seconds: Mapping[str, float]) -> Outcome:
    """Return the end of a session, after which these phases are over.

    >>> outcome_of(["sync"], True, {"sync": 2.0}).progress
    ' and saved; sync is over'
    """
    over = f"; {' and '.join(phases)} is over" if phases else ""
    spent = tuple(f"{name} {each:.1f} s" for name, each in seconds.items() if each)
    return Outcome(interrupted=interrupted, progress=f" and saved{over}", spent=spent, session=tuple(phases))


def phases_of(arguments: TextConfig) -> tuple[str, ...]:
    """What follows the warm start.

    >>> from ..language.config import TaskRun
    >>> phases_of(TaskRun())
    ('sync',)
    """
    given = arguments.asynchronous
    if given.mode == "sync":
        return (SYNC,)
    return (SYNC, ASYNC) if given.compare else (ASYNC,)


def arguments_in(run: Path) -> TextConfig:
    """The arguments of the run in a folder. Raises: CheckpointError, ChoiceError."""
    arguments: TextConfig = arguments_of(decode(folder.read_json(folder.existing(run) / folder.ARGUMENTS)))[1]
    return arguments


def start(run: Path, arguments: TextConfig, *, overwrite: bool, notice: Notice, team: Team = ALONE) -> Outcome:
    """A new run in the folder, which must hold none unless it may be overwritten; what is refused removes none.

    Raises: CheckpointError, ChoiceError, StructureError, EngineError for hosts that cannot be had.
    """
    arguments.check()
    team.check(arguments)
    validate_task(arguments.task())
    if generators(arguments) < 1:
        where, remedy = "--generators", "give it some, or train without `--mode async`"
        raise ChoiceError(message(where, got=generators(arguments), wanted="at least 1", remedy=remedy))
    arguments = absolute(arguments)
    with folder.starting(run, arguments.recipe, overwrite=overwrite, holds=_holds):
        torch.set_num_threads(arguments.machine.threads)
        parts = turns.parts_for(run, arguments)
        with placed(arguments.asynchronous, notice, lambda: weights_of(parts)) as place:
            folder.clear(run, arguments.recipe)
            folder.write_json(run / folder.ARGUMENTS, encode(turns.described(arguments)))
            if not arguments.model.model:
                save_tokenizer(parts.tokenizer, run / turns.TOKENIZER)
            return _go_on(run, arguments, team.parts(parts), place, notice, team)


def _holds(run: Path) -> bool:
    return folder.begun(run) or (run / folder.ARGUMENTS).exists()


def resume(
    run: Path, *, notice: Notice, moved: Mapping[str, Any] = {}, team: Team = ALONE, trust: Trust = NOTHING
) -> Outcome:
    """Goes on with the run in the folder, from its newest checkpoint, with its own arguments.

    `moved` are arguments that say where its generators work, in place of its own from now on: see `MOVABLE`. No hosts are this
    machine, which needs no engine and no transport of weights unless they are given as well.
    Functions that its record names are called where `trust` says so.
    Raises: CheckpointError, ChoiceError, EngineError, TrustError.
    """
    with folder.resuming(run):
        for name in moved:
            choose("resume: argument", name, dict.fromkeys(MOVABLE))
        arguments = arguments_in(run)
        check_trust(run, trust, arguments.functions())
        if moved:
            alone = ALONE_HERE if moved.get("hosts") == "" else {}
            arguments = absolute(changed(arguments, {**alone, **moved}))
            arguments.check()
        validate_task(arguments.task())
        torch.set_num_threads(arguments.machine.threads)
        begun = folder.begun(run)  # else its tokenizer may be half there, and is made again as it was
        parts = team.parts(parts_of(arguments, run / turns.TOKENIZER if begun else ()))
        _check_data(run, parts)
        if not begun and not arguments.model.model:
            save_tokenizer(parts.tokenizer, run / turns.TOKENIZER)
        left = [phase for phase in phases_of(arguments) if not (run / phase / TOTALS).exists()]
        given = arguments.asynchronous if left else Asynchronous()
        with placed(given, notice, lambda: weights_of(parts)) as place:
            if moved:
                folder.write_json(run / folder.ARGUMENTS, encode(turns.described(arguments)))
            return _go_on(run, arguments, parts, place, notice, team)


def _check_data(run: Path, parts: Parts) -> None:
    """Refuse a task whose data are others than when the run began. Raises: CheckpointError."""
    for name in folder.PHASES:
        recorded = keeping.of_newest(run / name, lambda where: described(where).manifest.environment)
        turns.check_data(run, dict(recorded), parts)


def weights_of(parts: Parts) -> int:
    """The bytes of the weights that generators fetch."""
    return layout(parts.whole(parts.begin())).size


def phase_policy(run: Path, phase: str, trust: Trust = NOTHING) -> tuple[Parts, Any]:
    """The parts of a run, and the policy of a phase's newest checkpoint. Raises: CheckpointError, TrustError."""
    arguments = arguments_in(run)
    check_trust(run, trust, arguments.functions())
    parts = parts_of(arguments, run / turns.TOKENIZER)
    _check_data(run, parts)
    algorithm, _ = learning_parts(arguments, parts)
    begun = algorithm.init(parts.begin())
    found = keeping.of_newest(run / phase, lambda where: keeping.load(where, arguments, begun).learner.params.policy)
    if isinstance(found, tuple):
        remedy = f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(f"{run / phase}", got="without a checkpoint", wanted="one", remedy=remedy))
    return parts, found


def _go_on(run: Path, arguments: TextConfig, parts: Parts, place: Place, notice: Notice, team: Team) -> Outcome:
    """What is left of a run."""
    spent, ended, since = dict[str, float](), list[str](), seconds()
    begun = _warmed(run, arguments, parts, notice, team)
    spent["warm start"] = seconds() - since
    if isinstance(begun, tuple):
        return outcome_of((), True, spent)
    tasks = {"tasks": arguments.episodes.held_out, "draw": arguments.episodes.draw}
    if not (run / BEFORE).exists():
        write_before(run, evaluation(parts, parts.whole(begun.params.policy), **tasks), notice)
    for phase in phases_of(arguments):
        since = seconds()
        if not (run / phase / TOTALS).exists():
            setting = _setting(run, phase, arguments, parts, place, notice, team)
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
    run: Path, phase: str, arguments: TextConfig, parts: Parts, place: Place, notice: Notice, team: Team
) -> Setting:
    own = changed(arguments, {"mode": phase, "generators": generators(arguments)})
    own = changed(own, {"staleness": 0}) if phase == SYNC else own
    number = f"{generators(own)} generators" if generators(own) > 1 else "a generator"
    notice(f"{phase}: {number}, {own.episodes.steps} updates, staleness at most {own.asynchronous.staleness}")
    return Setting(
        folder=run / phase,
        tokenizer=() if arguments.model.model else run / turns.TOKENIZER,
        arguments=own,
        parts=parts,
        facts=turns.facts(parts),
        metadata=turns.described(own),
        notice=notice,
        place=place,
        team=team,
    )


def _warmed(run: Path, arguments: TextConfig, parts: Parts, notice: Notice, team: Team) -> LanguageState | tuple[()]:
    """The learner after the warm start, whose checkpoints are gone on from; () after Ctrl-C."""
    algorithm, _ = learning_parts(arguments, parts, team)
    many = phases(arguments).warm
    if not many:
        return algorithm.init(parts.begin())
    home = run / WARM
    held: Held = held_at(arguments, parts, algorithm, 0)
    loop = Loop(iterations=many, chunk=1, every=arguments.machine.save_every)

    def load(where: Path) -> tuple[Held, Loop]:
        kept: Any = team.load(where, held, classes=[Loop])
        check_loop(where, kept.machine, kept.step)
        check_finite(where, policy_of(kept.tree), "policy")
        return kept.tree, kept.machine

    found = keeping.of_newest(home, load, team)
    if found:
        held, loop = found
    if loop.iteration < many:
        made = turns.components_of(home, arguments, parts, team)
        outcome = perform(turns.described(arguments), made, held, loop, Context(home, True, team, notice))
        if outcome.interrupted:
            return ()
        held = outcome.session.state
    return algorithm.init(policy_of(held))

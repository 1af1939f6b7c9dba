"""A run of a language model in a folder: the machine of `machine`, with handlers that sample, learn, write metrics and save.

RUN/tokenizer/        the tokenizer, where the run has made its own
RUN/before.json       how the policy stood before reinforcement
RUN/model/            the final model and its tokenizer, a folder of Hugging Face
RUN/diverged.safetensors   the batch of a step whose loss was not finite
RUN/rollouts.jsonl    where episodes are prepared: what preparations publish, readable while it is written
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import frozen

from ...algorithms.language import LanguageState
from ...core.errors import CheckpointError, ChoiceError, NonFiniteError, message
from ..drive import Handlers, drive, serial
from ..effects import checkpoint, folder, stream
from ..effects.layout import names_of
from ..effects.manifest import Manifest
from ..effects.sharded.description import described as described_at
from ..effects.tokenizer import save_tokenizer
from ..runs.arguments import changed, flatten, from_record
from ..runs.kinds import recorded
from ..runs.logging import divergence, metrics_log
from ..runs.loop_check import check_loop
from ..runs.registry import settings_of
from ..runs.training_machine import Log, Loop, Save, Saved, Train, trainer_machine
from ..runs.trusting import NOTHING, Trust, check_trust
from ..values import decode, encode
from .config import TextConfig, absolute
from .evaluate import held_out
from .parts import Parts, attempts_at, check_room, parts_of
from .preparing import STREAM
from .report import evaluation, on_the_way, write_before
from .serving import SERVED, check_server, source
from .team import ALONE, Team
from .world import Held, LanguageWorld, Publish, held_at, learning_parts, phases
from .world import policy_of as policy_of

T = TypeVar("T")
TOKENIZER = "tokenizer"
DATA = "data"  # of a task, among the facts of a run: their digest
FACTS: Mapping[str, str] = {"lowering": "eager"}  # what the bits of a run depend on beside its arguments
Notice = Callable[[str], None]


@frozen
class Outcome:
    """How a session ended, and the seconds that each part of it took."""

    loop: Loop
    seconds: dict[str, float]


def described(arguments: TextConfig) -> dict[str, Any]:
    """The recipe's name and all arguments, flat; `arguments_of` undoes it."""
    return {"recipe": arguments.recipe, **flatten(arguments)}


def arguments_of(held: Mapping[str, Any]) -> TextConfig:
    """The arguments of a run, from what its checkpoints or its folder hold. Raises: CheckpointError, ChoiceError."""
    recipe = str(held.get("recipe", ""))
    arguments: TextConfig = from_record(recipe, settings_of(recipe)(), held)
    return arguments


def start(run: Path, arguments: TextConfig, *, overwrite: bool, notice: Notice, team: Team = ALONE) -> Outcome:
    """A new run in the folder, which must hold no checkpoints unless they may be overwritten; what is refused removes none.

    Raises: CheckpointError, ChoiceError, StructureError.
    """
    arguments.check()
    team.check(arguments)
    arguments = absolute(arguments)
    with folder.starting(run, arguments.recipe, overwrite=overwrite):
        return _begin(run, arguments, notice, team)


def _begin(run: Path, arguments: TextConfig, notice: Notice, team: Team, keep: Collection[str] = ()) -> Outcome:
    """A run from its beginning, in a folder from which all else that a run has left is removed but what `keep` names."""
    torch.set_num_threads(arguments.machine.threads)
    parts = team.parts(parts_for(run, arguments))
    held = held_at(arguments, parts, learning_parts(arguments, parts, team)[0], 0)
    folder.clear(run, arguments.recipe, keep=keep)
    folder.write_json(run / folder.ARGUMENTS, encode(described(arguments)))
    if not arguments.model.model:
        save_tokenizer(parts.tokenizer, run / TOKENIZER)
    loop = phases(arguments).loop(arguments.machine.save_every)
    return perform(run, arguments, parts, held, loop, notice, team)[0]


def parts_for(run: Path, arguments: TextConfig) -> Parts:
    """The parts of a new run. All that may be refused is, before anything of an older run in the folder is removed.

    Raises: ChoiceError, StructureError.
    """
    model = Path(arguments.model.model).resolve()
    if arguments.model.model and any(
        model.is_relative_to((run / name).resolve()) for name in names_of(arguments.recipe)
    ):
        got, remedy = f"{model}, which this run would remove", "choose another --run"
        raise ChoiceError(message("--model", got=got, wanted="a folder elsewhere", remedy=remedy))
    check_server(arguments)
    parts = parts_of(arguments)
    check_room(parts)
    check_groups(arguments, parts)
    attempts_at(parts, held_out(1, arguments.episodes.draw))
    learning_parts(arguments, parts)
    return parts


def check_groups(arguments: TextConfig, parts: Parts) -> None:
    """Refuse steps of fewer groups than a task's preparation begins. Raises: ChoiceError."""
    preparation, groups = parts.task.preparation, arguments.episodes.groups
    if not isinstance(preparation, tuple) and groups < preparation.groups:
        wanted, remedy = f"at least {preparation.groups}", "so many groups begin where one task was prepared"
        raise ChoiceError(message("--groups", got=groups, wanted=wanted, remedy=remedy))


def resume(run: Path, *, notice: Notice, server: str = "", team: Team = ALONE, trust: Trust = NOTHING) -> Outcome:
    """Goes on with the run in the folder, from its newest checkpoint, with its own arguments; begins it where it has none yet.

    `server` is the address of one that samples from now on, in place of its own. Functions that its record names are called
    where `trust` says so. Raises: CheckpointError, ChoiceError, StructureError; TrustError.
    """
    with folder.resuming(run):
        if folder.unsaved(run):
            return _begin_again(run, server, notice, team, trust)
        found = of_newest(run, lambda where: Restored(where, *_loaded(run, where, team, trust)), team=team)
        manifest, parts = found.manifest, found.parts
        arguments = changed(found.arguments, {"server": server}) if server else found.arguments
        check_server(arguments)
        now = {**checkpoint.environment(), **facts(parts), "ranks": team.size}
        for difference in checkpoint.differences({"ranks": 1, **manifest.environment}, now):
            notice(f"not necessarily the bits of a run that never stopped: {difference}")
        return perform(run, arguments, parts, found.held, found.loop, notice, team)[0]


def _begin_again(run: Path, server: str, notice: Notice, team: Team, trust: Trust) -> Outcome:
    """A run that ended before its first checkpoint. What a server may be starting on stays where it is."""
    arguments = arguments_of(decode(folder.read_json(run / folder.ARGUMENTS)))
    arguments = changed(arguments, {"server": server}) if server else arguments
    arguments.check()
    check_trust(run, trust, arguments.functions())
    team.check(arguments)
    notice(f"no checkpoint yet: {run} begins again, with its own arguments")
    return _begin(run, arguments, notice, team, keep=(folder.ARGUMENTS, SERVED))


def arguments_in(run: Path) -> TextConfig:
    """The arguments of the run in a folder; what is damaged is named by whoever loads it. Raises: CheckpointError."""
    return of_newest(run, lambda where: arguments_of(described_at(where).manifest.metadata), report=lambda text: None)


def newest(run: Path, team: Team = ALONE) -> Path:
    """The folder of a run's newest good checkpoint. Raises: CheckpointError."""
    return of_newest(run, lambda where: where, team=team)


def of_newest(run: Path, use: Callable[[Path], T], *, team: Team = ALONE, report: Notice = checkpoint.to_stderr) -> T:
    """Return the result of `use` on a run's newest usable checkpoint. Raises: CheckpointError, and what `use` raises."""
    again = f"train {recorded(run).get('recipe', 'RECIPE')} --run {run} --overwrite"
    remedy = f"train it: purestep {f'resume {run}' if folder.unsaved(run) else again}"
    return checkpoint.of_newest(run, use, find=team.newest, remedy=remedy, report=report)


@frozen
class Restored:
    """A run as a checkpoint of it holds it."""

    where: Path
    manifest: Manifest
    arguments: TextConfig
    parts: Parts
    held: Held
    loop: Loop


def restored(run: Path, where: Path, team: Team = ALONE, trust: Trust = NOTHING) -> tuple[Parts, Held, Loop]:
    """The parts of a run, and what the checkpoint holds.

    Raises: CheckpointError, also where a model or data that the run was begun with are others now; ChoiceError,
    StructureError; TrustError.
    """
    return _loaded(run, where, team, trust)[2:]


def restored_newest(run: Path, trust: Trust = NOTHING) -> Restored:
    """A run as its newest checkpoint that is good holds it; a damaged one is named on standard error.

    Raises: CheckpointError; ChoiceError, StructureError; TrustError for functions that are not trusted.
    """
    return of_newest(run, lambda where: Restored(where, *_loaded(run, where, ALONE, trust)))


def _loaded(run: Path, where: Path, team: Team, trust: Trust) -> tuple[Manifest, TextConfig, Parts, Held, Loop]:
    manifest = described_at(where).manifest
    arguments = arguments_of(manifest.metadata)
    arguments.check()
    check_trust(run, trust, arguments.functions())
    torch.set_num_threads(arguments.machine.threads)
    parts = team.parts(parts_of(arguments, run / TOKENIZER))
    if manifest.environment.get("base", parts.base) != parts.base:
        got, wanted = "another model or tokenizer than when the run began", "the same"
        remedy = "put the old one back, or train anew"
        raise CheckpointError(message(f"{run}: {arguments.model.model}", got=got, wanted=wanted, remedy=remedy))
    check_data(run, manifest.environment, parts)
    algorithm, _ = learning_parts(arguments, parts, team)
    found = team.load(where, held_at(arguments, parts, algorithm, manifest.step), classes=[Loop])
    check_loop(where, found.machine, found.step)
    checkpoint.check_finite(where, policy_of(found.tree), "policy")
    return manifest, arguments, parts, found.tree, found.machine


def check_data(run: Path, recorded: Mapping[str, Any], parts: Parts) -> None:
    """Refuse a task whose data are others than when the run began. Raises: CheckpointError.

    What was held out then may be trained on now.
    """
    if recorded.get(DATA, parts.task.digest) != parts.task.digest:
        got, remedy = "others than when the run began", "put the old ones back, or train anew"
        raise CheckpointError(message(f"{run}: the task's data", got=got, wanted="the same", remedy=remedy))


def facts(parts: Parts) -> dict[str, str]:
    """What the bits of a run depend on beside its arguments."""
    named = {"base": parts.base, DATA: parts.task.digest}
    return {**FACTS, **{name: value for name, value in named.items() if value}}


def warm_loop(arguments: TextConfig) -> Loop:
    """Where a run of the warm start alone begins."""
    return Loop(iterations=phases(arguments).warm, chunk=1, every=arguments.machine.save_every)


def perform(
    run: Path, arguments: TextConfig, parts: Parts, held: Held, loop: Loop, notice: Notice, team: Team = ALONE
) -> tuple[Outcome, Held]:
    """Runs the machine from `loop` on; gives how that ended, and what the run holds then. Raises: NonFiniteError."""
    algorithm, trainer = learning_parts(arguments, parts, team)
    held_out = {"tasks": arguments.episodes.held_out, "draw": arguments.episodes.draw}

    def before(state: LanguageState) -> None:
        found = evaluation(parts, parts.whole(state.params.policy), **held_out, version=int(state.step))
        write_before(run, found, notice)

    def evaluate(state: LanguageState) -> Mapping[str, float]:
        version, whole = int(state.step), parts.whole(state.params.policy)
        line, figures = on_the_way(parts, whole, **held_out, version=version)
        notice(f"version {version}: {line}")
        return figures

    samples = source(run, arguments, parts, notice)
    shown = ("episode_return", *tuple(parts.task.figures)[:1], "log_prob_difference", "warm_loss")
    with metrics_log(run, loop, shown) as log, publishing(run, parts) as publish:
        world = LanguageWorld(
            run=run,
            arguments=arguments,
            parts=parts,
            algorithm=algorithm,
            trainer=trainer,
            ask=samples.ask,
            complete=samples.complete,
            publish=publish,
            before=before,
            evaluate=evaluate,
            notice=notice,
            held=held,
            iteration=loop.iteration,
        )
        handlers: Handlers = {Train: world.train, Log: log, Save: partial(_save, run, arguments, world, team)}
        for now in drive(trainer_machine(), loop, serial(handlers)):
            loop = now
    team.settle()
    if loop.diverged:
        raise NonFiniteError(divergence(run, loop, warm=phases(arguments).warm))
    spent = {"warm start": world.warmed, "preparation": world.prepared, "sampling": world.sampled}
    return Outcome(loop, {**spent, "updates": world.updated}), world.held


@contextmanager
def publishing(run: Path, parts: Parts) -> Iterator[Publish]:
    """What appends records of preparations to the run's stream; one that is there already is passed over."""
    preparation = parts.task.preparation
    if isinstance(preparation, tuple):
        yield lambda number, rows: None
        return
    with stream.writer(run / STREAM, most=preparation.most) as write:
        yield write


def _save(run: Path, arguments: TextConfig, world: LanguageWorld, team: Team, command: Save) -> Saved:
    loop = command.loop
    about: dict[str, Any] = {"facts": facts(world.parts), "metadata": described(arguments)}
    team.save(run, loop.iteration, world.held, machine=loop, **about)
    return Saved(loop.iteration)

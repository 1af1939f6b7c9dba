"""A training run in a folder: the machine of `machine`, with handlers that train, write metrics and save."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import frozen

from ...core import keys
from ...core.errors import CheckpointError, ChoiceError, NonFiniteError, choose, message
from ..compile import Program, fingerprint, program
from ..drive import Handlers, drive, serial
from ..effects import checkpoint, folder
from ..effects.files import INSIDE
from ..effects.manifest import Manifest, describe
from ..effects.metrics import rewind
from ..runs.arguments import changed, flatten, from_record
from ..runs.loop_check import check_loop
from ..runs.loop_state import Notice, Run, World, reporting
from ..runs.training_machine import Log, Loop, Save, Saved, Train, trainer_machine
from ..train import RunState, folded
from ..values import encode
from . import RECIPES
from .arguments import iteration_steps, loop_of, run_steps
from .common import Pipeline

T = TypeVar("T")
DATA = "data"  # the fact of a checkpoint that says what files the run has learnt from


@frozen
class Plan:
    """What a run is, before anything of it was done."""

    recipe: str
    arguments: Any
    pipeline: Pipeline
    facts: Mapping[str, str]  # what its bits depend on beside the arguments: how and from what its program is compiled

    def beginning(self) -> Loop:
        """Where the run begins."""
        return loop_of(self.arguments.experience, self.arguments.process)

    def steps(self) -> int:
        """In the environment, over the whole run: those asked for, rounded up."""
        return run_steps(self.arguments)

    def described(self) -> dict[str, Any]:
        """The recipe's name and all arguments, flat; `planned` undoes it."""
        return {"recipe": self.recipe, **flatten(self.arguments)}


@frozen
class Outcome:
    """How a session ended; seconds are those of this session alone."""

    loop: Loop
    steps: int  # in the environment, over the whole run
    trained: int  # of them in this session
    compile_seconds: float
    loaded: bool  # whether the compiled program was found on the disk
    train_seconds: float


def plan(recipe: str, arguments: Any) -> Plan:
    """Wires a recipe, with PyTorch set to its threads. Raises: ChoiceError for arguments that make no sense."""
    chosen = choose("recipe", recipe, RECIPES)
    pipeline = chosen.pipeline(arguments)
    torch.set_num_threads(arguments.process.threads)
    return Plan(recipe, arguments, pipeline, _facts(recipe, arguments, pipeline.content))


def _facts(recipe: str, arguments: Any, content: str) -> dict[str, str]:
    indifferent = {"seed": 0, "checkpoints": 1} | ({} if arguments.learner.anneal else {"steps": 1})
    decisive = flatten(changed(arguments, indifferent))
    chunk = loop_of(arguments.experience, arguments.process).chunk
    known = (content,) if content else ()
    told = {"lowering": arguments.process.backend, "program": fingerprint(recipe, decisive, chunk, *known)}
    return told | ({DATA: content} if content else {})


def arguments_of(described: Mapping[str, Any]) -> tuple[str, Any]:
    """The recipe and the arguments of a run, from what its checkpoints hold. Raises: CheckpointError, ChoiceError."""
    recipe = str(described.get("recipe", ""))
    chosen = choose("checkpoint: recipe", recipe, RECIPES)
    defaults = chosen.defaults(str(described.get(chosen.world, "")))
    return recipe, from_record(recipe, defaults, described)


def planned(described: Mapping[str, Any]) -> Plan:
    """The plan of a run, from what its checkpoints hold. Raises: CheckpointError, ChoiceError."""
    return plan(*arguments_of(described))


@frozen
class Restored:
    """A run as its newest checkpoint that can be used holds it."""

    manifest: Manifest
    plan: Plan
    state: RunState
    loop: Loop


def newest(run: Path) -> Path:
    """The folder of a run's newest good checkpoint. Raises: CheckpointError."""
    return of_newest(run, lambda where: where)


def of_newest(run: Path, use: Callable[[Path], T], *, report: Callable[[str], None] = checkpoint.to_stderr) -> T:
    """Return the result of `use` on a run's newest usable checkpoint. Raises: CheckpointError, and what `use` raises."""
    remedy = f"train it: purestep train RECIPE --run {run}"
    return checkpoint.of_newest(run, use, remedy=remedy, report=report)


def described_in(run: Path) -> tuple[str, Any]:
    """The recipe that a run follows, and its arguments; what is damaged is named by whoever loads it.

    Raises: CheckpointError.
    """
    return of_newest(run, lambda where: arguments_of(describe(where).metadata), report=lambda text: None)


def recipe_of(run: Path) -> str:
    """The recipe that a run follows. Raises: CheckpointError."""
    return described_in(run)[0]


def world_of(run: Path) -> str:
    """What the run is trained on, by name. Raises: CheckpointError."""
    recipe, arguments = described_in(run)
    return str(flatten(arguments)[RECIPES[recipe].world])


def start(run: Path, plan: Plan, *, overwrite: bool, notice: Notice) -> Outcome:
    """A new run in the folder, which must hold no checkpoints unless they may be overwritten. Raises: CheckpointError."""
    with folder.starting(run, plan.recipe, overwrite=overwrite):
        folder.clear(run, plan.recipe)
        folder.write_json(run / folder.ARGUMENTS, encode(plan.described()))
        state = plan.pipeline.prepare(plan.pipeline.trainer.init(keys.key(plan.arguments.experience.seed)))
        return _perform(run, plan, state, plan.beginning(), notice)


def resume(run: Path, *, notice: Notice) -> Outcome:
    """Goes on with the run in the folder, from its newest checkpoint, with its own arguments. Raises: CheckpointError."""
    with folder.resuming(run):
        held = restored(run)
        now = {**checkpoint.environment(), **held.plan.facts}
        for difference in checkpoint.differences(held.manifest.environment, now):
            notice(f"not necessarily the bits of a run that never stopped: {difference}")
        rewind(run / folder.METRICS, held.loop.iteration)
        return _perform(run, held.plan, held.state, held.loop, notice)


def check_data(run: Path, held: Mapping[str, str], plan: Plan) -> None:
    """Refuses a run whose files say something else than when it was trained. Raises: CheckpointError."""
    if held.get(DATA) != plan.facts.get(DATA):
        remedy = "bring back the files it was trained on, or train anew"
        raise CheckpointError(message(str(run), got="a run on other facts or rules", wanted="the same", remedy=remedy))


def restored(run: Path, recipe: str = "") -> Restored:
    """Restore a run from its newest good checkpoint; a damaged one is named on standard error.

    Raises: CheckpointError; ChoiceError where it is not one of `recipe`, if that is named.
    """

    def use(where: Path) -> Restored:
        manifest = describe(where)
        found, arguments = arguments_of(manifest.metadata)
        if recipe not in ("", found):
            remedy = f"name a run of: purestep train {recipe}"
            raise ChoiceError(message(str(run), got=f"a run of {found!r}", wanted=f"one of {recipe!r}", remedy=remedy))
        made = plan(found, arguments)
        check_data(run, manifest.environment, made)
        state, loop = restore(where, made)
        return Restored(manifest, made, state, loop)

    return of_newest(run, use)


def restore(where: Path, plan: Plan) -> tuple[RunState, Loop]:
    """What the checkpoint holds. Raises: CheckpointError."""
    like = plan.pipeline.trainer.init(keys.key(plan.arguments.experience.seed))
    held = checkpoint.load(where, like, classes=[Loop])
    check_loop(where, held.machine, held.step)
    checkpoint.check_finite(where, held.tree.learner.params, "learner.params")
    return held.tree, held.machine


def _perform(run: Path, plan: Plan, state: RunState, loop: Loop, notice: Notice) -> Outcome:
    """Runs the machine from `loop` on, compiling first: until then Ctrl-C stops at once."""
    world = World(state, lowered(plan, loop), iteration_steps(plan.arguments.experience))
    if loop.iteration < loop.iterations:
        world.warm(notice)
    with reporting(run, loop, world.steps) as log:
        handlers: Handlers = {Train: world.train, Log: log, Save: partial(_save, run, plan, world)}
        for now in drive(trainer_machine(), loop, serial(handlers)):
            loop = now
    if loop.diverged:
        raise NonFiniteError(_divergence(loop))
    return Outcome(
        loop=loop,
        steps=loop.iteration * world.steps,
        trained=world.trained * world.steps,
        compile_seconds=world.compile_seconds(),
        loaded=isinstance(world.run, Program) and world.run.loaded,
        train_seconds=world.seconds - world.compile_seconds(),
    )


def lowered(plan: Plan, loop: Loop) -> Run:
    """The function that does a chunk of iterations: compiled, unless the arguments say otherwise."""
    chunk, backend = folded(plan.pipeline.trainer, loop.chunk), plan.arguments.process.backend
    if backend == "none":
        return chunk
    cache = folder.cache_directory() if backend == "inductor" else None
    artefact = cache / plan.facts["program"] if cache else None
    return program(chunk, name=f"train {plan.recipe}", artefact=artefact, backend=backend)


def _save(run: Path, plan: Plan, world: World, command: Save) -> Saved:
    loop = command.loop
    about: dict[str, Any] = {"facts": plan.facts, "metadata": plan.described()}
    checkpoint.save(run, loop.iteration, world.state, machine=loop, **about, files=INSIDE)
    return Saved(loop.iteration)


def _divergence(loop: Loop) -> str:
    kept = f"the checkpoint of iteration {loop.saved} stays" if loop.saved else "there is no checkpoint yet"
    remedy = f"lower --learning-rate, or scale with --normalize; {kept}"
    where, wanted = f"train: iteration {loop.diverged}", "finite numbers"
    return message(where, got="NaN or infinite in parameters or rewards", wanted=wanted, remedy=remedy)

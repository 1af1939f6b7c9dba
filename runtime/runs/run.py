"""A run in a folder, of any recipe: started, resumed, saved, and restored for an evaluation.

The machine of `training_machine` decides when to train, log, save and stop. See `effects.layout` for the files of a folder.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from attrs import define, evolve, frozen

from ...core.errors import CheckpointError, ChoiceError, NonFiniteError, message
from ...core.tree import leaves
from ..effects import clock, folder
from ..effects.checkpoint import single
from ..effects.checkpoint.description import described as described_at
from ..effects.checkpoint.manifest import LARGEST, MANIFEST, DamagedError, Manifest, damaged
from ..machine.drive import Handlers, drive, serial
from ..machine.json_codec import decode, encode, short
from .arguments import changed, flag, flatten, from_record
from .kinds import train_command
from .recipe import Components, Context, Notice, Phases, Recipe, SessionResult
from .registry import find, recipe_of
from .store import PROCESS, Store
from .training_machine import Log, Loop, Save, Saved, Train, Trained, trainer_machine
from .trusting import NOTHING, Trust

T = TypeVar("T")
Step = Callable[[Any], tuple[Any, Mapping[str, float]]]


def silent(text: str) -> None:
    """Do nothing: the notice of a silent run."""


def described(recipe: Recipe, arguments: Any) -> dict[str, Any]:
    """Return the record of a run: the recipe's name and all arguments, flat; the inverse of `arguments_of`."""
    return {"recipe": recipe.name, **flatten(arguments)}


def arguments_of(held: Mapping[str, Any]) -> tuple[Recipe, Any]:
    """Return the recipe and the arguments of a run's record. Raises: CheckpointError, ChoiceError."""
    recipe = recipe_of(held)
    return recipe, from_record(recipe.name, recipe.defaults(()), held)


def arguments_in(run: Path) -> tuple[Recipe, Any]:
    """Return the recipe and the arguments of the run in a folder; damaged checkpoints are reported later, when they are loaded.

    Raises: CheckpointError.
    """
    return of_newest(run, lambda where: arguments_of(described_at(where).manifest.metadata), report=silent)


def train(
    recipe: str | Recipe, run: Path | str, *, overwrite: bool = False, notice: Notice = print, **settings: Any
) -> SessionResult:
    """Train by a recipe in a new folder: "ppo", a `Recipe`, or the task "FILE.py:TASK"; `settings` replace its defaults.

    The run is saved as it goes and can be resumed, evaluated and drawn by the commands. Raises: as `start`.

    >>> from tempfile import TemporaryDirectory
    >>> small = {"steps": 8, "envs": 2, "horizon": 4, "hidden": (4,), "backend": "none"}
    >>> with TemporaryDirectory() as folder:
    ...     train("reinforce", folder, **small).loop.iteration
    1
    """
    chosen = find(recipe) if isinstance(recipe, str) else recipe
    by = chosen.chosen_by
    defaults = chosen.defaults([flag(by), str(settings[by])] if by in settings else [])
    arguments = changed(defaults, settings)
    return chosen.start(Path(run), chosen, arguments, overwrite=overwrite, notice=notice)


def start(
    run: Path,
    recipe: Recipe,
    arguments: Any,
    *,
    options: Any = (),
    overwrite: bool,
    notice: Notice,
    store: Store = PROCESS,
) -> SessionResult:
    """Train in a new folder, which must hold no checkpoints unless `overwrite` is set; a refused run removes none.

    Functions that the arguments name are called: starting a run implies trust in them. Raises: CheckpointError, ChoiceError,
    and
    errors of building the recipe.
    """
    recipe.check(arguments)
    _ready(recipe, arguments, options)
    with folder.starting(run, recipe.name, overwrite=overwrite):
        return _begin(recipe, arguments, Context(run, False, store, notice, Trust(every=True)))


def _ready(recipe: Recipe, arguments: Any, options: Any) -> None:
    recipe.ready(arguments, recipe.closing() if options == () else options)


def _begin(recipe: Recipe, arguments: Any, context: Context, keep: Collection[str] = ()) -> SessionResult:
    """Train from the beginning, after removing an older run's files from the folder except those that `keep` names."""
    run, made, metadata = context.run, recipe.build(arguments, context), described(recipe, arguments)

    def clear() -> None:
        folder.clear(run, recipe.name, keep=keep)
        folder.write_json(run / folder.ARGUMENTS, encode(metadata))
        made.write(run)

    if isinstance(made, Phases):
        with made.opened() as opened:
            clear()
            return made.perform(opened)
    state = made.begin()
    clear()
    return perform(metadata, made, state, made.loop, context)


def resume(
    run: Path,
    *,
    options: Any = (),
    notice: Notice,
    store: Store = PROCESS,
    changes: Mapping[str, Any] = {},
    keep: Collection[str] = (folder.ARGUMENTS,),
    trust: Trust = NOTHING,
) -> SessionResult:
    """Resume the run in a folder from its newest checkpoint, with its own arguments but for `changes`.

    A run without a checkpoint is started again, with the files that `keep` names left in its folder. Functions that its record
    names are called where `trust` allows it. Raises: CheckpointError, ChoiceError, TrustError, and errors of building the
    recipe.
    """
    context = Context(run, True, store, notice, trust)
    with folder.resuming(run):
        if folder.in_phases(run) or folder.unsaved(run):
            recipe, arguments = arguments_of(decode(folder.read_json(run / folder.ARGUMENTS)))
            arguments = changed(arguments, changes)
            recipe.check(arguments)
            _ready(recipe, arguments, options)
            if folder.in_phases(run):
                return _go_on(recipe, arguments, context)
            notice(f"no checkpoint yet: {run} begins again, with its own arguments")
            return _begin(recipe, arguments, evolve(context, kept=False), keep)
        found = restored(run, store=store, notice=notice, changes=changes, trust=trust)
        _ready(found.recipe, found.arguments, options)
        now = {**single.environment(), **found.components.facts, "ranks": store.size}
        for difference in single.differences({"ranks": 1, **found.manifest.environment}, now):
            notice(f"not necessarily the bits of a run that never stopped: {difference}")
        return perform(described(found.recipe, found.arguments), found.components, found.state, found.loop, context)


def _go_on(recipe: Recipe, arguments: Any, context: Context) -> SessionResult:
    """Run the remaining phases of a run of several phases."""
    made = recipe.build(arguments, context)
    if not isinstance(made, Phases):
        remedy = "name the folder of the run, or train anew"
        raise CheckpointError(message(str(context.run), got="checkpoints of phases", wanted="its own", remedy=remedy))
    with made.opened() as opened:
        folder.write_json(context.run / folder.ARGUMENTS, encode(described(recipe, arguments)))
        return made.perform(opened)


def newest(run: Path, store: Store = PROCESS) -> Path:
    """Return the folder of a run's newest good checkpoint. Raises: CheckpointError."""
    return of_newest(run, lambda where: where, store=store)


def of_newest(run: Path, use: Callable[[Path], T], *, store: Store = PROCESS, report: Notice = single.to_stderr) -> T:
    """Return the result of `use` on a run's newest usable checkpoint. Raises: CheckpointError, and errors of `use`."""
    remedy = f"train it: {folder.resume_command(run) if folder.unsaved(run) else train_command(run)}"
    return single.of_newest(run, use, find=store.newest, remedy=remedy, report=report)


@frozen
class Restored:
    """A run restored from a checkpoint."""

    where: Path
    manifest: Manifest
    recipe: Recipe
    arguments: Any
    components: Components
    state: Any
    loop: Loop


def restored(
    run: Path,
    recipe: str = "",
    *,
    store: Store = PROCESS,
    notice: Notice = silent,
    changes: Mapping[str, Any] = {},
    trust: Trust = NOTHING,
    where: Path | tuple[()] = (),
) -> Restored:
    """Return a run from its newest good checkpoint, or from `where`; a damaged one is named on standard error.

    Raises: CheckpointError; ChoiceError where it is not one of `recipe`, if that is named, and errors of building it.
    """
    context = Context(run, True, store, notice, trust)
    if not isinstance(where, tuple):
        return _restored(where, context, recipe, changes)
    return of_newest(run, lambda newest: _restored(newest, context, recipe, changes), store=store)


def _restored(where: Path, context: Context, recipe: str, changes: Mapping[str, Any]) -> Restored:
    run = context.run
    manifest = described_at(where).manifest
    found, arguments = arguments_of(manifest.metadata)
    if recipe not in ("", found.name):
        got, remedy = f"a run of {found.name!r}", f"name a run of: purestep train {recipe}"
        raise ChoiceError(message(str(run), got=got, wanted=f"one of {recipe!r}", remedy=remedy))
    arguments = changed(arguments, changes)
    found.check(arguments)
    components = found.build(arguments, context)
    if isinstance(components, Phases):
        remedy = "name the folder of the run, or train anew"
        raise CheckpointError(message(str(run), got="a checkpoint beside its phases", wanted="none", remedy=remedy))
    components.accept(run, manifest)
    state, loop = loaded(where, components, context.store)
    return Restored(where, manifest, found, arguments, components, state, loop)


def loaded(where: Path, components: Components, store: Store) -> tuple[Any, Loop]:
    """Return the state and the loop of a run from this checkpoint. Raises: CheckpointError."""
    held = store.load(where, components.like(described_at(where).manifest.step), classes=[Loop])
    _check_loop(where, held.machine, held.step)
    name, params = components.params(held.tree)
    single.check_finite(where, params, name)
    return held.tree, held.machine


def _check_loop(where: Path, loop: Any, step: int) -> None:
    """Refuse a loop state that no run saves at this step. Raises: DamagedError.

    >>> _check_loop(Path("step_000002"), Loop(iterations=4, chunk=1, every=2, iteration=2, saved=2), 2)
    """
    fits = (
        isinstance(loop, Loop)
        and loop.saved == loop.iteration == step
        and 0 <= loop.iteration <= loop.iterations <= LARGEST
        and 1 <= loop.chunk <= LARGEST
        and 1 <= loop.every <= LARGEST
        and loop.diverged == 0
        and not loop.interrupted
    )
    if not fits:
        raise DamagedError(damaged(where / MANIFEST, f"with the state {short(loop)}", f"one saved at iteration {step}"))


@define
class Stepping:
    """A running session whose iterations are calls of a function."""

    state: Any
    step: Step
    iteration: int
    seconds: float = 0.0

    def train(self, command: Train) -> Trained:
        """Run the command's iterations; return a row of metrics for each: the function's, with its number and `finite`."""
        rows, begin = [], clock.seconds()
        for _ in range(command.iterations):
            self.state, row = self.step(self.state)
            self.iteration += 1
            rows.append({"iteration": float(self.iteration), "finite": float(_finite(self.state)), **row})
        self.seconds += clock.seconds() - begin
        return Trained(tuple(rows))

    def spent(self) -> tuple[str, ...]:
        """Return the seconds of the session; () where nothing was left to train."""
        return (f"train {self.seconds:.1f} s",) if self.seconds else ()


def _finite(state: Any) -> bool:
    return all(bool(torch.isfinite(leaf).all()) for leaf in leaves(state) if leaf.is_floating_point())


def stepped(step: Step) -> Callable[[Any, Loop, Notice], AbstractContextManager[Stepping]]:
    """Return the session of a training step, (state) -> (state, row of metrics), for `Components`.

    >>> with stepped(lambda state: (state + 1, {"loss": 0.5}))(torch.zeros(1), Loop(4, 2, 2), print) as session:
    ...     session.train(Train(1)).rows, session.state
    (({'iteration': 1.0, 'finite': 1.0, 'loss': 0.5},), tensor([1.]))
    """
    return lambda state, loop, notice: nullcontext(Stepping(state, step, loop.iteration))


def perform(
    metadata: Mapping[str, Any], components: Components, state: Any, loop: Loop, context: Context
) -> SessionResult:
    """Train from `loop` on, with the run's state there. Raises: NonFiniteError."""
    run, store = context.run, context.store
    with components.session(state, loop, context.notice) as session, components.log(run, loop) as log:

        def save(command: Save) -> Saved:
            about: dict[str, Any] = {"facts": components.facts, "metadata": metadata}
            store.save(run, command.loop.iteration, session.state, machine=command.loop, **about)
            return Saved(command.loop.iteration)

        handlers: Handlers = {Train: session.train, Log: log, Save: save}
        for now in drive(trainer_machine(), loop, serial(handlers)):
            loop = now
    store.settle()
    if loop.diverged:
        raise NonFiniteError(components.diverged(loop))
    return SessionResult(
        interrupted=loop.interrupted,
        progress=f" after {components.progress(loop)} and saved",
        spent=session.spent(),
        loop=loop,
        session=session,
    )

"""A run in a folder, of any recipe: started, resumed, saved, and restored for an evaluation.

The machine of `training_machine` decides when to train, log, save and stop. See `effects.layout` for the files of a folder.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from attrs import define, evolve, frozen

from ...core.errors import CheckpointError, ChoiceError, NonFiniteError, message
from ...core.tree import leaf_names, leaves
from ..effects import clock, folder
from ..effects.checkpoint import single
from ..effects.checkpoint.description import read_description as described_at
from ..effects.checkpoint.manifest import LARGEST, MANIFEST, DamagedError, Manifest, damaged
from ..machine.drive import Handlers, drive, serial
from ..machine.json_codec import encode, short
from .arguments import changed, flatten, from_record, settings_in, to_record
from .changing import (
    STEPS,
    Row,
    change_rows,
    changes_after,
    check_changes,
    is_number,
    line_of,
    phase_under_way,
    rows_in,
)
from .kinds import record_in_file, record_of, train_command
from .migrations import OWN_NUMBER, RECIPE, SCHEMA, leaf_in, schema_of, upgrade
from .recipe import Components, Context, Notice, Phases, Recipe, SessionResult, find, recipe_of
from .store import PROCESS, Names, Store
from .training_machine import Log, Logged, Loop, Save, Saved, TrainChunk, Trained, trainer_machine
from .trusting import NOTHING, Trust

T = TypeVar("T")
Changes = Sequence[Row]  # rows of a run's record: a setting, and the iteration from which a value holds
Step = Callable[[Any], tuple[Any, Mapping[str, float]]]


def silent(text: str) -> None:
    """Do nothing: the notice of a silent run."""


def run_record(recipe: Recipe, arguments: Any, changes: Changes = ()) -> dict[str, Any]:
    """Return the record of a run; `arguments_of` returns recipe and arguments of one."""
    return to_record(recipe.name, arguments, own_schema=recipe.schema, changes=changes)


def arguments_of(held: Mapping[str, Any]) -> tuple[Recipe, Any]:
    """Return the recipe and the arguments of a run's record, of any schema. Raises: CheckpointError, ChoiceError."""
    held = upgrade(held)
    recipe = recipe_of(held)
    where = f"checkpoint: arguments of {recipe.name}"
    number = schema_of(held, where, OWN_NUMBER, recipe.schema)
    settings = settings_in(held)
    migrated = settings if number == recipe.schema else recipe.migrate(settings, number)
    return recipe, from_record(recipe.name, recipe.defaults(), migrated)


def arguments_in(run: Path) -> tuple[Recipe, Any]:
    """Return the recipe and the arguments of the run in a folder; damaged checkpoints are reported later, when they are loaded.

    Raises: CheckpointError.
    """
    return use_newest_of_run(run, lambda where: arguments_of(described_at(where).manifest.metadata), report=silent)


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
    arguments = changed(chosen.defaults(str(settings[by]) if by in settings else None), settings)
    return start(Path(run), chosen, arguments, overwrite=overwrite, notice=notice)


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

    Functions that the arguments name are called: starting a run implies trust in them.
    Raises: CheckpointError, ChoiceError, and errors of building the recipe.
    """
    arguments = recipe.resolve(arguments, notice)
    _check(recipe, arguments, options)
    with folder.starting(run, recipe.name, overwrite=overwrite):
        return _begin(recipe, arguments, Context(run, False, store, notice, Trust(every=True)))


def _check(recipe: Recipe, arguments: Any, options: Any) -> None:
    recipe.check(arguments, recipe.options.train if options == () else options)


def _begin(recipe: Recipe, arguments: Any, context: Context, keep: Collection[str] = ()) -> SessionResult:
    """Train from the beginning, after removing an older run's files from the folder except those that `keep` names."""
    run, made, metadata = context.run, recipe.build(arguments, context), run_record(recipe, arguments)

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

    A recipe says what may change: `Recipe.options.changes` and `.resume`. Steps are more than before. The run's record gets a
    row for each change, with the first iteration for which it holds. A run without a checkpoint is started again, with the
    files that `keep` names left in its folder. Functions that its record names are called where `trust` allows it.
    Raises: CheckpointError, ChoiceError, TrustError, and errors of building the recipe.
    """
    context = Context(run, True, store, notice, trust)
    with folder.resuming(run):
        if folder.in_phases(run) or folder.unsaved(run):
            record = record_in_file(run / folder.ARGUMENTS)
            recipe, before = arguments_of(record)
            some = _checked(run, recipe, before, changes)
            arguments = changed(before, some)
            _check(recipe, arguments, options)
            if folder.in_phases(run):
                phase, version = phase_under_way(run)
                _check_phase(run, phase, before, some)
                rows = change_rows(before, some, version + 1, phase=phase)
                _say(rows, notice)
                return _go_on(recipe, arguments, context, (*rows_in(record), *rows))
            notice(f"no checkpoint yet: {run} begins again, with its own arguments")
            return _begin(recipe, arguments, evolve(context, kept=False), keep)
        found = restore_run(run, store=store, notice=notice, changes=changes, trust=trust, unsaved=True)
        _check(found.recipe, found.arguments, options)
        for difference in _differences(found, store):
            notice(f"not necessarily the bits of a run that never stopped: {difference}")
        _say(found.changes, notice)
        record = run_record(found.recipe, found.arguments, (*rows_in(found.manifest.metadata), *found.changes))
        if found.changes:
            folder.write_json(run / folder.ARGUMENTS, encode(record))
        return perform(record, found.components, found.state, found.loop, context)


def _checked(run: Path, recipe: Recipe, arguments: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    allowed = dict.fromkeys((*flatten(recipe.options.changes), *flatten(recipe.options.resume)))
    return check_changes(run, arguments, changes, [name for name in allowed if name in flatten(arguments)])


def _say(rows: Sequence[Row], notice: Notice) -> None:
    for row in rows:
        notice(line_of(row))


def _check_phase(run: Path, phase: str, arguments: Any, changes: Mapping[str, Any]) -> None:
    """Refuse other steps once a phase has ended with its own. Raises: ChoiceError."""
    over = [name for name in folder.PHASES if (run / name / folder.TOTALS).exists()]
    if STEPS in changes and over:
        where, wanted = (
            f"resume {run}: --steps",
            f"{flatten(arguments)[STEPS]}, with which the phase {over[-1]} has ended",
        )
        raise ChoiceError(message(where, got=changes[STEPS], wanted=wanted, remedy="train anew with more steps"))


def _differences(found: "Restored", store: Store) -> tuple[str, ...]:
    """Return a line for each fact that differs from when the run was saved, and on which its bits depend.

    The name of the program says nothing where the run is of an older schema or its arguments change.
    """
    saved = {"ranks": 1, **found.manifest.environment}
    now = {**single.environment(), **found.components.facts, "ranks": store.size}
    if found.changes or schema_of(found.manifest.metadata, str(found.where)) < SCHEMA:
        saved, now = ({name: value for name, value in facts.items() if name != "program"} for facts in (saved, now))
    return single.differences(saved, now)


def _go_on(recipe: Recipe, arguments: Any, context: Context, changes: Changes) -> SessionResult:
    """Run the remaining phases of a run of several phases."""
    made = recipe.build(arguments, context)
    if not isinstance(made, Phases):
        remedy = "name the folder of the run, or train anew"
        raise CheckpointError(message(str(context.run), got="checkpoints of phases", wanted="its own", remedy=remedy))
    with made.opened() as opened:
        folder.write_json(context.run / folder.ARGUMENTS, encode(run_record(recipe, arguments, changes)))
        return made.perform(opened)


def newest_checkpoint(run: Path, store: Store = PROCESS) -> Path:
    """Return the folder of a run's newest good checkpoint. Raises: CheckpointError."""
    return use_newest_of_run(run, lambda where: where, store=store)


def use_newest_of_run(
    run: Path, use: Callable[[Path], T], *, store: Store = PROCESS, report: Notice = single.to_stderr
) -> T:
    """Return the result of `use` on a run's newest usable checkpoint. Raises: CheckpointError, and errors of `use`."""
    remedy = f"train it: {folder.resume_command(run) if folder.unsaved(run) else train_command(run)}"
    return single.use_newest(run, use, find=store.newest, remedy=remedy, report=report)


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
    changes: Changes = ()  # rows of the record about arguments that have changed since


def restore_run(
    run: Path,
    recipe: str = "",
    *,
    store: Store = PROCESS,
    notice: Notice = silent,
    changes: Mapping[str, Any] = {},
    trust: Trust = NOTHING,
    where: Path | tuple[()] = (),
    unsaved: bool = False,
) -> Restored:
    """Return a run from its newest good checkpoint, or from `where`; a damaged one is named on standard error.

    `unsaved`: with the changes in its record that no checkpoint has yet, since the run was killed before one was written.
    Raises: CheckpointError; ChoiceError where it is not one of `recipe`, if that is named, and errors of building it.
    """
    context = Context(run, True, store, notice, trust)
    if not isinstance(where, tuple):
        return _restored(where, context, recipe, changes, unsaved)
    return use_newest_of_run(run, lambda where: _restored(where, context, recipe, changes, unsaved), store=store)


def _restored(where: Path, context: Context, recipe: str, changes: Mapping[str, Any], unsaved: bool) -> Restored:
    run = context.run
    manifest = described_at(where).manifest
    if unsaved:
        changes = {**changes_after(rows_in(record_of(run)), manifest.step), **changes}
    found, arguments = arguments_of(manifest.metadata)
    _check_same(run, where, found)
    if recipe not in ("", found.name):
        got, remedy = f"a run of {found.name!r}", f"name a run of: purestep train {recipe}"
        raise ChoiceError(message(str(run), got=got, wanted=f"one of {recipe!r}", remedy=remedy))
    before, some = arguments, _checked(run, found, arguments, changes)
    arguments = changed(arguments, some)
    found.check(arguments)
    components = found.build(arguments, context)
    if isinstance(components, Phases):
        remedy = "name the folder of the run, or train anew"
        raise CheckpointError(message(str(run), got="a checkpoint beside its phases", wanted="none", remedy=remedy))
    components.accept(run, manifest)
    state, loop = load_run_state(where, components, context.store)
    if some:
        state, loop = _renewed(state, loop, components, some)
    rows = change_rows(before, some, loop.iteration + 1)
    return Restored(where, manifest, found, arguments, components, state, loop, rows)


def _renewed(state: Any, loop: Loop, components: Components, changes: Mapping[str, Any]) -> tuple[Any, Loop]:
    """Return state and loop with the numbers, and with the length, that follow from the run's changed arguments."""
    state = with_numbers_of(state, components.like(loop.iteration))
    if STEPS not in changes:
        return state, loop
    chunks = -(-max(components.loop.iterations, loop.iterations) // loop.chunk)  # the program has its chunk
    return state, evolve(loop, iterations=chunks * loop.chunk)


def load_run_state(where: Path, components: Components, store: Store) -> tuple[Any, Loop]:
    """Return the state and the loop of a run from this checkpoint. Raises: CheckpointError."""
    manifest = described_at(where).manifest
    held = store.load(where, components.like(manifest.step), classes=[Loop], names=names_in(manifest))
    _check_loop(where, held.machine, held.step)
    name, params = components.params(held.tree)
    single.check_finite(where, params, name)
    return held.tree, held.machine


def with_numbers_of(state: T, new: Any) -> T:
    """Return a state with the numbers of another of its structure: learning rate, discount, coefficients.

    >>> old, new = ({"params": value, "hyperparameters": {"momentum": value}} for value in torch.arange(2))
    >>> with_numbers_of(old, new)
    {'params': tensor(0), 'hyperparameters': {'momentum': tensor(1)}}
    """
    each = zip(leaf_names(state), leaves(state), leaves(new), strict=True)
    kept = [now if is_number(name) else before for name, before, now in each]
    found: T = pytree.tree_unflatten(kept, pytree.tree_structure(state))
    return found


def names_in(manifest: Manifest) -> Names:
    """Return the function from a leaf's name to that in a checkpoint of any schema; to () where the arguments determine it."""
    saved = frozenset(leaf.name for leaf in manifest.leaves)
    return partial(leaf_in, schema=schema_of(manifest.metadata, "checkpoint"), saved=saved)


def _check_same(run: Path, where: Path, recipe: Recipe) -> None:
    """Refuse a checkpoint of another recipe than the run's. Raises: CheckpointError."""
    name = record_of(run).get(RECIPE, recipe.name)
    if name != recipe.name:
        got, wanted = f"a checkpoint of {recipe.name!r}", f"one of {name!r}, as in {run / folder.ARGUMENTS}"
        raise CheckpointError(
            message(str(where), got=got, wanted=wanted, remedy="put back the file that belongs to it")
        )


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

    def train(self, command: TrainChunk) -> Trained:
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
    ...     session.train(TrainChunk(1)).rows, session.state
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

        def report(command: Log) -> Logged:
            return log(command) if command.rows else Logged()  # none where a wait was ended

        handlers: Handlers = {TrainChunk: session.train, Log: report, Save: save}
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

"""A recipe: a training pipeline with a name, and the methods of it that commands and `runs.run` call; all recipes by name.

A package adds recipes in the entry-point group `purestep.recipes`, each a value of a class that extends `Recipe`:

    [project.entry-points."purestep.recipes"]
    hill = "hill_climbing:RECIPE"

`defaults` and `check` import no torch, so that help and refusals come at once; all else is imported when it is called.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import Factory, frozen

from ...core.errors import CheckpointError, ChoiceError, choose, message
from ..deferred import deferred
from ..effects.distributed.launched import on_one_rank
from .training_machine import Log, Logged, Loop, TrainChunk, Trained
from .trusting import NOTHING, Trust

if TYPE_CHECKING:
    from ..effects.checkpoint.manifest import Manifest
    from .store import Store

Notice = Callable[[str], None]  # a line for the user


class TrainingSession(Protocol):
    """A running training session."""

    @property
    def state(self) -> Any:
        """Return the state that decides the future of the run: a tree of tensors."""
        ...

    def train(self, command: TrainChunk) -> Trained:
        """Run the command's iterations; return a row of metrics for each."""
        ...

    def spent(self) -> tuple[str, ...]:
        """Return the seconds of each part of the session, in words; () where nothing was left to train."""
        ...


@frozen
class Context:
    """The surroundings in which a run is built."""

    run: Path  # its folder
    kept: bool  # whether files of the run are there already: it is resumed or evaluated
    store: "Store"
    notice: Notice
    trust: Trust = NOTHING  # functions that a run's record may name


def _written(run: Path) -> None:
    """Write nothing."""


def _alike(run: Path, manifest: "Manifest") -> None:
    """Accept any checkpoint."""


def _iterations(loop: Loop) -> str:
    return f"{loop.iteration} iterations"


def _all(state: Any) -> tuple[str, Any]:
    return "state", state


METRICS = deferred(str(__package__), "logging", "metrics_log")
DIVERGED = deferred(str(__package__), "logging", "not_finite")


@frozen(kw_only=True)
class Components:
    """The components of a run, built from its arguments.

    A state is a tree of tensors. `loop`, `begin` and `session` are needed: see `training_machine.plan` and `run.stepped`.
    """

    loop: Loop  # the initial loop: the length of the run, and the interval of its checkpoints
    begin: Callable[[], Any]  # -> the state before the first iteration
    session: Callable[[Any, Loop, Notice], AbstractContextManager[TrainingSession]]  # (state, loop, notice)
    # (iteration) -> a state with the structure of its checkpoint
    like: Callable[[int], Any] = Factory(lambda self: lambda iteration: self.begin(), takes_self=True)
    log: Callable[[Path, Loop], AbstractContextManager[Callable[[Log], Logged]]] = METRICS  # (run, loop): handles `Log`
    diverged: Callable[[Loop], str] = DIVERGED  # the error where numbers are not finite
    params: Callable[[Any], tuple[str, Any]] = _all  # (state) -> name and tree that must be finite in a checkpoint
    facts: Mapping[str, Any] = Factory(dict)  # besides the arguments, the bits of the run depend on these
    write: Callable[[Path], None] = _written  # files that a new run has besides its arguments
    accept: Callable[[Path, "Manifest"], None] = _alike  # raises CheckpointError for a checkpoint that does not fit
    progress: Callable[[Loop], str] = _iterations  # progress of a run, as text
    opened: Any = ()  # the parts, for the recipe's own evaluation
    # (state, loop) -> its `TrainedPolicy`, for `purestep.load` and `purestep export`; () where it has none
    policy: Callable[[Any, Loop], Any] | tuple[()] = ()


@frozen(kw_only=True)
class Phases:
    """A run of several phases, each with checkpoints in a folder of its own, built from its arguments."""

    opened: Callable[[], AbstractContextManager[Any]]  # its resources: opened before an older run is removed
    perform: Callable[[Any], "SessionResult"]  # (resources): runs the remaining phases
    write: Callable[[Path], None] = _written  # files that a new run has besides its arguments


@frozen(kw_only=True)
class SessionResult:
    """Result of a session."""

    interrupted: bool
    progress: str  # its progress as text, where it was interrupted
    spent: tuple[str, ...]  # seconds of this session, part by part
    loop: Any = ()  # the machine's, where it has ended; () of a run of several phases
    session: Any = ()  # that of the recipe, or the finished phases


@frozen
class Nothing:
    """No options."""

    def check(self) -> None:
        """Accept any options."""


@frozen(kw_only=True)
class Options:
    """Options of the commands on a recipe's runs, besides its settings.

    Each is an attrs value with the defaults, and with a method `check()` that refuses invalid ones; a field `words` is set to
    the words of the command.
    """

    train: Any = Nothing()  # also for `report`
    resume: Any = Nothing()  # also for `report`
    changes: Any = Nothing()  # the settings that `resume` may change; those that are None stay
    evaluate: Any = Nothing()
    plot: Any = Nothing()


Lines = Iterator[str]  # to be printed
Program = Callable[[Callable[[], Any]], int]  # (function that returns the store of checkpoints) -> exit code


RESUME = deferred(str(__package__), "run", "resume")
CURVES = deferred(str(__package__), "curves", "curve_lines")


def this_process() -> "Store":
    """Return the store of checkpoints of a process that trains alone."""
    from .store import PROCESS  # here: it imports torch

    return PROCESS


@runtime_checkable
class Recipe(Protocol):
    """A training pipeline with a name: `name`, `about`, `defaults`, `build` and `evaluate` are needed.

    Its settings are an attrs class of names, numbers and groups of these. A run's record keeps them.
    """

    name: str
    about: str  # a line of `purestep train --help`
    notes: str = ""  # a paragraph of the help of `train`
    chosen_by: str = ""  # the setting whose value decides the other defaults
    # the folder in runs/ of a run that is given none, settings in braces; by default the name, and the seed if there is one
    folder: str = ""
    options: Options = Options()
    metric: str = "episode_return"  # the column of metrics that the learning curve shows
    solved: Mapping[str, float] = {}  # the metric's value that solves the task, by the setting `chosen_by`
    schema: int = 0  # the number of its settings' schema, of a recipe of another package: raise it when they change

    @abstractmethod
    def defaults(self, choice: str | None = None) -> Any:
        """Return the default settings where `chosen_by` has this value; None for the usual one."""

    @abstractmethod
    def build(self, settings: Any, context: Context) -> Components | Phases:
        """Return the run of these settings."""

    @abstractmethod
    def evaluate(self, run: Path, options: Any, notice: Notice) -> Lines:
        """Evaluate the newest checkpoint of a run; yield the lines to print."""
        ...

    def report(self, run: Path, options: Any, notice: Notice) -> Lines:
        """Evaluate and draw a run whose training has ended; yield the lines to print."""
        return self.evaluate(run, options, notice)

    def plot(self, runs: Sequence[Path], out: Path | tuple[()], options: Any) -> Lines:
        """Draw runs in a picture, at its usual place if none is given; yield the lines to print."""
        lines: Lines = CURVES(runs, out)
        return lines

    def title(self, settings: Any) -> str:
        """Return what is trained, in a few words."""
        return self.name

    def check(self, settings: Any, options: Any = ()) -> None:
        """Refuse invalid settings, and options of `train` or `resume` that do not suit them. Raises: ChoiceError."""
        return

    def resolve(self, settings: Any, notice: Notice) -> Any:
        """Return the settings as a new run records them: paths are absolute, and what other files determine is set."""
        return settings

    def resume(
        self, run: Path, *, options: Any, changes: Mapping[str, Any], notice: Notice, store: "Store"
    ) -> SessionResult:
        """Resume a run by `runs.run.resume`, with the trust and the changes that the options mean."""
        result: SessionResult = RESUME(run, options=options, changes=changes, notice=notice, store=store)
        return result

    def migrate(self, settings: Mapping[str, Any], schema: int) -> Mapping[str, Any]:
        """Return today's settings from those of an older schema, for another package; ours are in `migrations`."""
        return settings

    def words(self, words: list[str]) -> list[str]:
        """Return the words of `train`, with a file of settings replaced by its flags."""
        return words

    def lead(self, what: str, words: Sequence[str], program: Program) -> int:
        """Return the exit code of a program that drives all ranks of a launcher; by default several ranks are refused."""
        on_one_rank(what)
        return program(this_process)


# --- recipes by name ---

GROUP = "purestep.recipes"
CLASSIC = "recipes.classic:RECIPES"  # a table of recipes
OWN: Mapping[str, str] = {  # the other names -> module and name of the `Recipe`
    "prove": "recipes.prove_recipe:RECIPE",
    "zorplex": "recipes.text:ZORPLEX",
    "cache": "recipes.text:CACHE",
    "text": "recipes.text:TEXT",
    "task": "recipes.text:OWN_TASK",
}
HIDDEN = ("task",)  # named by its task: FILE.py:TASK or MODULE:TASK
TASK = "recipes.text:task_recipe"


def own() -> Mapping[str, str]:
    """Return the names of purestep's recipes, each with the module and name of its `Recipe`, or of a table that has it.

    >>> list(own())[:4]
    ['ppo', 'a2c', 'reinforce', 'dqn']
    """
    return {**dict.fromkeys(_there(CLASSIC), CLASSIC), **OWN}


@cache
def added() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the recipes of other packages by name, none of them loaded; several with one name are refused when it is used."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, {})[point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def listed() -> dict[str, str]:
    """Return a line on each recipe, without loading recipes of other packages.

    >>> listed()["ppo"]
    'proximal policy optimisation'
    """
    lines = {name: _own(name).about for name in own() if name not in HIDDEN}
    packages = {name: " and ".join(point.module for point in points) for name, points in added().items()}
    return {**{name: f"of {package}" for name, package in packages.items()}, **lines}


def find(name: str, where: str = "recipe") -> Recipe:
    """Return the recipe of this name, or that of the task FILE.py:TASK or MODULE:TASK.

    Raises: ChoiceError, also for one that cannot be loaded and for a name given twice.

    >>> find("ppo").chosen_by, find("examples/text_task.py:SAFE").folder
    ('env', 'safe-{algorithm}-{seed}')
    """
    if ":" in name:
        by_task: Recipe = _there(TASK)(name)
        return by_task
    ours = own()
    points = choose(where, name, {**dict.fromkeys(ours, ()), **added()})
    packages = [*(["purestep"] if name in ours else ()), *(point.value for point in points)]
    if len(packages) > 1:
        got, remedy = f"a recipe of {' and '.join(packages)}", "uninstall a package, or rename its recipe"
        raise ChoiceError(message(f"recipe {name!r}", got=got, wanted="one recipe of a name", remedy=remedy))
    return _own(name) if name in ours else _load(next(iter(points)))


@cache
def _own(name: str) -> Recipe:
    found = _there(own()[name])
    recipe: Recipe = found[name] if isinstance(found, Mapping) else found
    return recipe


def _there(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"..{module}", __package__), attribute)


def _load(point: EntryPoint) -> Recipe:
    where, wanted = f"recipe {point.name!r} ({point.value})", "a purestep.runtime.runs.recipe.Recipe of that name"
    try:
        found: Any = point.load()
    except Exception as fault:  # importing runs the module, which may raise anything
        got = f"not to be loaded ({type(fault).__name__}: {' '.join(str(fault).split())[:160]})"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy="mend or uninstall its package")) from fault
    recipe: Recipe | None = found if isinstance(found, Recipe) and not isinstance(found, type) else None
    if recipe is None or recipe.name != point.name:
        got = type(found).__name__ if recipe is None else f"one named {recipe.name!r}"
        raise ChoiceError(message(where, got=got, wanted=wanted, remedy="mend or uninstall its package"))
    return recipe


def recipe_of(described: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a run's record names. Raises: CheckpointError."""
    try:
        return find(str(described.get("recipe", "")), "checkpoint: recipe")
    except ChoiceError as fault:
        raise CheckpointError(str(fault)) from fault

"""A recipe: a training pipeline with a name, as one value with all that `purestep` and `run` need.

A package adds recipes in the entry-point group `purestep.recipes`, each a `Recipe` in one of its modules:

    [project.entry-points."purestep.recipes"]
    hill = "hill_climbing:RECIPE"

`defaults` and `check` import no torch, so that help and refusals come at once; all else is imported when it is called.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import Factory, frozen

from ..deferred import deferred
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


def _accepted(arguments: Any) -> None:
    """Accept any arguments."""


def _same(settings: Mapping[str, Any], schema: int) -> Mapping[str, Any]:
    """Return the settings of an older schema as they are."""
    return settings


def _suitable(arguments: Any, options: Any) -> None:
    """Accept any options."""


Lines = Iterator[str]
Program = Callable[[Callable[[], Any]], int]  # (function that returns the store of checkpoints) -> exit code
Lead = Callable[[Sequence[str], Program], int]  # (words, program) -> exit code


def _unknown(arguments: Mapping[str, Any]) -> float | None:
    """Return no threshold."""
    return None


START, RESUME = (deferred(str(__package__), "run", name) for name in ("start", "resume"))
CURVES = deferred(str(__package__), "curves", "curve_lines")


@frozen(kw_only=True)
class Recipe:
    """A training pipeline with a name.

    `defaults(words)` are the default arguments of a command line: an attrs class of names, numbers and groups of these.
    `build(arguments, context)` builds the run. Options are attrs classes too, with defaults for a command line that leaves them
    out, and with `check()`, which refuses invalid ones; a field `words` is set to the words of the command. `start` and
    `resume` return an `SessionResult`; `report`, `evaluate` and `plot` the lines to print.
    """

    name: str
    about: str  # a line of `purestep train --help`
    defaults: Callable[[Sequence[str]], Any]
    build: Callable[[Any, Context], Components | Phases]
    evaluate: Callable[[Path, Any, Notice], Lines]  # (run, options, notice)
    check: Callable[[Any], None] = _accepted  # raises ChoiceError, by the name of the flag
    schema: int = 0  # the number of its settings' schema, of a recipe of another package: raise it when they change
    # (settings of an older schema, its number) -> those of today, of a recipe of another package; ours are in `migrations`
    migrate: Callable[[Mapping[str, Any], int], Mapping[str, Any]] = _same
    ready: Callable[[Any, Any], None] = _suitable  # (arguments, closing or resuming options): raises ChoiceError
    chosen_by: str = ""  # the argument whose value decides the other defaults
    # the folder in runs/ of a run that is given none, arguments in braces; by default the name, and the seed if there is one
    folder: str = ""
    title: Callable[[Any], str] = Factory(lambda self: lambda arguments: self.name, takes_self=True)
    # runs a program on all ranks that a launcher has started; () allows one process alone
    lead: Lead | tuple[()] = ()
    words: Callable[[list[str]], list[str]] = list  # the words of `train`, a file of settings replaced by its flags
    notes: str = ""  # a paragraph of the help of `train`
    start: Callable[..., SessionResult] = START  # (run, recipe, arguments, *, options, overwrite, notice, store)
    resume: Callable[..., SessionResult] = (
        RESUME  # (run, *, options, notice, store), and `changes` where `moving` has any
    )
    closing: Callable[[], Any] = Nothing  # options of `train` besides the arguments, for `report`
    resuming: Callable[[], Any] = Nothing  # options of `resume`, also for `report`
    moving: Callable[[], Any] = Nothing  # arguments that `resume` may change; those that are None stay
    evaluating: Callable[[], Any] = Nothing  # options of `evaluate`
    plotting: Callable[[], Any] = Nothing  # options of `plot`
    report: Callable[[Path, Any, Notice], Lines] = Factory(lambda self: self.evaluate, takes_self=True)
    plot: Callable[[Sequence[Path], Path | tuple[()], Any], Lines] = CURVES  # (runs, picture or (), options)
    metric: str = "episode_return"  # the column of metrics that the learning curve shows
    solved: Callable[[Mapping[str, Any]], float | None] = _unknown  # (flat arguments) -> its value that solves the task
    # (run, trust) -> parts, parameters, arguments and version of a language model's run
    chat: Callable[[Path, Trust], Any] | tuple[()] = ()

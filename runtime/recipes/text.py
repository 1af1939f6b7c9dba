"""The recipes of language models at tasks: Zorplex, and a task of somebody's own, FILE.py:TASK. Imports no torch.

Any settings class that follows `TextConfig` makes such a recipe: see `text_recipe`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from attrs import evolve, frozen

from ...core.errors import ChoiceError, choose, message
from ..deferred import deferred
from ..effects.experiment_flags import with_config
from ..effects.ranks.launched import launched, several, within_machine
from ..language.config import CHANGES, TaskRun, TextConfig
from ..runs.arguments import changed, check_whole, option
from ..runs.recipe import Recipe
from .zorplex import ABOUT, NAME, Zorplex

AS_TRAINED = -1


@frozen
class Moves:
    """Go on with a run from its newest checkpoint, with the arguments it was begun with; the samplers may move elsewhere."""

    # what starts generators from now on; as it was, unless given, and so are the others
    engine: Literal["processes", "monarch", "ray"] | None = None
    hosts: str | None = None  # where generators work from now on, each with `purestep host`; "" is this machine
    # how weights reach hosts: as fits them; by memory that all see; by Ray's object store; by Monarch's RDMA
    transfer: Literal["auto", "shared", "ray", "monarch"] | None = None
    trust_network: bool = False  # also use what no engine encrypts with other hosts
    devices: str | None = None  # of the generators in turn
    server: str | None = None  # the vLLM server that samples from now on, where one does
    trust: bool = False  # import the task that the run's folder names

    def check(self) -> None:
        """Refuse an empty address. Raises: ChoiceError."""
        if self.server == "":
            remedy = "leave it out to go on with its own"
            raise ChoiceError(message("--server", got="''", wanted="http://HOST:PORT/v1", remedy=remedy))


@frozen
class HeldOut:
    """Try held-out tasks with the newest checkpoint, as it samples and as it takes the likeliest token."""

    phase: Literal["", "sync", "async"] = ""  # of a run with generators; by default the last one there is
    tasks: int = 0  # how many; 0 means as many as the run was told
    draw: int = AS_TRAINED  # decides which; -1 means those of the run
    trust: bool = False  # import the task that the run's folder names

    def check(self) -> None:
        """Refuse numbers that mean nothing. Raises: ChoiceError."""
        check_whole("--tasks", self.tasks, 0)
        check_whole("--draw", self.draw, AS_TRAINED)


@frozen
class Over:
    """Draw one run in its pictures, or the success of several seeds in one."""

    over: Literal["samples", "seconds"] = "samples"  # what the success of several runs with generators is drawn over

    def check(self) -> None:
        """Accept them."""


def lead(words: Sequence[str], program: Callable[[Callable[[], Any]], int]) -> int:
    """Return the exit code of a program, on this process or on the first of several ranks, which do as it says.

    The program is given a function that returns the learner; that of one process imports torch when it is called.
    """
    if not several():
        return program(_alone)
    if "--trust-network" not in words:
        within_machine()
    from ..language.ranked import in_world  # here: it takes torch a second to import

    return in_world(lambda team: program(lambda: team))


def _alone() -> Any:
    from ..language.team import ALONE

    return ALONE


def text_recipe(name: str, about: str, settings: Callable[[], TextConfig], folder: str) -> Recipe:
    """Return the recipe of a settings class; `folder` names its runs by its arguments, in braces."""

    def defaults(words: Sequence[str]) -> TextConfig:
        algorithm = option(words, "--algorithm", "grpo")
        return changed(settings(), {**choose("--algorithm", algorithm, CHANGES), "algorithm": algorithm})

    return Recipe(
        name=name,
        about=about,
        defaults=defaults,
        build=deferred(__package__, "text_run", "components"),
        check=lambda arguments: arguments.check(),
        chosen_by="algorithm",
        folder=folder,
        title=partial(_title, name),
        lead=lead,
        words=with_config,
        start=deferred(__package__, "text_run", "start"),
        resume=deferred(__package__, "text_run", "resume"),
        resuming=Moves,
        evaluating=HeldOut,
        plotting=Over,
        report=deferred(__package__, "text_run", "report_lines"),
        evaluate=deferred(__package__, "text_run", "evaluation_lines"),
        plot=deferred(__package__, "text_run", "plot_lines"),
        chat=deferred(__package__, "text_run", "speaking"),
    )


def _title(name: str, arguments: TextConfig) -> str:
    ranks = f" on {launched()[1]} ranks" if several() else ""
    return f"{name} by {arguments.learning.algorithm}, {arguments.episodes.steps} steps{ranks}"


def task_recipe(reference: str) -> Recipe:
    """Return the recipe that trains at the task of that name, FILE.py:TASK or MODULE:TASK.

    >>> task_recipe("examples/text_task.py:SAFE").folder
    'safe-{algorithm}-{seed}'
    """
    name = reference.rpartition(":")[2].lower()

    def defaults(words: Sequence[str]) -> TextConfig:
        return changed(TEXT.defaults(words), {"reference": reference})

    folder = "".join(letter for letter in name if letter not in "{}/") + "-{algorithm}-{seed}"
    return evolve(TEXT, defaults=defaults, folder=folder, title=partial(_title, name))


ZORPLEX = text_recipe(NAME, ABOUT, Zorplex, "zorplex-{kind}-{algorithm}-{seed}")
TEXT = text_recipe(
    "text", "a language model learns a task of yours; or MODULE:TASK", TaskRun, "text-{algorithm}-{seed}"
)

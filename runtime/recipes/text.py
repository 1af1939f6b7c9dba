"""The recipes of language models at tasks: Zorplex, and a user's own task, FILE.py:TASK. Imports no torch.

Any settings class that follows `TextConfig` makes such a recipe: see `TextRecipe`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import Factory, evolve, frozen

from ..effects.distributed.launched import launched, several, within_machine
from ..effects.experiment_flags import ABOUT as CONFIG
from ..effects.experiment_flags import with_config
from ..runs.recipe import Components, Context, Lines, Notice, Options, Phases, Program, Recipe, SessionResult
from ..runs.trusting import Trust
from ..text.config import TaskRun, TextConfig, absolute, text_defaults
from . import cache, prompts
from .text_options import CacheMoving, Functions, HeldOut, Moves, NoPolicies, Over, Policies, TextMoving
from .zorplex import ABOUT, Zorplex, zorplex_defaults

TASK = "a language model learns a task of yours; or MODULE:TASK"


def _alone() -> Any:
    from ..text.build_learner import SINGLE_PROCESS

    return SINGLE_PROCESS


def _options(recipe: "TextRecipe") -> Options:
    settings, functions = recipe.settings, recipe.functions
    return Options(
        resume=Moves(functions=functions),
        changes=recipe.changes,
        evaluate=HeldOut(settings=settings, trial=settings.trial(), functions=functions),
        plot=Over(),
    )


@frozen(kw_only=True)
class TextRecipe(Recipe):
    """The recipe of a settings class that follows `TextConfig`."""

    about: str
    settings: Any  # the class
    name: str = Factory(lambda self: self.settings.recipe, takes_self=True)
    usual: Callable[[str], TextConfig]  # (algorithm) -> the default settings
    folder: str
    functions: Any = Factory(NoPolicies)  # options that name functions of the user
    changes: Any = Factory(TextMoving)  # settings that may change on resume
    label: str = Factory(lambda self: self.name, takes_self=True)  # in the title
    options: Options = Factory(_options, takes_self=True)
    notes = CONFIG
    chosen_by = "algorithm"

    def defaults(self, choice: str | None = None) -> TextConfig:
        """Return the default settings for an algorithm. Raises: ChoiceError."""
        return self.usual("grpo" if choice is None else choice)

    def check(self, settings: TextConfig, options: Any = ()) -> None:
        """Refuse settings with which nothing can be learnt. Raises: ChoiceError."""
        settings.check()

    def title(self, settings: TextConfig) -> str:
        """Return the task, the algorithm, the steps, and the ranks if there are several."""
        ranks = f" on {launched()[1]} ranks" if several() else ""
        return f"{self.label} by {settings.learning.algorithm}, {settings.episodes.steps} steps{ranks}"

    def words(self, words: list[str]) -> list[str]:
        """Return the words with the file after --config replaced by its flags. Raises: ChoiceError, StructureError."""
        return with_config(words)

    def lead(self, what: str, words: Sequence[str], program: Program) -> int:
        """Return the exit code of a program, run in this process or on the first of several ranks, which drives the others.

        The program receives a function that returns the learner; that of one process imports torch when it is called.
        """
        if not several():
            return program(_alone)
        if "--trust-network" not in words:
            within_machine()
        from ..text.distributed_learner import in_process_group  # here: it takes torch a second to import

        return in_process_group(lambda backend: program(lambda: backend))

    def resolve(self, settings: TextConfig, notice: Notice) -> TextConfig:
        """Return the settings with absolute paths, and with those that model and task determine. Raises: ChoiceError."""
        return absolute(settings.resolved(notice))

    def build(self, settings: TextConfig, context: Context) -> Components | Phases:
        """Return the run of these settings, with generators or without."""
        from . import text_run

        return text_run.build(settings, context)

    def resume(self, run: Path, *, options: Moves, **how: Any) -> SessionResult:
        """Resume a run, on ranks if ranks saved it, with samplers where the options say."""
        from . import text_run

        return text_run.resume(run, options=options, **how)

    def evaluate(self, run: Path, options: HeldOut, notice: Notice) -> Lines:
        """Try held-out tasks with the newest checkpoint."""
        from . import text_run

        return text_run.evaluation_lines(run, options, notice)

    def report(self, run: Path, options: Any, notice: Notice) -> Lines:
        """Try held-out tasks with the newest checkpoint, draw the run, and write its model."""
        from . import text_run

        return text_run.report_lines(run, notice)

    def plot(self, runs: Sequence[Path], out: Path | tuple[()], options: Over) -> Lines:
        """Draw one run in its pictures, or the success of several in one."""
        from . import text_run

        return text_run.plot_lines(runs, out, options)

    def sampler(self, run: Path, trust: Trust) -> Any:
        """Return parts, parameters, settings and version of a run's newest checkpoint, to sample from."""
        from . import text_run

        return text_run.sampler_of(run, trust)


def task_recipe(reference: str) -> TextRecipe:
    """Return the recipe that trains at the task of this name, FILE.py:TASK or MODULE:TASK.

    >>> task_recipe("examples/text_task.py:SAFE").folder
    'safe-{algorithm}-{seed}'
    """
    name = reference.rpartition(":")[2].lower()
    folder = "".join(letter for letter in name if letter not in "{}/") + "-{algorithm}-{seed}"
    usual = partial(text_defaults, TaskRun(reference=reference))
    return evolve(OWN_TASK, usual=usual, folder=folder, label=name)


ZORPLEX = TextRecipe(about=ABOUT, settings=Zorplex, usual=zorplex_defaults, folder="zorplex-{kind}-{algorithm}-{seed}")
CACHE = TextRecipe(
    about=cache.ABOUT,
    settings=cache.Cache,
    usual=cache.cache_defaults,
    folder="{kind}-cache-{algorithm}-{seed}",
    functions=Policies(),
    changes=CacheMoving(),
)
TEXT = TextRecipe(
    about=prompts.ABOUT,
    settings=prompts.PromptRun,
    usual=prompts.prompt_defaults,
    folder="text-{algorithm}-{seed}",
    functions=Functions(),
)
OWN_TASK = TextRecipe(
    about=TASK, settings=TaskRun, usual=partial(text_defaults, TaskRun()), folder="task-{algorithm}-{seed}"
)

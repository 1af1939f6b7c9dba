"""The recipes of language models at tasks: Zorplex, and a user's own task, FILE.py:TASK. Imports no torch.

Any settings class that follows `TextConfig` makes such a recipe: see `text_recipe`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import tyro
from attrs import evolve, field, frozen

from ...core.errors import ChoiceError, message
from ..deferred import deferred
from ..effects.distributed.launched import launched, several, within_machine
from ..effects.experiment_flags import ABOUT as CONFIG
from ..effects.experiment_flags import with_config
from ..runs.arguments import changed, flatten, option
from ..runs.recipe import Program, Recipe
from ..runs.trusting import Trust
from ..text.config import TaskRun, TextConfig, text_defaults
from . import cache, prompts
from .zorplex import ABOUT, Zorplex, zorplex_defaults

TASK = "a language model learns a task of yours; or MODULE:TASK"


@frozen
class NoPolicies:
    """No functions that a run's folder names."""


@frozen
class Policies:
    """Functions of yours that a run's folder names: they are called only if named here, or with --trust."""

    solution_rollout_policy: str = ""  # the function of that name
    summarization_rollout_policy: str = ""  # the function of that name


@frozen
class Functions:
    """Reward functions and tools that a run's folder names: they are called only if named here, or with --trust."""

    reward: tuple[str, ...] = ()  # the reward functions of these names
    tools: tuple[str, ...] = ()  # the tools of these names


@frozen
class Moves:
    """Go on with a run from its newest checkpoint, with the arguments it was begun with; the samplers may move elsewhere."""

    # what starts generators from now on; as it was, unless given, and so are the others
    engine: Literal["processes", "monarch", "ray"] | None = None
    hosts: str | None = None  # where generators work from now on, each with `purestep host`; "" is this machine
    # how weights reach hosts: as fits them; by memory that all see; by Ray's object store; by Monarch's RDMA
    transfer: Literal["auto", "shared", "ray", "monarch"] | None = None
    trust_network: tyro.conf.FlagCreatePairsOff[bool] = False  # also use what no engine encrypts with other hosts
    devices: str | None = None  # of the generators in turn
    server: str | None = None  # the vLLM server that samples from now on, where one does
    server_seconds: float | None = None  # to wait for a server that is not there yet
    functions: Annotated[Any, tyro.conf.arg(name="")] = NoPolicies()
    trust: tyro.conf.FlagCreatePairsOff[bool] = False  # import the task or the functions that the run's folder names
    words: tyro.conf.Suppress[tuple[str, ...]] = ()  # of the command line

    def check(self) -> None:
        """Refuse an empty address. Raises: ChoiceError."""
        if self.server == "":
            remedy = "leave it out to go on with its own"
            raise ChoiceError(message("--server", got="''", wanted="http://HOST:PORT/v1", remedy=remedy))


@frozen
class ChangedTextNumbers:
    """Numbers that change from now on; those that are not given stay."""

    steps: int | None = None  # of training in all, more than before; a learning rate that anneals then ends later
    learning_rate: float | None = None  # of AdamW
    weight_decay: float | None = None  # of AdamW
    max_gradient_norm: float | None = None  # longer gradients are shortened to it
    clip: float | None = None  # how far a ratio may fall
    clip_high: float | None = None  # how far a ratio may rise; of cispo, where its weight is cut
    kl: float | None = None  # weight of the divergence from the policy before reinforcement, where there is one
    entropy_coefficient: float | None = None  # weight of the policy's entropy
    budget: int | None = None  # tokens that go through the model at once, at most
    generators: int | None = None  # workers that sample beside the trainer, of a run that has some
    eval_every_n_versions: int | None = None  # updates between two evaluations on the way; 0 means none
    held_out: int | None = None  # tasks of the evaluation at the end, of a run without generators
    draw: int | None = None  # decides which tasks are held out, of a run without generators


@frozen
class TextMoving:
    """Settings that change from now on; those that are not given stay."""

    numbers: ChangedTextNumbers = field(factory=ChangedTextNumbers)
    temperature: float | None = None  # of training's samples
    eval_samples: int | None = None  # attempts at each held-out task, of a run without generators

    def check(self) -> None:
        """Accept any options: the recipe checks its arguments."""


@frozen
class CacheMoving:
    """Settings that change from now on; those that are not given stay."""

    numbers: ChangedTextNumbers = field(factory=ChangedTextNumbers)
    llm_temperature: float | None = None  # of training's samples

    def check(self) -> None:
        """Accept any options: the recipe checks its arguments."""


@frozen
class HeldOut:
    """Try held-out tasks with the newest checkpoint, as it samples and as it takes the likeliest token."""

    settings: tyro.conf.Suppress[Callable[[], TextConfig]]
    trial: Annotated[Any, tyro.conf.arg(name="")]  # the options of the recipe
    functions: Annotated[Any, tyro.conf.arg(name="")]
    server: str | None = None  # the vLLM server that samples, where one does; '' is this process
    phase: Literal["", "sync", "async"] = ""  # of a run with generators; by default the last one there is
    trust: tyro.conf.FlagCreatePairsOff[bool] = False  # import the task or the functions that the run's folder names
    words: tyro.conf.Suppress[tuple[str, ...]] = ()  # of the command line

    def check(self) -> None:
        """Refuse invalid numbers. Raises: ChoiceError."""
        self.settings().evaluated(self.trial)


def trust_of(options: Moves | HeldOut) -> Trust:
    """Return the functions that a command line trusts."""
    named = flatten(options.functions).values()
    names = tuple(" ".join(value) if isinstance(value, tuple) else value for value in named)
    return Trust(names, options.trust, options.words)


@frozen
class Over:
    """Draw one run in its pictures, or the success of several seeds in one."""

    over: Literal["samples", "seconds"] = "samples"  # what the success of several runs with generators is drawn over

    def check(self) -> None:
        """Accept any options."""


def lead(words: Sequence[str], program: Program) -> int:
    """Return the exit code of a program, run in this process or on the first of several ranks, which drives the others.

    The program receives a function that returns the learner; that of one process imports torch when it is called.
    """
    if not several():
        return program(_alone)
    if "--trust-network" not in words:
        within_machine()
    from ..text.distributed_learner import in_process_group  # here: it takes torch a second to import

    return in_process_group(lambda backend: program(lambda: backend))


def _alone() -> Any:
    from ..text.learner_backend import SINGLE_PROCESS

    return SINGLE_PROCESS


def text_recipe(
    about: str,
    settings: Any,
    folder: str,
    usual: Callable[[str], TextConfig],
    functions: Callable[[], Any] = NoPolicies,
    moving: Callable[[], Any] = TextMoving,
) -> Recipe:
    """Return the recipe of a settings class; `folder` names its runs by its arguments, in braces.

    `usual(algorithm)` are the default settings of a run; `functions` are options that name functions of the user, `moving`
    those that may change on resume.
    """
    name = settings.recipe

    return Recipe(
        name=name,
        about=about,
        defaults=lambda words: usual(option(words, "--algorithm", "grpo")),
        build=deferred(str(__package__), "text_run", "build"),
        check=lambda arguments: arguments.check(),
        chosen_by="algorithm",
        folder=folder,
        title=partial(_title, name),
        lead=lead,
        words=with_config,
        notes=CONFIG,
        start=deferred(str(__package__), "text_run", "start"),
        resume=deferred(str(__package__), "text_run", "resume"),
        resuming=lambda: Moves(functions=functions()),
        moving=moving,
        evaluating=lambda: HeldOut(settings=settings, trial=settings.trial(), functions=functions()),
        plotting=Over,
        report=deferred(str(__package__), "text_run", "report_lines"),
        evaluate=deferred(str(__package__), "text_run", "evaluation_lines"),
        plot=deferred(str(__package__), "text_run", "plot_lines"),
        chat=deferred(str(__package__), "text_run", "speaking"),
    )


def _title(name: str, arguments: TextConfig) -> str:
    ranks = f" on {launched()[1]} ranks" if several() else ""
    return f"{name} by {arguments.learning.algorithm}, {arguments.episodes.steps} steps{ranks}"


def task_recipe(reference: str) -> Recipe:
    """Return the recipe that trains at the task of this name, FILE.py:TASK or MODULE:TASK.

    >>> task_recipe("examples/text_task.py:SAFE").folder
    'safe-{algorithm}-{seed}'
    """
    name = reference.rpartition(":")[2].lower()

    def defaults(words: Sequence[str]) -> TextConfig:
        usual: TextConfig = OWN_TASK.defaults(words)
        return changed(usual, {"reference": reference})

    folder = "".join(letter for letter in name if letter not in "{}/") + "-{algorithm}-{seed}"
    return evolve(OWN_TASK, defaults=defaults, folder=folder, title=partial(_title, name))


ZORPLEX = text_recipe(ABOUT, Zorplex, "zorplex-{kind}-{algorithm}-{seed}", zorplex_defaults)
CACHE = text_recipe(
    cache.ABOUT, cache.Cache, "{kind}-cache-{algorithm}-{seed}", cache.cache_defaults, Policies, CacheMoving
)
TEXT = text_recipe(prompts.ABOUT, prompts.PromptRun, "text-{algorithm}-{seed}", prompts.prompt_defaults, Functions)
OWN_TASK = text_recipe(TASK, TaskRun, "task-{algorithm}-{seed}", partial(text_defaults, TaskRun()))

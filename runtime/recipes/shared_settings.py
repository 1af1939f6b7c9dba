"""Flags of recipes: settings in groups that recipes share, options of a run's end, and their checks. Imports no torch.

The command line is generated from these classes; the settings of an algorithm come from its signature (`algorithm_flags`).
"""

import ast
import math
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Protocol

from attrs import field, frozen

from ...core.errors import ChoiceError, choose, message
from ..effects.gymnasium_name import check_gymnasium_name, is_gymnasium_name
from ..effects.module_reference import is_reference
from ..runs.arguments import (
    SEEDS,
    check_device,
    check_memory,
    check_numbers,
    check_threads,
    check_whole,
    check_wholes,
    processors,
)
from ..runs.training_machine import Loop, plan
from .algorithm_flags import source_of


@cache
def env_names() -> tuple[str, ...]:
    """Return the names of purestep's environments, read from the text of `core.envs.ENVS`, whose import needs torch.

    >>> env_names()[0]
    'cartpole'
    """
    rows = (node for node in ast.parse(source_of("purestep.core.envs")).body if isinstance(node, ast.AnnAssign))
    tables = (row.value for row in rows if ast.unparse(row.target) == "ENVS" and isinstance(row.value, ast.Dict))
    return tuple(ast.literal_eval(key) for key in next(tables).keys if key)


def check_env(name: str) -> None:
    """Refuse a name of no environment: of purestep's, of Gymnasium's behind gym:, or a reference. Raises: ChoiceError.

    >>> check_env("cartpole"), check_env("boat.py:BOAT")
    (None, None)
    """
    if is_gymnasium_name(name):
        check_gymnasium_name(name)
    elif not is_reference(name):
        choose("--env", name, dict.fromkeys(env_names()))


@frozen
class ExperienceOptions:
    """The source of experience."""

    env: str  # one of purestep's by name, one of Gymnasium's as gym:ID, or yours: FILE.py:NAME or MODULE:NAME of an Env
    seed: int = 0  # every random number of the run follows from it
    steps: int = 500_000  # in the environment, all worlds together; rounded up to whole chunks of iterations
    envs: int = 4  # worlds that are played side by side
    horizon: int = 128  # steps in each of them from one update to the next
    normalize: Literal["none", "observations", "rewards", "both"] = "none"  # what is scaled by its running spread
    probes: tuple[str, ...] = ()  # names that your environment gives to `probe`: their means and extremes are metrics


@frozen
class Learner:
    """The networks, and the settings by which they learn."""

    hidden: tuple[int, ...] = (64, 64)  # sizes of the hidden layers, of policy and value each
    activation: Literal["elu", "gelu", "identity", "relu", "silu", "tanh"] = "tanh"  # between the layers
    memory: Literal["none", "gru", "lstm", "min_gru"] = "none"  # a cell in place of the last hidden layer, for both
    critic: Literal["own", "all"] = "own"  # of several agents: the values see an agent's own observation, or all
    agents: Literal["shared", "own"] = "shared"  # of several agents: the same parameters for all, or each its own
    action_bounds: Literal["auto", "clip", "squash"] = "auto"  # of a Box: clip what the env gets, or squash samples
    learning_rate: float = 2.5e-4  # of Adam
    anneal: bool = True  # let the learning rate fall to 0 over the run
    max_gradient_norm: float = 0.5  # longer gradients are shortened to it


ROW = 40  # bytes of a step in a trajectory, at least
WEIGHT = 32  # bytes of a weight of policy and value, with its gradient and the two averages of Adam
EPISODE = 100  # bytes of an episode of an evaluation, which are all played at once
THREAD_PRODUCTS = 8_000_000  # multiply-adds of a minibatch for which a thread is worth starting


@frozen
class Process:
    """Threads, compilation and checkpoints."""

    threads: int | Literal["auto"] = 1  # of PyTorch; auto: several for large minibatches; a sweep splits its runs
    checkpoints: int = 10  # written in the course of the run, the last at its end; three are kept
    backend: Literal["inductor", "aot_eager", "none"] = "inductor"  # of the compiler; "none" is slow and easy to debug
    device: str = "cpu"  # of the learner and its worlds: cpu, cuda or cuda:N; `evaluate` runs on the CPU


@frozen
class Moving:
    """Another device for a run that goes on."""

    device: str | None = None  # to go on on: cpu, cuda or cuda:N; by default the run's own

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        if self.device is not None:
            check_device(self.device)


@frozen
class ChangedNumbers:
    """Numbers that change from now on; those that are not given stay."""

    steps: int | None = None  # of the whole run, more than before; a learning rate that anneals then ends later
    learning_rate: float | None = None  # of Adam
    max_gradient_norm: float | None = None  # longer gradients are shortened to it


@frozen(kw_only=True)
class Changes:
    """Settings that change from now on; those that are not given stay."""

    moving: Moving = field(factory=Moving)
    numbers: ChangedNumbers = field(factory=ChangedNumbers)
    algorithm: Any  # its own

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        self.moving.check()


class Sized(Protocol):
    """Settings with the amount of experience."""

    @property
    def steps(self) -> int:
        """Return the environment steps of the whole run."""
        ...

    @property
    def envs(self) -> int:
        """Return the number of parallel environments."""
        ...

    @property
    def horizon(self) -> int:
        """Return the steps in each environment from one update to the next."""
        ...


def iteration_steps(experience: Sized) -> int:
    """Return the environment steps from one update to the next."""
    return experience.envs * experience.horizon


def loop_of(experience: Sized, process: Process) -> Loop:
    """Return the initial loop state of a run, with its length and its chunks."""
    return plan(math.ceil(experience.steps / iteration_steps(experience)), process.checkpoints)


def run_steps(arguments: Any) -> int:
    """Return the environment steps of a recipe's whole run: those asked for, rounded up to whole chunks."""
    return loop_of(arguments.experience, arguments.process).iterations * iteration_steps(arguments.experience)


def thread_count(process: Process, products: int) -> int:
    """Return the number of threads of a run.

    "auto" takes one for each 8 million multiply-adds in the matrix products of a minibatch, up to the number of processors.
    Beyond that a second thread gains, if no other program uses its processor (docs/measured.md).

    >>> thread_count(Process(threads=3), 0), thread_count(Process(threads="auto"), 1_000_000)
    (3, 1)
    >>> thread_count(Process(threads="auto"), 10**12) == processors()
    True
    """
    return max(1, min(processors(), products // THREAD_PRODUCTS)) if process.threads == "auto" else process.threads


def check_shared(experience: ExperienceOptions, learner: Learner, process: Process) -> None:
    """Refuse numbers with which nothing can be trained, by the name of their flag. Raises: ChoiceError."""
    check_env(experience.env)
    if is_gymnasium_name(experience.env) and experience.probes:
        remedy = "leave --probes out, or write the environment as an Env"
        wanted = "none: an environment of Gymnasium's has no probes"
        raise ChoiceError(message("--probes", got=", ".join(experience.probes), wanted=wanted, remedy=remedy))
    check_whole("--seed", experience.seed, 0, SEEDS)
    check_wholes(experience, 1, "steps", "envs", "horizon")
    for size in learner.hidden:
        check_whole("--hidden", size, 1)
    check_threads(process.threads)
    check_device(process.device)
    check_wholes(process, 1, "checkpoints")
    check_numbers(learner, 0.0, 1.0, "learning_rate")
    check_numbers(learner, 0.0, math.inf, "max_gradient_norm")
    sizes = (1, *learner.hidden, 1)
    needs = {
        "--envs x --horizon": ROW * iteration_steps(experience),
        "--hidden": WEIGHT * sum(one * other for one, other in pairwise(sizes)),
    }
    check_memory(needs, device=process.device)


def check_memory_cell(experience: Sized, learner: Learner, algorithm: Any) -> None:
    """Refuse a memory where the algorithm has none or its minibatches do not divide the environments. Raises: ChoiceError.

    >>> check_memory_cell(ExperienceOptions(env="cartpole"), Learner(memory="gru"), ())
    """
    if learner.memory == "none":
        return
    if hasattr(algorithm, "replay_size"):
        wanted, remedy = "none with a replay buffer", "train it by ppo, a2c or reinforce"
        raise ChoiceError(message("--memory", got=learner.memory, wanted=wanted, remedy=remedy))
    if not learner.hidden:
        raise ChoiceError(message("--hidden", got="()", wanted="the size of the memory", remedy="pass --hidden 64"))
    minibatches = getattr(algorithm, "minibatches", 1)
    if experience.envs % minibatches:
        wanted = f"a multiple of --minibatches {minibatches}: with a memory they are of whole sequences"
        raise ChoiceError(message("--envs", got=experience.envs, wanted=wanted, remedy="change one of them"))


def check_minibatches(experience: Sized, algorithm: Any) -> None:
    """Refuse an iteration that its minibatches do not divide. Raises: ChoiceError."""
    rows, minibatches = iteration_steps(experience), getattr(algorithm, "minibatches", 1)
    if rows % minibatches:
        got, wanted = f"{rows} steps an iteration", f"a multiple of --minibatches {minibatches}"
        raise ChoiceError(message("--envs x --horizon", got=got, wanted=wanted, remedy="change one of the three"))


def passes_of(algorithm: Any) -> tuple[int, int]:
    """Return the epochs and minibatches of an algorithm's settings, or its updates; one each where it has none.

    >>> passes_of(())
    (1, 1)
    """
    return getattr(algorithm, "epochs", 1), getattr(algorithm, "minibatches", getattr(algorithm, "updates", 1))


def batch_rows(experience: Sized, algorithm: Any) -> int:
    """Return the rows of which an update computes its gradient."""
    return int(getattr(algorithm, "batch_size", iteration_steps(experience) // passes_of(algorithm)[1]))


def check_replay(experience: ExperienceOptions, algorithm: Any) -> None:
    """Refuse settings that do not fit a replay buffer, if the algorithm has one. Raises: ChoiceError.

    >>> check_replay(ExperienceOptions(env="cartpole", normalize="both"), Playing())
    """
    size = getattr(algorithm, "replay_size", None)
    if size is None:
        return
    if experience.normalize != "none":
        wanted, remedy = "none: a replay buffer keeps what older statistics scaled", "scale in the environment"
        raise ChoiceError(message("--normalize", got=experience.normalize, wanted=wanted, remedy=remedy))
    for name, rows in (
        ("--envs x --horizon", iteration_steps(experience)),
        ("--learning-starts", algorithm.learning_starts),
    ):
        if rows > size:
            wanted = f"at most --replay-size {size}"
            raise ChoiceError(message(name, got=f"{rows} transitions", wanted=wanted, remedy="lower it, or keep more"))


def check_episodes(episodes: int) -> None:
    """Refuse a number of episodes that cannot be played. Raises: ChoiceError.

    >>> check_episodes(0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --episodes is 0, wanted at least 1; change it
    """
    check_whole("--episodes", episodes, 1)
    check_memory({"--episodes": EPISODE * episodes})


@frozen
class Playing:
    """Episodes, played by the policy."""

    episodes: int = 100  # of the evaluation at the end

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_episodes(self.episodes)


@frozen
class Resuming:
    """Episodes, played by the policy, and trust in an environment."""

    episodes: int = 100  # of the evaluation at the end
    trust: bool = False  # import the environment that the run's folder names

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_episodes(self.episodes)


@frozen
class PlayedEpisodes:
    """Play episodes with the newest checkpoint's policy."""

    episodes: int = 100  # how many
    seed: int = 0  # decides where they begin
    action: Literal["mode", "sample"] = "mode"  # "mode" takes the likeliest action, "sample" draws one
    trust: bool = False  # import the environment that the run's folder names

    def check(self) -> None:
        """Refuse invalid options. Raises: ChoiceError."""
        check_episodes(self.episodes)

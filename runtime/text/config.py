"""Settings of a language model's run, whatever its task: names, numbers and the checks that refuse them. Imports no torch."""

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from attrs import field, frozen

from ...core.errors import ChoiceError, choose, message
from ..runs.arguments import (
    SEEDS,
    changed,
    check_memory,
    check_numbers,
    check_threads,
    check_whole,
    check_wholes,
    flag,
    flatten,
)
from .async_config import AsyncConfig, check_asynchronous

if TYPE_CHECKING:
    from ...core.language.task import TextTask

A = TypeVar("A", bound="TextConfig")
WARM_STEPS = 400  # of a small Llama, where the task has demonstrations
LAYER, ATTEMPT, INDEX = 20_000, 1000, 32  # bytes of a layer's objects, of an attempt or task, and of a number in a list
TOKEN, CALL = 8, 16  # bytes of a sampled token, and of a call of the model
ALONE = ("reinforce", "ppo")  # algorithms that compare no attempts at one task
Algorithm = Literal["reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "ppo"]


@frozen
class EpisodeLimits:
    """Number and length of episodes."""

    max_turns: int = 5  # calls of the model in an episode
    seed: int = 0  # every random number of the run follows from it
    steps: int = 100  # of training, each on fresh tasks
    groups: int = 16  # tasks of a step
    samples: int = 8  # attempts at each of them
    held_out: int = 256  # tasks of the evaluation, before reinforcement and at the end
    eval_samples: int = 1  # attempts at each of these; of several, pass@k is reported
    draw: int = 0  # decides which tasks are held out
    eval_every_n_versions: int = 0  # updates between two evaluations on the way; 0 means none
    # rounds of further tasks, at most, that replace a step's groups of equal rewards (DAPO); 0 keeps them
    resample: int = 0
    # passes in a row in which all attempts at a prompt are right, after which it is skipped in the next 3; 0 skips none
    skip_solved: int = 0


@frozen
class Sampling:
    """Sampling of completions."""

    temperature: float = 1.0  # of training's samples
    top_p: float = 1.0  # 1 keeps all tokens
    max_new_tokens: int = 16  # of one call
    capacity: int = 96  # tokens of an episode; one that grows longer is cut off
    slots: int = 128  # episodes that are sampled side by side
    server: str = ""  # sample from the vLLM server at this URL, http://127.0.0.1:8000/v1, that serves RUN/served
    server_seconds: float = 600.0  # to wait for a server that is not there yet
    # the log-probs that it returns: of the whole distribution, or, started with --logprobs-mode processed_logprobs, of the
    # one it samples from, which --temperature and --top-p other than 1 need
    server_log_probs: Literal["raw", "processed"] = "raw"


@frozen
class Model:
    """The model that is trained."""

    model: str = ""  # a folder of a Hugging Face model to train; without one a small Llama is made
    lora: int = 0  # train adapters of this rank in place of the model's weights
    width: int = 128  # of the small Llama
    layers: int = 3  # of the small Llama
    heads: int = 4  # of the small Llama; half as many have keys of their own
    vocabulary: int = 512  # tokens of its tokenizer, at most


@frozen
class WarmStart:
    """Supervised warm start on demonstrations."""

    # of the optimiser; -1 means the recipe's own for the small Llama, 400 (900 of cache), and none for a model from a folder
    warm_steps: int = -1
    demonstrations: int = 3200  # made once, and gone through again and again
    skill: float = 0.35  # the share of them that is right
    warm_batch: int = 32  # demonstrations of a step
    muon_rate: float = 0.02  # learning rate of hidden matrices
    # of Muon's orthogonal directions; bfloat16 is many times slower on a processor that has no instructions for it
    muon_precision: Literal["float32", "bfloat16"] = "float32"
    adamw_rate: float = 3e-3  # and of all else


@frozen
class Learning:
    """The learning algorithm and its hyperparameters."""

    algorithm: Algorithm = "grpo"  # how attempts at a task are held against each other
    learning_rate: float = 1e-3  # of AdamW
    anneal: bool = True  # let the learning rate fall to 0 over the run
    weight_decay: float = 0.0  # of AdamW
    max_gradient_norm: float = 1.0  # longer gradients are shortened to it
    epochs: int = 1  # passes over each step's samples
    minibatches: int = 2  # updates in each pass
    clip: float = 0.2  # how far a ratio may fall
    clip_high: float = 0.28  # how far a ratio may rise; of cispo, where its weight is cut
    truncated: Literal["keep", "mask", "down_weight", "drop", "bootstrap"] = "keep"  # what is made of samples cut off
    zero_spread: Literal["keep", "drop"] = "keep"  # what is made of groups all of whose attempts earned the same
    kl: float = 0.0  # weight of the divergence from the policy before reinforcement
    kl_in: Literal["loss", "reward"] = "loss"  # where that stands
    entropy_coefficient: float = 0.0  # weight of the policy's entropy
    correction: Literal["none", "truncate", "mask"] = "none"  # against a sampler that is not quite the policy
    budget: int = 2048  # tokens that go through the model at once, at most; of several ranks, through that of each


@frozen
class EvaluationOptions:
    """Held-out tasks of one evaluation."""

    tasks: int = 0  # how many; 0 means as many as the run was told
    draw: int = -1  # decides which; -1 means those of the run
    eval_samples: int = 0  # attempts at each of them; 0 means as many as in the run


@frozen
class Hardware:
    """Threads, checkpoints and metrics."""

    threads: int = 1  # of PyTorch
    save_every: int = 1  # steps between two checkpoints; three are kept
    wandb: str = ""  # a project of Weights & Biases that also gets the metrics (extra wandb)


@frozen
class Conversations:
    """Conversations of training that are kept, for `purestep view`."""

    keep_conversations: int = 16  # groups of each step whose attempts are kept in conversations.jsonl; 0 means none
    conversations_megabytes: int = 256  # of that file, at most; beyond them the oldest steps are removed


class TextConfig(Protocol):
    """The settings of a run; each recipe's class has these groups, and groups of its own for its task."""

    recipe: ClassVar[str]  # the name under which a run's folder remembers the recipe
    trial: ClassVar[type[Any]]  # the options of an evaluation
    files: ClassVar[tuple[str, ...]]  # settings that name files and folders

    @property
    def episodes(self) -> EpisodeLimits:
        """Return the number and the length of episodes."""
        ...

    @property
    def sampling(self) -> Sampling:
        """Return the settings of sampling."""
        ...

    @property
    def model(self) -> Model:
        """Return the settings of the model that is trained."""
        ...

    @property
    def warm(self) -> WarmStart:
        """Return the settings of the warm start."""
        ...

    @property
    def learning(self) -> Learning:
        """Return the settings of the learner."""
        ...

    @property
    def asynchronous(self) -> AsyncConfig:
        """Return the settings of generators."""
        ...

    @property
    def conversations(self) -> Conversations:
        """Return the settings of the conversations that are kept."""
        ...

    @property
    def machine(self) -> Hardware:
        """Return the settings of the hardware."""
        ...

    def check(self) -> None:
        """Refuse settings with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
        ...

    def task(self) -> "TextTask":
        """Return the task. Imports torch. Raises: ChoiceError."""
        ...

    def resolved(self, notice: Callable[[str], None]) -> "TextConfig":
        """Return the settings of a new run, with those that its task determines. May import torch. Raises: ChoiceError."""
        ...

    def usual_warm_steps(self) -> int:
        """Return the steps of a warm start of the small Llama where none are given."""
        ...

    def functions(self) -> Mapping[str, str]:
        """Return the functions `module.function` that the task calls, by the names of their settings."""
        ...

    def evaluated(self, trial: Any) -> "TextConfig":
        """Return the settings for an evaluation with these options. Raises: ChoiceError."""
        ...

    def examined(self) -> Mapping[str, int]:
        """Return the numbers that define an evaluation, by the names of its options."""
        ...


def absolute(arguments: A) -> A:
    """Return the settings with absolute paths, so that a run can be resumed from any working directory.

    >>> absolute(TaskRun()) == TaskRun()
    True
    """
    known = flatten(arguments)
    there = {name: Path(known[name]) for name in arguments.files if known[name] and Path(known[name]).exists()}
    return changed(arguments, {name: str(path.absolute()) for name, path in there.items()})


def evaluated_tasks(arguments: A, trial: EvaluationOptions) -> A:
    """Return the settings for an evaluation on other held-out tasks. Raises: ChoiceError.

    >>> evaluated_tasks(TaskRun(), EvaluationOptions(tasks=8)).episodes.held_out
    8
    """
    check_whole("--tasks", trial.tasks, 0)
    check_whole("--draw", trial.draw, -1)
    check_whole("--eval-samples", trial.eval_samples, 0)
    given = {"held_out": trial.tasks, "eval_samples": trial.eval_samples}
    changes = {name: value for name, value in given.items() if value}
    return changed(arguments, {**changes, **({"draw": trial.draw} if trial.draw >= 0 else {})})


def examined_tasks(arguments: "TextConfig") -> Mapping[str, int]:
    """Return the number of tasks of an evaluation, the draw that selects them, and the attempts at each.

    >>> examined_tasks(TaskRun())
    {'tasks': 256, 'draw': 0, 'eval_samples': 1}
    """
    episodes = arguments.episodes
    return {"tasks": episodes.held_out, "draw": episodes.draw, "eval_samples": episodes.eval_samples}


@frozen
class TaskRun:
    """A language model learns a task of yours by reinforcement."""

    recipe: ClassVar[str] = "task"
    trial: ClassVar[type[Any]] = EvaluationOptions
    files: ClassVar[tuple[str, ...]] = ("model",)
    reference: str = ""  # of the task: MODULE:NAME or FILE.py:NAME
    episodes: EpisodeLimits = field(factory=EpisodeLimits)
    sampling: Sampling = field(factory=Sampling)
    model: Model = field(factory=Model)
    warm: WarmStart = field(factory=WarmStart)
    learning: Learning = field(factory=Learning)
    asynchronous: AsyncConfig = field(factory=AsyncConfig)
    conversations: Conversations = field(factory=Conversations)
    machine: Hardware = field(factory=Hardware)

    def check(self) -> None:
        """Refuse settings with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
        check_text_settings(self)

    def task(self) -> "TextTask":
        """Return the task. Imports torch, and the task's module. Raises: ChoiceError."""
        from ..effects.task_reference import load_task

        return load_task(self.reference)

    def resolved(self, notice: Callable[[str], None]) -> "TaskRun":
        """Return the settings of a new run: an absolute path, and no warm start of a task without demonstrations."""
        from ..effects.task_reference import trust, with_absolute_path

        found: TaskRun = changed(self, {"reference": with_absolute_path(self.reference)})
        trust(found.reference)
        task = found.task()
        shown = task.demonstrations != () or task.conversations != ()
        return found if shown or found.warm.warm_steps >= 0 else changed(found, {"warm_steps": 0})

    def usual_warm_steps(self) -> int:
        """Return the steps of a warm start of the small Llama where none are given."""
        return WARM_STEPS

    def functions(self) -> Mapping[str, str]:
        """Return no functions: trust in a task's reference is checked separately."""
        return {}

    evaluated = evaluated_tasks
    examined = examined_tasks


def as_given(arguments: A, notice: Callable[[str], None]) -> A:
    """Return the settings as they are: no task determines any."""
    return arguments


def held_out_tasks(arguments: TextConfig) -> dict[str, Any]:
    """Return the arguments of `report.evaluation`: the number of held-out tasks, their draw, and the attempts at each.

    >>> held_out_tasks(TaskRun())
    {'tasks': 256, 'draw': 0, 'samples': 1}
    """
    episodes = arguments.episodes
    return {"tasks": episodes.held_out, "draw": episodes.draw, "samples": episodes.eval_samples}


def warm_steps(arguments: TextConfig) -> int:
    """Return the optimiser steps before reinforcement learning."""
    own = 0 if arguments.model.model else arguments.usual_warm_steps()
    return own if arguments.warm.warm_steps < 0 else arguments.warm.warm_steps


def generator_count(arguments: TextConfig) -> int:
    """Return the number of generators, the workers that sample for the trainer."""
    usual = 2 if arguments.asynchronous.mode == "async" else 0
    return usual if arguments.asynchronous.generators < 0 else arguments.asynchronous.generators


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "reinforce": {"minibatches": 1},  # its loss has no ratio to an older policy
    "rloo": {"minibatches": 1},
    "grpo": {},
    "dr_grpo": {},
    "dapo": {},
    "gspo": {"minibatches": 1, "clip": 3e-4, "clip_high": 4e-4},
    "cispo": {"clip_high": 5.0},
    "ppo": {"learning_rate": 5e-4},  # its critic lags behind: at 1e-3 a good policy may collapse
}


def text_defaults(settings: A, algorithm: str, **changes: Any) -> A:
    """Return the default settings of a run of an algorithm, with the recipe's own changes. Raises: ChoiceError.

    >>> text_defaults(TaskRun(), "cispo").learning.clip_high
    5.0
    """
    return changed(settings, {**choose("--algorithm", algorithm, CHANGES), "algorithm": algorithm, **changes})


def _needs(arguments: TextConfig) -> dict[str, float]:
    """Return lower bounds of the memory of a run, by the flags that determine it; `cache` has other names for some."""
    episodes, sampling, model, warm = arguments.episodes, arguments.sampling, arguments.model, arguments.warm
    attempts, tried = episodes.groups * episodes.samples, episodes.held_out * episodes.eval_samples
    own = not model.model
    held = 4 * model.layers * model.width if own else 4  # bytes of a token in the caches, whose heads are half as many
    rows, tokens = "--groups x --samples", "--slots x --max-new-tokens"
    if arguments.recipe == "cache":
        rows, tokens = "--problems x --states x --samples", "--slots x --llm-max-tokens"
    drawn = warm_steps(arguments) * warm.warm_batch
    return {
        "--layers x --width": float(model.layers * (LAYER + 16 * 4 * model.width**2)) if own else 0.0,
        rows: float(ATTEMPT * attempts),
        "--held-out x --eval-samples": float(ATTEMPT * tried),
        "--slots x --capacity": float(sampling.slots * sampling.capacity * held),
        f"{rows} x --max-turns": float(CALL * attempts * episodes.max_turns),
        tokens: float(TOKEN * sampling.slots * sampling.max_new_tokens),
        "--generator-slots x --capacity": float(arguments.asynchronous.generator_slots * sampling.capacity * held),
        "--demonstrations": float(ATTEMPT * warm.demonstrations) if drawn > 0 else 0.0,
        "--warm-steps x --warm-batch": float(INDEX * max(drawn, 0)),
    }


def check_text_settings(arguments: TextConfig) -> None:
    """Refuse settings with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
    episodes, sampling, model = arguments.episodes, arguments.sampling, arguments.model
    warm, learning = arguments.warm, arguments.learning
    check_whole("--seed", episodes.seed, 0, SEEDS)
    check_threads(arguments.machine.threads)
    check_wholes(episodes, 1, "steps", "groups", "samples", "max_turns", "held_out", "eval_samples")
    check_wholes(episodes, 0, "draw", "eval_every_n_versions", "resample", "skip_solved")
    check_wholes(sampling, 1, "max_new_tokens", "capacity", "slots")
    check_wholes(model, 1, "width", "layers", "heads")
    check_wholes(model, 0, "lora")
    check_wholes(warm, -1, "warm_steps")
    check_wholes(warm, 1, "demonstrations", "warm_batch")
    check_wholes(learning, 1, "epochs", "minibatches", "budget")
    check_wholes(arguments.machine, 1, "save_every")
    if arguments.machine.wandb and find_spec("wandb") is None:
        where, remedy = f"--wandb {arguments.machine.wandb}: the library wandb", "pip install 'purestep[wandb]'"
        raise ChoiceError(message(where, got="absent", wanted="installed", remedy=remedy))
    check_wholes(arguments.conversations, 0, "keep_conversations")
    check_wholes(arguments.conversations, 1, "conversations_megabytes")
    check_numbers(sampling, 1e-3, math.inf, "temperature")
    check_numbers(sampling, 1e-3, 1.0, "top_p")
    check_numbers(sampling, 0.0, math.inf, "server_seconds")
    check_numbers(warm, 0.0, 1.0, "skill", "muon_rate", "adamw_rate")
    check_numbers(learning, 0.0, 1.0, "learning_rate", "weight_decay")
    check_numbers(learning, 0.0, math.inf, "max_gradient_norm", "clip", "clip_high", "kl", "entropy_coefficient")
    if model.width % model.heads or model.heads % 2 or (model.width // model.heads) % 2:
        size, wanted = (model.width, model.heads), "an even number of heads, each of an even width"
        raise ChoiceError(message("--width and --heads", got=size, wanted=wanted, remedy="e.g. 128 and 4"))
    if learning.budget < sampling.capacity:
        wanted, remedy = (
            f"at least --capacity {sampling.capacity}",
            "the longest episode has to go through the model at once",
        )
        raise ChoiceError(message("--budget", got=learning.budget, wanted=wanted, remedy=remedy))
    if model.lora and not model.model:
        remedy = "adapters are for a model that knows something"
        raise ChoiceError(message("--lora", got="without --model", wanted="--model as well", remedy=remedy))
    number, algorithm = episodes.groups * episodes.samples, learning.algorithm
    if number < learning.minibatches:
        wanted, remedy = f"at least --minibatches {learning.minibatches}", "change one of the three"
        raise ChoiceError(message("--groups x --samples", got=number, wanted=wanted, remedy=remedy))
    if episodes.samples < 2 and algorithm not in ALONE:
        wanted, remedy = f"at least 2 for {algorithm}", "it compares attempts at one task with each other"
        raise ChoiceError(message("--samples", got=episodes.samples, wanted=wanted, remedy=remedy))
    if episodes.resample and algorithm in ALONE:
        wanted, remedy = f"0 for {algorithm}", "it learns from groups of equal rewards too"
        raise ChoiceError(message("--resample", got=episodes.resample, wanted=wanted, remedy=remedy))
    for name in ("resample", "skip_solved"):
        if getattr(episodes, name) and generator_count(arguments):
            wanted, remedy = "0 for a run with generators", "sample in turns: --mode sync --generators 0"
            raise ChoiceError(message(flag(name), got=getattr(episodes, name), wanted=wanted, remedy=remedy))
    if learning.truncated == "bootstrap" and algorithm != "ppo":
        got, remedy = f"'bootstrap' with {algorithm}", "only that has a critic"
        raise ChoiceError(message("--truncated", got=got, wanted="--algorithm ppo", remedy=remedy))
    if learning.max_gradient_norm == 0:
        norm, remedy = learning.max_gradient_norm, "0 lets nothing be learnt"
        raise ChoiceError(message("--max-gradient-norm", got=norm, wanted="more than 0", remedy=remedy))
    check_memory(_needs(arguments))
    check_asynchronous(arguments.asynchronous, generators=generator_count(arguments), server=bool(sampling.server))

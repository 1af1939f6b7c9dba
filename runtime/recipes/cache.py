"""What sets a run of `purestep train cache`: names and numbers, those of the reasoning cache's rollouts among them.

Rollouts have the names that PipelineRL's RC actor gave their settings; `settings_of` makes the settings themselves.
"""

from typing import Any, Literal

from attrs import field, fields, frozen

from ...core.errors import ChoiceError, check_within, choose, message
from ...core.language.reasoning_lists import Lists, check_lists
from ...core.language.reasoning_settings import Sampling, Settings, Streams, check_settings
from ..language.config import ALONE, CHANGES, Episodes, Fault, Hardware, Learning, Model
from ..language.config import Sampling as Calls
from ..runs.arguments import SEEDS, changed, check_threads, check_whole, flag
from .zorplex import Zorplex

NAME, ABOUT = "cache", "a language model learns to reason in cycles, each from its own summary"
POLICY = "purestep.core.language.reasoning_tasks.list_rollout"
SUMMED_UP = "purestep.core.language.reasoning_rollouts.summarization_rollout"
POLICIES = ("solution_rollout_policy", "summarization_rollout_policy")  # arguments that name functions
REASONING = "{problem}\nSo far: {curr_summary}\nGo on:"
SUMMARIZATION = "{problem}\nSo far: {existing_summary}\nNew: {reasoning}\nSum up:"
WARM_STEPS = 900  # of a small Llama
LEARNING_RATE = 3e-4  # a larger one spoils the summaries, which share the weights and are not trained


@frozen
class Problems:
    """What is to be solved: lists of numbers to be reduced."""

    # of reduction; a sum modulo 10 has one digit
    kind: Literal["sum", "modular_sum", "maximum", "minimum"] = "modular_sum"
    # numbers of a list in training; the shortest are solved early, and their answer is then to be kept
    shortest: int = 2
    longest: int = 16  # numbers of a list in training
    test_shortest: int = 4  # numbers of a held-out list
    test_longest: int = 16  # numbers of a held-out list
    low: int = 0  # the least number
    high: int = 3  # the largest number
    numbers: int = 2  # that one right step of reasoning takes


@frozen
class Run:
    """How much is trained, and on what it is tried."""

    seed: int = 42  # every random number of the run follows from it
    steps: int = 40  # of training, each on fresh problems
    problems: int = 16  # of a step
    states: int = 2  # of those that a run of cycles went through, whose next step of reasoning is trained
    samples: int = 8  # attempts at each of these next steps
    zero_spread: Literal["keep", "drop"] = "drop"  # what is made of states all of whose attempts earned the same
    held_out: int = 200  # problems of the evaluation, before reinforcement and at the end
    draw: int = 0  # decides which problems are held out
    cycles: int = 12  # of the evaluation: more than in training


@frozen
class Rollouts:
    """How problems are run through cycles of reasoning and summarization."""

    num_reasoning_steps: int = 3  # cycles of a run in training
    num_samples_per_problem: int = 1  # groups for one problem
    attempts: int = 1  # runs in each group
    use_think_tags: bool = False  # let prompts of reasoning end in an open tag; only what is thought is then summed up
    reasoning_prompt_template: str = REASONING  # with {problem} and {curr_summary}
    summarization_prompt_template: str = SUMMARIZATION  # with {problem}, {existing_summary} and {reasoning}
    solution_rollout_policy: str = POLICY  # module.function that pays a step; keyword-only arguments are the run's
    summarization_rollout_policy: str = SUMMED_UP  # module.function that is given summaries, which are never trained
    rollout_workers: int = 1  # that perform calls side by side, each on a model of its own
    llm_max_rollouts: int = 64  # runs under way on one of them
    problem_queue_size: int = 10  # problems that wait for a place
    result_queue_size: int = 10  # finished groups that wait to be published
    max_retries: int = 3  # of a call that failed in a way that may pass
    retry_base_delay: float = 1.0  # seconds before the first of them; twice as long before each further one
    throughput_window_size: int = 10  # steps of training, each a batch of groups, of which the rate is the mean
    shared_memory_entry_size: int = 5_242_880  # bytes of one published group, at most
    streams_backend: Literal["files"] = "files"  # where finished groups go: RUN/rollouts.jsonl
    eval_every_n_versions: int = 0  # updates between two evaluations on the way; 0 means none


@frozen
class Speech:
    """How the model is sampled."""

    llm_temperature: float = 1.0  # in training
    llm_max_tokens: int = 20  # of one step of reasoning, in training
    llm_top_p: float = 1.0  # in training; 1 keeps all tokens
    test_llm_temperature: float = 1.0  # in evaluation; 0 takes the likeliest token
    test_llm_max_tokens: int = 20  # of one step of reasoning, in evaluation
    test_llm_top_p: float = 1.0  # in evaluation
    summary_tokens: int = 8  # of one summary
    capacity: int = 128  # tokens of a prompt and the reply to it
    slots: int = 128  # next steps that are sampled side by side


@frozen
class WarmStart:
    """What is learnt from demonstrations first: steps of reasoning and summaries."""

    warm_steps: int = -1  # of the optimiser; -1 means 900 for the small Llama and none for a model from a folder
    demonstrations: int = 6400  # made once, and gone through again and again
    summaries: float = 0.3  # the share of them that sums up
    skill: float = 0.4  # the share of steps of reasoning that is right
    summary_skill: float = 1.0  # the share of summaries that is right
    warm_batch: int = 32  # demonstrations of a step
    muon_rate: float = 0.02  # learning rate of hidden matrices
    adamw_rate: float = 3e-3  # and of all else


@frozen
class Cache:
    """A language model learns to reason in cycles: it sums up what it found, and goes on from the summary alone."""

    run: Run = field(factory=Run)
    problems: Problems = field(factory=Problems)
    rollouts: Rollouts = field(factory=Rollouts)
    speech: Speech = field(factory=Speech)
    model: Model = field(factory=Model)
    warm: WarmStart = field(factory=WarmStart)
    learning: Learning = field(factory=Learning)
    machine: Hardware = field(factory=Hardware)

    def warm_steps(self) -> int:
        """Of the optimiser, before reinforcement."""
        own = 0 if self.model.model else WARM_STEPS
        return own if self.warm.warm_steps < 0 else self.warm.warm_steps


def cache_defaults(algorithm: str = "grpo") -> Cache:
    """What a run of an algorithm starts from. Raises: ChoiceError."""
    changes = {**choose("--algorithm", algorithm, CHANGES), "algorithm": algorithm, "learning_rate": LEARNING_RATE}
    return changed(Cache(), changes)


def lists_of(problems: Problems, stream: str = "training") -> Lists:
    """The lists of a run, in training or in evaluation.

    >>> lists_of(Problems(), "evaluation").shortest
    4
    """
    bounds = (
        (problems.shortest, problems.longest)
        if stream == "training"
        else (problems.test_shortest, problems.test_longest)
    )
    return Lists(kind=problems.kind, shortest=bounds[0], longest=bounds[1], low=problems.low, high=problems.high)


def settings_of(arguments: Cache, output_dir: str) -> Settings:
    """The settings of the rollouts of a run in that folder.

    >>> settings_of(Cache(), "runs/rc").llm
    Sampling(temperature=1.0, max_tokens=20, top_p=1.0)
    """
    shared = {one.name for one in fields(Rollouts)} & {one.name for one in fields(Settings)}
    told: dict[str, Any] = {name: getattr(arguments.rollouts, name) for name in shared}
    llm, test_llm = (
        Sampling(**{one.name: getattr(arguments.speech, f"{name}_{one.name}") for one in fields(Sampling)})
        for name in ("llm", "test_llm")
    )
    streams = Streams(backend=arguments.rollouts.streams_backend)
    return Settings(**told, llm=llm, test_llm=test_llm, streams=streams, seed=arguments.run.seed, output_dir=output_dir)


def as_turns(arguments: Cache) -> Zorplex:
    """What learns, as in `zorplex`: an episode is one turn, the next step of reasoning.

    >>> as_turns(Cache()).episodes.max_turns
    1
    """
    speech = arguments.speech
    return Zorplex(
        episodes=Episodes(steps=arguments.run.steps, max_turns=1),
        sampling=Calls(max_new_tokens=speech.llm_max_tokens, capacity=speech.capacity),
        learning=arguments.learning,
    )


def check(arguments: Cache) -> None:
    """Refuses numbers with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
    run, speech, warm, learning = arguments.run, arguments.speech, arguments.warm, arguments.learning
    check_whole("--seed", run.seed, 0, SEEDS)
    check_threads(arguments.machine.threads)
    groups: tuple[tuple[Any, int, tuple[str, ...]], ...] = (
        (run, 1, ("steps", "problems", "states", "samples", "held_out", "cycles")),
        (run, 0, ("draw",)),
        (arguments.problems, 1, ("numbers",)),
        (speech, 1, ("summary_tokens", "capacity", "slots")),
        (arguments.model, 1, ("width", "layers", "heads")),
        (arguments.model, 0, ("lora",)),
        (warm, -1, ("warm_steps",)),
        (warm, 1, ("demonstrations", "warm_batch")),
        (learning, 1, ("epochs", "minibatches", "budget")),
        (arguments.machine, 1, ("save_every",)),
    )
    for group, low, names in groups:
        for name in names:
            check_whole(flag(name), getattr(group, name), low)
    numbers: tuple[tuple[Any, float, float, tuple[str, ...]], ...] = (
        (speech, 1e-3, float("inf"), ("llm_temperature",)),
        (warm, 0.0, 1.0, ("summaries", "skill", "summary_skill", "muon_rate", "adamw_rate")),
        (learning, 0.0, 1.0, ("learning_rate", "weight_decay")),
        (learning, 0.0, float("inf"), ("clip", "clip_high", "kl", "entropy_coefficient")),
    )
    for group, least, most, names in numbers:
        for name in names:
            check_within(flag(name), getattr(group, name), least, most)
    check_settings(settings_of(arguments, "run"))
    for stream in ("training", "evaluation"):
        check_lists(lists_of(arguments.problems, stream))
    for fault, where, got, wanted, remedy in _faults(arguments):
        if fault:
            raise ChoiceError(message(where, got=got, wanted=wanted, remedy=remedy))


def _faults(arguments: Cache) -> tuple[Fault, ...]:
    model, learning, run, capacity = arguments.model, arguments.learning, arguments.run, arguments.speech.capacity
    width, heads, algorithm = model.width, model.heads, learning.algorithm
    odd, even = (
        bool(width % heads or heads % 2 or (width // heads) % 2),
        "an even number of heads, each of an even width",
    )
    lora, lone = bool(model.lora and not model.model), run.samples < 2 and algorithm not in ALONE
    alike, known = "it compares attempts at one state with each other", "adapters are for a model that knows something"
    whole = "the longest prompt has to go through the model with its reply at once"
    bootstraps = learning.truncated == "bootstrap" and algorithm != "ppo"
    return (
        (odd, "--width and --heads", (width, heads), even, "e.g. 128 and 4"),
        (learning.budget < capacity, "--budget", learning.budget, f"at least --capacity {capacity}", whole),
        (lora, "--lora", "without --model", "--model as well", known),
        (lone, "--samples", run.samples, f"at least 2 for {algorithm}", alike),
        (bootstraps, "--truncated", f"'bootstrap' with {algorithm}", "--algorithm ppo", "only that has a critic"),
        (learning.max_gradient_norm <= 0, "--max-gradient-norm", 0, "more than 0", "0 lets nothing be learnt"),
    )

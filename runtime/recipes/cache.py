"""Settings of a run of `purestep train cache`: names and numbers, including those of the reasoning cache's rollouts.

Rollout settings have the names of PipelineRL's RC actor; `cache_settings` builds the `CacheSettings` of the rollouts.
"""

import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import field, fields, frozen

from ...core.errors import ChoiceError, choose, message
from ...core.language.list_reduction.lists import Lists, check_lists
from ...core.language.reasoning_cache.settings import CacheSettings, CallSampling, Streams, check_settings
from ..runs.arguments import SEEDS, changed, check_memory, check_numbers, check_whole, check_wholes, flatten
from ..text.async_config import AsyncConfig
from ..text.config import (
    TOKEN,
    Conversations,
    EpisodeLimits,
    Hardware,
    Learning,
    Model,
    WarmStart,
    as_given,
    check_text_settings,
    text_defaults,
)
from ..text.config import Sampling as Calls

if TYPE_CHECKING:
    from ...core.language.reasoning_cache.machine import ReasoningCache
    from ...core.language.task import TextTask

NAME, ABOUT = "cache", "a language model learns to reason in cycles, each from its own summary"
POLICY = "purestep.core.language.list_reduction.tasks.list_rollout"
STATED = "purestep.core.language.list_reduction.problems.stated_rollout"
SUMMED_UP = "purestep.core.language.reasoning_cache.rollouts.summarization_rollout"
REASONING = "{problem}\nSo far: {curr_summary}\nGo on:"
SUMMARIZATION = "{problem}\nSo far: {existing_summary}\nNew: {reasoning}\nSum up:"
WARM_STEPS = 900  # of a small Llama
WARM = WarmStart(demonstrations=6400, skill=0.4)
LEARNING_RATE = 3e-4  # a larger one spoils the summaries, which share the weights and are not trained


@frozen
class Problems:
    """Problems to solve: lists of numbers to reduce, or problems of a file."""

    # of yours in place of lists: {"problem": ..., "answer": ...} a line; each fifth is held out
    problems_file: str = ""
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
    """Length of training, and the evaluation."""

    seed: int = 42  # every random number of the run follows from it
    steps: int = 40  # of training, each on fresh problems
    problems: int = 16  # of a step
    states: int = 2  # of those that a run of cycles went through, whose next step of reasoning is trained
    samples: int = 8  # attempts at each of these next steps
    held_out: int = 200  # problems of the evaluation, before reinforcement and at the end
    draw: int = 0  # decides which problems are held out
    cycles: int = 12  # of the evaluation: more than in training


@frozen
class Rollouts:
    """Cycles of reasoning and summarization for each problem."""

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
    """Sampling of the model."""

    llm_temperature: float = 1.0  # in training
    llm_max_tokens: int = 20  # of one step of reasoning, in training
    llm_top_p: float = 1.0  # in training; 1 keeps all tokens
    test_llm_temperature: float = 1.0  # in evaluation; 0 takes the likeliest token
    test_llm_max_tokens: int = 20  # of one step of reasoning, in evaluation
    test_llm_top_p: float = 1.0  # in evaluation
    summary_tokens: int = 8  # of one summary
    capacity: int = 128  # tokens of a prompt and the reply to it
    slots: int = 128  # next steps that are sampled side by side
    server: str = ""  # sample from the vLLM server at this URL, http://127.0.0.1:8000/v1, that serves RUN/served
    server_seconds: float = 600.0  # to wait for a server that is not there yet
    # the log-probs that it returns: of the whole distribution, or, started with --logprobs-mode processed_logprobs, of the
    # one it samples from, which --llm-temperature and --llm-top-p other than 1 need
    server_log_probs: Literal["raw", "processed"] = "raw"


@frozen
class Shown:
    """Demonstrations of the warm start: steps of reasoning, of which the share --skill is right, and summaries."""

    summaries: float = 0.3  # the share of them that sums up
    summary_skill: float = 1.0  # the share of summaries that is right


@frozen
class CacheEvaluationOptions:
    """Held-out problems of one evaluation."""

    problems: int = 0  # how many; 0 means as many as the run was told
    draw: int = -1  # decides which; -1 means those of the run
    cycles: int = 0  # the largest T; 0 means that of the run


@frozen
class Cache:
    """A language model learns to reason in cycles: it sums up what it found, and goes on from the summary alone."""

    recipe: ClassVar[str] = NAME
    trial: ClassVar[type[Any]] = CacheEvaluationOptions
    files: ClassVar[tuple[str, ...]] = ("model", "problems_file")
    run: Run = field(factory=Run)
    problems: Problems = field(factory=Problems)
    rollouts: Rollouts = field(factory=Rollouts)
    speech: Speech = field(factory=Speech)
    model: Model = field(factory=Model)
    warm: WarmStart = WARM
    shown: Shown = field(factory=Shown)
    learning: Learning = field(factory=Learning)
    asynchronous: AsyncConfig = field(factory=AsyncConfig)
    conversations: Conversations = field(factory=Conversations)
    machine: Hardware = field(factory=Hardware)

    @property
    def episodes(self) -> EpisodeLimits:
        """Return the episodes of training: a task is a state that a run of cycles went through, an episode one reasoning step.

        They have one turn each.
        """
        run = self.run
        return EpisodeLimits(
            max_turns=1,
            seed=run.seed,
            steps=run.steps,
            groups=run.problems * run.states,
            samples=run.samples,
            held_out=run.held_out,
            draw=run.draw,
            eval_every_n_versions=self.rollouts.eval_every_n_versions,
        )

    @property
    def sampling(self) -> Calls:
        """Return the settings for sampling reasoning steps in training."""
        speech = self.speech
        return Calls(
            temperature=speech.llm_temperature,
            top_p=speech.llm_top_p,
            max_new_tokens=speech.llm_max_tokens,
            capacity=speech.capacity,
            slots=speech.slots,
            server=speech.server,
            server_seconds=speech.server_seconds,
            server_log_probs=speech.server_log_probs,
        )

    def check(self) -> None:
        """Refuse numbers with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
        run, speech, problems = self.run, self.speech, self.problems
        check_whole("--seed", run.seed, 0, SEEDS)
        check_wholes(run, 1, "steps", "problems", "states", "samples", "held_out", "cycles")
        check_wholes(run, 0, "draw")
        check_wholes(problems, 1, "numbers")
        check_wholes(speech, 1, "summary_tokens", "llm_max_tokens", "capacity", "slots")
        check_numbers(speech, 1e-3, math.inf, "llm_temperature")
        check_numbers(speech, 0.0, math.inf, "server_seconds")
        check_numbers(self.shown, 0.0, 1.0, "summaries", "summary_skill")
        check_settings(cache_settings(self, "run"))
        needs = {
            "--slots x --test-llm-max-tokens": float(TOKEN * speech.slots * speech.test_llm_max_tokens),
            "--slots x --summary-tokens": float(TOKEN * speech.slots * speech.summary_tokens),
        }
        check_memory(needs)
        for stream in ("training", "evaluation"):
            check_lists(lists_of(problems, stream))
        number, minibatches = run.problems * run.states * run.samples, self.learning.minibatches
        if number < minibatches:
            where, wanted = "--problems x --states x --samples", f"at least --minibatches {minibatches}"
            raise ChoiceError(message(where, got=number, wanted=wanted, remedy="change one of the four"))
        if problems.problems_file and self.warm.warm_steps > 0:
            got = f"{self.warm.warm_steps} with --problems-file"
            remedy = "there are demonstrations on lists alone; begin with a --model"
            raise ChoiceError(message("--warm-steps", got=got, wanted="0", remedy=remedy))
        check_text_settings(self)

    def task(self) -> "TextTask":
        """Return the task. Imports torch, and the modules of rollout policies.

        Raises: ChoiceError, also for a file of problems that cannot be read.
        """
        from ...core.language.list_reduction.problems import problem_source
        from ...core.language.reasoning_cache.conversations import Shows
        from ...core.language.reasoning_cache.task import TrainingSettings, cache_task, list_cache_task
        from ..effects.problems_file import read_problems

        settings, run = cache_settings(self, "run"), self.run
        cache = cache_with(self, settings)
        trained = TrainingSettings(states=run.states, cycles=run.cycles, summary_tokens=self.speech.summary_tokens)
        path = self.problems.problems_file
        if path:
            given = read_problems(Path(path))
            source = problem_source(given.problems, where=f"--problems-file {path}")
            if run.held_out > source.held_out:
                got, remedy = run.held_out, "ask for fewer (--held-out; evaluate --problems), or give more problems"
                wanted = f"at most {source.held_out}, each fifth of {path}"
                raise ChoiceError(message("held-out problems", got=got, wanted=wanted, remedy=remedy))
            return cache_task(cache, settings, source, trained, digest=given.digest)
        shown = self.shown
        shows = Shows(numbers=self.problems.numbers, summaries=shown.summaries, summary_skill=shown.summary_skill)
        lists = {stream: lists_of(self.problems, stream) for stream in ("training", "evaluation")}
        return list_cache_task(cache, settings, lists, trained, shows)

    def usual_warm_steps(self) -> int:
        """Return the default steps of the small Llama's warm start: 0 with a file of problems, which has no demonstrations."""
        return 0 if self.problems.problems_file else WARM_STEPS

    def functions(self) -> Mapping[str, str]:
        """Return the rollout policies that are not purestep's own, by the names of their settings."""
        rollouts = self.rollouts
        named = {
            "solution_rollout_policy": rollouts.solution_rollout_policy,
            "summarization_rollout_policy": rollouts.summarization_rollout_policy,
        }
        return {setting: name for setting, name in named.items() if name not in (POLICY, STATED, SUMMED_UP)}

    resolved = as_given

    def evaluated(self, trial: CacheEvaluationOptions) -> "Cache":
        """Return the settings for an evaluation with these options. Raises: ChoiceError."""
        check_wholes(trial, 0, "problems", "cycles")
        check_wholes(trial, -1, "draw")
        given = {"held_out": trial.problems, "cycles": trial.cycles}
        changes = {name: value for name, value in given.items() if value}
        return changed(self, {**changes, **({"draw": trial.draw} if trial.draw >= 0 else {})})

    def examined(self) -> Mapping[str, int]:
        """Return the number of problems, the draw and the cycles of an evaluation, by the names of its options."""
        return {"problems": self.run.held_out, "draw": self.run.draw, "cycles": self.run.cycles}


def cache_defaults(algorithm: str = "grpo") -> Cache:
    """Return the default settings of a run of an algorithm. Raises: ChoiceError."""
    return text_defaults(Cache(), algorithm, learning_rate=LEARNING_RATE, zero_spread="drop")


def lists_of(problems: Problems, stream: str = "training") -> Lists:
    """Return the settings of a run's lists, in training or in evaluation.

    >>> lists_of(Problems(), "evaluation").shortest
    4
    """
    bounds = (
        (problems.shortest, problems.longest)
        if stream == "training"
        else (problems.test_shortest, problems.test_longest)
    )
    return Lists(kind=problems.kind, shortest=bounds[0], longest=bounds[1], low=problems.low, high=problems.high)


def cache_settings(arguments: Cache, output_dir: str) -> CacheSettings:
    """Return the settings of the rollouts of a run in this folder.

    >>> cache_settings(Cache(), "runs/rc").llm
    CallSampling(temperature=1.0, max_tokens=20, top_p=1.0)
    """
    shared = {one.name for one in fields(Rollouts)} & {one.name for one in fields(CacheSettings)}
    given: dict[str, Any] = {name: getattr(arguments.rollouts, name) for name in shared}
    if arguments.problems.problems_file and given["solution_rollout_policy"] == POLICY:
        given["solution_rollout_policy"] = STATED
    llm, test_llm = (
        CallSampling(**{one.name: getattr(arguments.speech, f"{name}_{one.name}") for one in fields(CallSampling)})
        for name in ("llm", "test_llm")
    )
    streams = Streams(backend=arguments.rollouts.streams_backend)
    return CacheSettings(
        **given, llm=llm, test_llm=test_llm, streams=streams, seed=arguments.run.seed, output_dir=output_dir
    )


def policy_named(name: str, arguments: Cache) -> Callable[..., Any]:
    """Return the rollout policy `module.function`, with its keyword-only arguments bound to the run's of these names.

    Raises: ChoiceError.

    >>> policy_named(POLICY, Cache()).keywords
    {'numbers': 2}
    """
    module, _, function = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), function)
        own = [one.name for one in inspect.signature(found).parameters.values() if one.kind is one.KEYWORD_ONLY]
    except Exception as cause:  # importing runs the module, which may raise anything
        where, remedy = f"rollout policy: {name}", "name a function that can be imported"
        raise ChoiceError(message(where, got=type(cause).__name__, wanted="a function", remedy=remedy)) from cause
    known = flatten(arguments)
    return partial(found, **{one: choose(f"rollout policy {name}: argument", one, known) for one in own})


def cache_with(arguments: Cache, settings: CacheSettings) -> "ReasoningCache":
    """Return the cache of a run's settings, with the policies that they name. Raises: ChoiceError."""
    from ...core.language.reasoning_cache.machine import cache_of

    names = settings.solution_rollout_policy, settings.summarization_rollout_policy
    return cache_of(settings, *(policy_named(name, arguments) for name in names))

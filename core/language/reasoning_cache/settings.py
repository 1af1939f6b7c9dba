"""The settings of reasoning-cache rollouts, under the names and with the defaults of PipelineRL's RC actor."""

import re

from attrs import frozen

from ...errors import ChoiceError, choose, message
from .templates import (
    REASONING_NAMES,
    REASONING_PROMPT,
    SUMMARIZATION_NAMES,
    SUMMARIZATION_PROMPT,
    check_template,
)

BACKENDS = {"files": "lines of JSON, readable while they are written"}
POLICIES = f"{__name__.rpartition('.')[0]}.rollouts"
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
LEAST = {  # minima of the numbers
    "num_reasoning_steps": 1,
    "num_samples_per_problem": 1,
    "rollout_workers": 1,
    "llm_max_rollouts": 1,
    "problem_queue_size": 1,
    "result_queue_size": 1,
    "shared_memory_entry_size": 1,
    "throughput_window_size": 1,
    "attempts": 1,
    "max_retries": 0,
    "retry_base_delay": 0.0,
    "eval_every_n_versions": 0,
    "seed": 0,
}


@frozen(kw_only=True)
class CallSampling:
    """Sampling parameters of a model."""

    temperature: float = 1.0
    max_tokens: int = 16_384
    top_p: float = 1.0


@frozen(kw_only=True)
class Streams:
    """Destination of finished rollouts."""

    backend: str = "files"


@frozen(kw_only=True)
class CacheSettings:
    """All settings of a reasoning-cache run."""

    output_dir: str
    num_reasoning_steps: int = 3  # cycles of each attempt
    num_samples_per_problem: int = 1  # groups per problem
    attempts: int = 1  # per group
    use_think_tags: bool = False
    reasoning_prompt_template: str = REASONING_PROMPT
    summarization_prompt_template: str = SUMMARIZATION_PROMPT
    solution_rollout_policy: str = f"{POLICIES}.solution_rollout"  # module.function
    summarization_rollout_policy: str = f"{POLICIES}.summarization_rollout"
    rollout_workers: int = 1  # that make calls, each with its own model
    llm_max_rollouts: int = 16  # concurrent attempts on one model
    problem_queue_size: int = 10
    result_queue_size: int = 10
    shared_memory_entry_size: int = 5_242_880  # maximum bytes of one published group
    throughput_window_size: int = 10  # published groups
    max_retries: int = 3  # of one call, before its attempt goes back to the waiting queue
    retry_base_delay: float = 1.0  # seconds before the first retry; doubled for each further one
    llm: CallSampling = CallSampling(top_p=0.95)  # in training
    test_llm: CallSampling = CallSampling()
    eval_every_n_versions: int = 0  # 0: never
    streams: Streams = Streams()
    seed: int = 42


def check_settings(settings: CacheSettings) -> CacheSettings:
    """Return `settings` if they are valid. Raises: ChoiceError, in one line, for the first invalid one.

    >>> check_settings(CacheSettings(output_dir="runs/rc", attempts=0))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: settings: attempts is 0, wanted at least 1; raise it
    """
    if not settings.output_dir.strip():
        remedy = "say where results go"
        raise ChoiceError(message("settings: output_dir", got="empty", wanted="a folder", remedy=remedy))
    for name, least in LEAST.items():
        value = getattr(settings, name)
        if not value >= least:
            raise ChoiceError(message(f"settings: {name}", got=value, wanted=f"at least {least}", remedy="raise it"))
    check_template("settings: reasoning_prompt_template", settings.reasoning_prompt_template, REASONING_NAMES)
    check_template(
        "settings: summarization_prompt_template", settings.summarization_prompt_template, SUMMARIZATION_NAMES
    )
    for name in ("solution_rollout_policy", "summarization_rollout_policy"):
        if not DOTTED.fullmatch(getattr(settings, name)):
            got, remedy = repr(getattr(settings, name)), "name a function that can be imported"
            raise ChoiceError(message(f"settings: {name}", got=got, wanted="module.function", remedy=remedy))
    choose("settings: streams.backend", settings.streams.backend, BACKENDS)
    _check_sampling("llm", settings.llm)
    _check_sampling("test_llm", settings.test_llm)
    return settings


def _check_sampling(name: str, sampling: CallSampling) -> None:
    faults = (
        ("temperature", sampling.temperature >= 0, "at least 0", "0 takes the likeliest token"),
        ("max_tokens", sampling.max_tokens >= 1, "at least 1", "let the model speak"),
        ("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1", "1 keeps all tokens"),
    )
    for part, right, wanted, remedy in faults:
        if not right:
            where = f"settings: {name}.{part}"
            raise ChoiceError(message(where, got=getattr(sampling, part), wanted=wanted, remedy=remedy))

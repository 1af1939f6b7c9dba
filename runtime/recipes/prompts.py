"""Settings of a run of `purestep train text`: a model folder, a file of prompts and reward functions. Imports no torch."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import evolve, field, frozen

from ...core.errors import ChoiceError, message
from ..runs.arguments import changed, check_memory, check_numbers, check_wholes
from ..text.async_config import AsyncConfig
from ..text.config import (
    Conversations,
    EpisodeLimits,
    EvaluationOptions,
    Hardware,
    Learning,
    Model,
    Sampling,
    WarmStart,
    check_text_settings,
    evaluated_tasks,
    examined_tasks,
    text_defaults,
)

REWARDER = 10_000_000  # bytes of a process that calls rewards, at least

if TYPE_CHECKING:
    from ...core.language.task import TextTask
    from ...core.language.tools import ToolSet
    from ..effects.prompts.read import PromptSet

NAME, ABOUT = "text", "a model of yours learns from a file of prompts and reward functions"
TURNS = 6  # of an episode with tools
NEW_TOKENS = 256  # of a completion, where the window has room
LARGE, SMALL = 400e6, 20e6  # bytes of weights
RATES = (1e-6, 1e-5, 3e-4)  # learning rate of a large model, of one between, of a small one
EPISODES = EpisodeLimits(max_turns=1, groups=8, held_out=128)
SAMPLING = Sampling(max_new_tokens=0, capacity=0, slots=0)  # as model and prompts determine it
LEARNING = Learning(learning_rate=0.0, anneal=False, minibatches=1)
ADAPTERS = 1e-5  # least learning rate of adapters
CACHE = 2e9  # bytes of keys and values of all slots


@frozen
class Data:
    """Prompts, and rewards of completions."""

    prompts: str = ""  # .jsonl, .csv or .parquet, or a folder of the library datasets
    prompt_column: str = "prompt"  # a text, or a list of chat messages; the other columns go to the rewards
    held_out_prompts: str = ""  # a second file, for evaluation; without it a share of the first is held out
    held_out_share: float = 0.1  # of the prompts, chosen by a hash of their content
    system: str = ""  # system message of prompts that have none
    # MODULE:FUNCTION or FILE.py:FUNCTION as in TRL: (prompts, completions, **columns) -> numbers; or built in: exact,
    # numeric, regex=PATTERN, math, code
    reward: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()  # of the rewards, 1 each unless given
    # Python functions that the model may call through its chat template: MODULE:FUNCTION, FILE.py:FUNCTION, MODULE or FILE.py
    tools: tuple[str, ...] = ()
    tool_seconds: float = 10.0  # time limit of a call of a tool
    solved_at: float = 1.0  # the least reward of an attempt that counts as solved, for accuracy
    reward_seconds: float = 30.0  # time limit of a reward function for one batch
    reward_workers: int = 2  # processes that call rewards, each for a part of a batch; 1 gives a function all of it


@frozen
class PromptRun:
    """A model of yours learns from a file of prompts and reward functions.

    purestep train text --model FOLDER --prompts FILE --reward MODULE:FUNCTION

    Model and prompts determine what is 0 by default: --max-new-tokens, --capacity, --slots and --learning-rate.
    """

    recipe: ClassVar[str] = NAME
    trial: ClassVar[type[Any]] = EvaluationOptions
    files: ClassVar[tuple[str, ...]] = ("model", "prompts", "held_out_prompts")
    data: Data = field(factory=Data)
    episodes: EpisodeLimits = EPISODES
    sampling: Sampling = SAMPLING
    model: Model = field(factory=Model)
    learning: Learning = LEARNING
    asynchronous: AsyncConfig = field(factory=AsyncConfig)
    machine: Hardware = field(factory=Hardware)
    conversations: Conversations = field(factory=Conversations)

    @property
    def warm(self) -> WarmStart:
        """Return the settings of the warm start: prompts have no demonstrations."""
        return WarmStart(warm_steps=0)

    def check(self) -> None:
        """Refuse settings with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
        given = {"--model": self.model.model, "--prompts": self.data.prompts, "--reward": self.data.reward}
        wanted = {"--model": "a folder of a Hugging Face model", "--prompts": "a file", "--reward": "MODULE:FUNCTION"}
        for name, value in given.items():
            if not value:
                raise ChoiceError(message(name, got="absent", wanted=wanted[name], remedy="name one"))
        for name in ("prompts", "held_out_prompts"):
            path = getattr(self.data, name)
            if path and not Path(path).exists():
                where, remedy = f"--{name.replace('_', '-')} {path}", "check the path"
                raise ChoiceError(message(where, got="no such file", wanted="a file of prompts", remedy=remedy))
        if self.data.weights and len(self.data.weights) != len(self.data.reward):
            got, wanted_number = len(self.data.weights), f"one for each of {len(self.data.reward)} rewards"
            raise ChoiceError(message("--weights", got=f"{got} numbers", wanted=wanted_number, remedy="give as many"))
        check_numbers(self.data, 1e-9, 1 - 1e-9, "held_out_share")
        check_numbers(self.data, 1e-3, math.inf, "reward_seconds", "tool_seconds")
        check_wholes(self.data, 1, "reward_workers")
        check_memory({"--reward-workers": float(REWARDER * self.data.reward_workers)})
        check_wholes(self.sampling, 0, "max_new_tokens", "capacity", "slots")
        least = {name: max(1, getattr(self.sampling, name)) for name in ("max_new_tokens", "capacity", "slots")}
        check_text_settings(evolve(self, sampling=evolve(self.sampling, **least)))

    def resolved(self, notice: Callable[[str], None]) -> "PromptRun":
        """Return the settings with those that model and prompts determine. Imports torch. Raises: ChoiceError."""
        from ..effects.module_reference import absolute_reference, with_absolute_path
        from ..effects.rewards.given import given
        from ..effects.rewards.grader import check_rewards, foreign
        from ..text.prompt_lengths import model_facts

        training, held_out = self.prompts()
        tools = self.tools()
        schemas = () if isinstance(tools, tuple) else tools.schemas
        rows = (*training.rows, *held_out.rows)
        facts = model_facts(Path(self.model.model), rows, system=self.data.system, tools=schemas)
        room = facts.window - facts.longest
        if room < 1:
            where, got = f"--prompts {self.data.prompts}: the longest prompt", f"{facts.longest} tokens"
            remedy = f"shorten it, it begins {facts.longest_text[:40]!r}"
            raise ChoiceError(
                message(where, got=got, wanted=f"less than the model's window {facts.window}", remedy=remedy)
            )
        new = self.sampling.max_new_tokens or min(NEW_TOKENS, room)
        turns = TURNS if schemas and self.episodes.max_turns == 1 else self.episodes.max_turns
        capacity = self.sampling.capacity or min(facts.window, facts.longest + turns * new)
        every = self.episodes.groups * self.episodes.samples
        slots = self.sampling.slots or max(1, min(every, int(CACHE / (facts.cache_bytes * capacity))))
        named = foreign(self.data.reward)
        reward = tuple(with_absolute_path(name) if name in named else name for name in self.data.reward)
        columns = sorted({name for some in (training, held_out) for row in some.rows for name in row.columns})
        check_rewards([given(name) for name in reward], self.data.weights, columns=columns)
        own = tuple(absolute_reference(name) for name in self.data.tools)
        changes: dict[str, Any] = {"reward": reward, "tools": own, "max_turns": turns}
        changes |= {"max_new_tokens": new, "capacity": capacity, "slots": slots}
        changes["held_out"] = min(self.episodes.held_out, len(held_out.rows))
        changes["budget"] = max(self.learning.budget, capacity)
        changes["learning_rate"] = self.learning.learning_rate or usual_rate(facts.bytes, self.model.lora)
        notice(
            f"{len(training.rows)} prompts, {len(held_out.rows)} held out, the longest of {facts.longest} tokens; "
            f"--max-new-tokens {new} --capacity {capacity} --slots {slots} --learning-rate {changes['learning_rate']:g}"
        )
        return changed(self, changes)

    def prompts(self) -> "tuple[PromptSet, PromptSet]":
        """Return the prompts of training and the held-out ones, disjoint by content. Raises: ChoiceError."""
        from ..effects.prompts.read import read_prompts, split_prompts, without

        data = self.data
        every = read_prompts(Path(data.prompts), column=data.prompt_column)
        if not data.held_out_prompts:
            return split_prompts(every, data.held_out_share)
        held_out = read_prompts(Path(data.held_out_prompts), column=data.prompt_column)
        return without(every, held_out), held_out

    def tools(self) -> "ToolSet | tuple[()]":
        """Return the tools of the task, or (). Imports the user's modules. Raises: ChoiceError."""
        from ..effects.tools.functions import tool_set, tools_of

        return tool_set(tools_of(self.data.tools), timeout=self.data.tool_seconds) if self.data.tools else ()

    def task(self) -> "TextTask":
        """Return the task. Imports torch. Raises: ChoiceError."""
        from ...core.language.prompts import prompt_task
        from ..effects.rewards.given import given
        from ..effects.rewards.grader import rewards_of

        data = self.data
        training, held_out = self.prompts()
        functions = [given(name) for name in data.reward]
        rewards, parts = rewards_of(functions, data.weights, seconds=data.reward_seconds, workers=data.reward_workers)
        return prompt_task(
            Path(data.prompts).stem,
            training.rows,
            held_out.rows,
            rewards=rewards,
            parts=parts,
            solved_at=data.solved_at,
            tools=self.tools(),
            instructions=data.system,
            digest=f"{training.digest} {held_out.digest}",
        )

    def usual_warm_steps(self) -> int:
        """Return no steps of a warm start."""
        return 0

    def functions(self) -> Mapping[str, str]:
        """Return the reward functions that are not built in, and the tools, by the names of their settings."""
        from ..effects.rewards.given import HERE
        from ..effects.rewards.grader import foreign

        named = [name for name in foreign(self.data.reward) if not name.startswith(HERE)]
        groups = {"reward": named, "tools": self.data.tools}
        return {setting: " ".join(names) for setting, names in groups.items() if names}

    evaluated = evaluated_tasks
    examined = examined_tasks


def usual_rate(weights: int, lora: int = 0) -> float:
    """Return the learning rate for a model with so many bytes of weights: small steps for large models.

    1e-6 is also the default of TRL's GRPOConfig, whose models have half a billion parameters and more.

    >>> usual_rate(2_000_000_000), usual_rate(2_000_000_000, lora=8), usual_rate(4_000_000)
    (1e-06, 1e-05, 0.0003)
    """
    rate = RATES[0] if weights > LARGE else RATES[1] if weights > SMALL else RATES[2]
    return max(rate, ADAPTERS) if lora else rate


def prompt_defaults(algorithm: str = "grpo") -> PromptRun:
    """Return the default settings of a run of an algorithm. Raises: ChoiceError."""
    return text_defaults(PromptRun(), algorithm, learning_rate=0.0)

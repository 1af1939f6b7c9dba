"""Settings of a run of `purestep train zorplex`: names and numbers, with the defaults of each algorithm."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import asdict, field, frozen

from ...core.errors import ChoiceError, message
from ..text.async_config import AsyncConfig
from ..text.config import (
    WARM_STEPS,
    Conversations,
    EpisodeLimits,
    EvaluationOptions,
    Hardware,
    Learning,
    Model,
    Sampling,
    WarmStart,
    as_given,
    check_text_settings,
    evaluated_tasks,
    examined_tasks,
    text_defaults,
)

if TYPE_CHECKING:
    from ...core.language.task import TextTask

NAME, ABOUT = "zorplex", "a language model learns to use tools: a warm start, then reinforcement"
WARM = WarmStart(skill=0.125)  # so few right ones that the likeliest answer is still wrong in most tasks
# A divergence brings back answers that a policy has given up before it was right, in groups that are wrong throughout and have
# no advantage; its weight is that of Shao et al. 2024, arXiv:2402.03300, section 4.2. A second update a step gained nothing.
LEARNING = Learning(minibatches=1, kl=0.04)
DEEPEST = {"syllables": 128, "letters": 13}  # largest number of redirections for each kind of words


@frozen
class Tasks:
    """Questions, and rewards of answers."""

    kind: Literal["simple", "compositional", "multi_step", "recursive"] = "compositional"  # of tasks
    difficulty: Literal["easy", "medium", "hard"] = "easy"  # of compositional tasks
    # 256 with values of each episode's own, or 26 with a fixed table, another one in evaluation
    words: Literal["syllables", "letters"] = "syllables"
    low: int = 0  # the least value of a word
    high: int = 5  # the largest value of a word
    max_depth: int = 3  # redirections of a recursive task
    correct: float = 1.0  # reward of the right answer
    # reward of an answer after a valid call; where right answers are rare, it teaches to guess after one call
    format: float = 0.0
    tool_spam: float = 0.0  # cost of a call beyond those needed


@frozen
class Zorplex:
    """A language model learns to use tools: a warm start on noisy demonstrations, then reinforcement."""

    recipe: ClassVar[str] = NAME
    trial: ClassVar[type[Any]] = EvaluationOptions
    files: ClassVar[tuple[str, ...]] = ("model",)
    tasks: Tasks = field(factory=Tasks)
    episodes: EpisodeLimits = field(factory=EpisodeLimits)
    sampling: Sampling = field(factory=Sampling)
    model: Model = field(factory=Model)
    warm: WarmStart = WARM
    learning: Learning = LEARNING
    asynchronous: AsyncConfig = field(factory=AsyncConfig)
    conversations: Conversations = field(factory=Conversations)
    machine: Hardware = field(factory=Hardware)

    def check(self) -> None:
        """Refuse settings with which nothing can be learnt, by the name of their flag. Raises: ChoiceError."""
        check_text_settings(self)
        tasks, deepest = self.tasks, DEEPEST[self.tasks.words]
        if tasks.low > tasks.high:
            got, remedy = (tasks.low, tasks.high), "exchange them"
            raise ChoiceError(message("--low and --high", got=got, wanted="low <= high", remedy=remedy))
        if tasks.kind == "recursive" and not 1 <= tasks.max_depth <= deepest:
            wanted, remedy = f"from 1 to {deepest}", "each depth needs a word of its own"
            raise ChoiceError(message("--max-depth", got=tasks.max_depth, wanted=wanted, remedy=remedy))

    def task(self) -> "TextTask":
        """Return the task. Imports torch. Raises: ChoiceError."""
        from ...core.language.zorplex.task import zorplex_task

        return zorplex_task(**asdict(self.tasks), seed=self.episodes.seed)

    def usual_warm_steps(self) -> int:
        """Return the steps of a warm start of the small Llama where none are given."""
        return WARM_STEPS

    def functions(self) -> Mapping[str, str]:
        """Return no functions: the task calls none of the user's."""
        return {}

    resolved = as_given
    evaluated = evaluated_tasks
    examined = examined_tasks


def zorplex_defaults(algorithm: str = "grpo") -> Zorplex:
    """Return the default settings of a run of an algorithm. Raises: ChoiceError."""
    return text_defaults(Zorplex(), algorithm)

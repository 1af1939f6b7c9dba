"""The state of one attempt at a problem by a reasoning cache: texts, counters, and the training data of every reply."""

from typing import ClassVar

from attrs import frozen

from ..events import STOP
from ..types import ModelOutput

REASONING, SUMMARIZATION = "reasoning", "summarization"


@frozen(kw_only=True)
class Problem:
    """A problem and its answer."""

    TAG: ClassVar[str] = "problem"
    problem_id: str
    problem_text: str
    answer: str
    dataset_name: str = ""


@frozen(kw_only=True)
class Metadata:
    """The step of a training text, in the run's numbering, in which retries are not counted."""

    TAG: ClassVar[str] = "metadata"
    model_version: int
    rollout_index: int  # index of the attempt at the problem
    cycle_step: int  # 0, 1, 2, ... over both turn types
    turn_type: str  # "reasoning" or "summarization"
    turn_number: int  # 1, 2, ... of its type


@frozen(kw_only=True)
class TrainingText:
    """A prompt and the model's output. `said` has the output's token ids, if the sampler returned them."""

    TAG: ClassVar[str] = "training_text"
    prompt_text: str
    output_text: str
    reward: float
    said: ModelOutput | tuple[()] = ()
    metadata: Metadata | tuple[()] = ()


@frozen(kw_only=True)
class RolloutResult:
    """The result of a rollout policy for one reply."""

    TAG: ClassVar[str] = "rollout_result"
    training_texts: tuple[TrainingText, ...]
    success: bool


@frozen(kw_only=True)
class ModelRequest:
    """The next model call."""

    TAG: ClassVar[str] = "ask"
    cycle_step: int
    turn_type: str
    turn_number: int
    prompt_text: str


@frozen(kw_only=True)
class Reply:
    """The model's output for the call of `cycle_step`, and the version of its weights. "abort": the call was cancelled."""

    TAG: ClassVar[str] = "reply"
    cycle_step: int
    text: str
    finish_reason: str = STOP
    model_version: int = 0
    said: ModelOutput | tuple[()] = ()


@frozen(kw_only=True)
class InferenceProblemState:
    """One attempt at a problem so far: a value of numbers, strings and tuples.

    The string stores hold texts without think tags, the complete ones as the model generated them.
    """

    TAG: ClassVar[str] = "inference_problem_state"
    problem: Problem
    sample_id: int = 0
    rollout_index: int = 0
    curr_summary: str = ""
    curr_reasoning: str = ""
    reasoning_turn_number: int = 0  # reasoning replies so far: the number of the last
    summarization_turn_number: int = 0
    overall_cycle_step: int = 0  # replies so far: the number of the next step
    reasoning_rollout_store: tuple[RolloutResult, ...] = ()
    summarization_rollout_store: tuple[RolloutResult, ...] = ()
    reasoning_string_store: tuple[str, ...] = ()
    summarization_string_store: tuple[str, ...] = ()
    reasoning_string_complete_store: tuple[str, ...] = ()
    summarization_string_complete_store: tuple[str, ...] = ()


STATE_CLASSES = (
    InferenceProblemState,
    Problem,
    RolloutResult,
    TrainingText,
    Metadata,
    ModelOutput,
)  # classes in a state

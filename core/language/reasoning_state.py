"""One attempt at a problem by a reasoning cache, as a value: texts, counters, and the training data of every reply."""

from typing import ClassVar

from attrs import frozen

from .attempt import Said
from .events import STOP

REASONING, SUMMARIZATION = "reasoning", "summarization"


@frozen(kw_only=True)
class Problem:
    """What is to be solved."""

    TAG: ClassVar[str] = "problem"
    problem_id: str
    problem_text: str
    answer: str
    dataset_name: str = ""


@frozen(kw_only=True)
class Metadata:
    """Which step a training text comes from: as the run counts steps, whatever it took to get the reply."""

    TAG: ClassVar[str] = "metadata"
    model_version: int
    rollout_index: int  # which of the attempts at one problem
    cycle_step: int  # 0, 1, 2, ... over both kinds
    turn_type: str  # "reasoning" or "summarization"
    turn_number: int  # 1, 2, ... of its kind


@frozen(kw_only=True)
class TrainingText:
    """A prompt and what the model said to it. `said` has its token ids, where a sampler gave them."""

    TAG: ClassVar[str] = "training_text"
    prompt_text: str
    output_text: str
    reward: float
    said: Said | tuple[()] = ()
    metadata: Metadata | tuple[()] = ()


@frozen(kw_only=True)
class RolloutResult:
    """What a rollout policy made of one reply."""

    TAG: ClassVar[str] = "rollout_result"
    training_texts: tuple[TrainingText, ...]
    success: bool


@frozen(kw_only=True)
class Ask:
    """The model call that is due."""

    TAG: ClassVar[str] = "ask"
    cycle_step: int
    turn_type: str
    turn_number: int
    prompt_text: str


@frozen(kw_only=True)
class Reply:
    """What the model said to the call of that `cycle_step`, and the version of its weights. "abort": it was given up."""

    TAG: ClassVar[str] = "reply"
    cycle_step: int
    text: str
    finish_reason: str = STOP
    model_version: int = 0
    said: Said | tuple[()] = ()


@frozen(kw_only=True)
class InferenceProblemState:
    """One attempt at a problem so far: a value of numbers, strings and tuples.

    The string stores hold texts without the tags of thinking, the complete ones as the model said them.
    """

    TAG: ClassVar[str] = "inference_problem_state"
    problem: Problem
    sample_id: int = 0
    rollout_index: int = 0
    curr_summary: str = ""
    curr_reasoning: str = ""
    reasoning_turn_number: int = 0  # reasoning replies so far: the number of the last
    summarization_turn_number: int = 0
    overall_cycle_step: int = 0  # replies so far: the number of the step that is due
    reasoning_rollout_store: tuple[RolloutResult, ...] = ()
    summarization_rollout_store: tuple[RolloutResult, ...] = ()
    reasoning_string_store: tuple[str, ...] = ()
    summarization_string_store: tuple[str, ...] = ()
    reasoning_string_complete_store: tuple[str, ...] = ()
    summarization_string_complete_store: tuple[str, ...] = ()


STATE_CLASSES = (InferenceProblemState, Problem, RolloutResult, TrainingText, Metadata, Said)  # what a state is made of

"""Forms of a sample, from the sampler to the learner: a rollout, its transcript, a sample of a group, a batch for the learner.

Rollout       an attempt under way: a generator appends a `ModelOutput` for each call of the model, the environment answers
Transcript    the same episode when it has ended, as columns of tensors: [1] one, [N] as many as are stacked
Sample        a transcript [1] with the versions that sampled it and the figures of reports; also sent between processes
TokenBatch    the columns that a loss needs, with advantages, of all transcripts of an update
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import attrs
import torch
from attrs import field, frozen
from torch import Tensor

from ..errors import ChoiceError, message
from ..record import record, tensor
from ..tree import tree_map
from .codec import Ids
from .episode import Episode, Grade
from .events import STOP
from .requests import RolloutSpec
from .text_env import End

S = TypeVar("S")
Parts = tuple[tuple[str, float], ...]  # of a reward, by name
Packed = tuple[str, tuple[int, ...], bytes]  # a tensor: the name of its dtype, its shape, its bytes


@frozen(kw_only=True)
class ModelOutput:
    """The output of one model call: ids, each with its sampling log-prob and the version of the weights.

    A stop token that ended it is its last id. `temperature` and `top_p` are those of the sampler. A call that was cancelled
    from outside has the finish_reason "abort" and is discarded: the call is repeated.
    """

    TAG: ClassVar[str] = "said"
    ids: Ids
    log_probs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: str = STOP
    temperature: float = 1.0
    top_p: float = 1.0


@frozen
class ContextTurn:
    """Context ids, not sampled by the model, with their source (as in `core.transcript.record`) and env step."""

    ids: Ids
    source: int
    turn: int


@frozen(kw_only=True)
class ModelTurn:
    """A model call and its result: whether parsing failed, and its reward from environment and parser."""

    said: ModelOutput
    turn: int
    parse_error: bool
    reward: float


Piece = ContextTurn | ModelTurn


@frozen(kw_only=True)
class Rollout(Generic[S]):
    """An episode so far, with the ids of its whole conversation. `end` is () while it is running."""

    rollout: RolloutSpec
    episode: Episode[S]
    pieces: tuple[Piece, ...]
    capacity: int  # maximum number of ids
    max_new_tokens: int  # maximum number of ids sampled by one call
    ids: Ids = field(repr=False)  # all ids, in order
    pending: Ids = field(repr=False)  # the last ids, appended since the model's last output
    end: End | tuple[()] = ()
    grade: Grade | tuple[()] = ()  # of a finished attempt, where rewards are computed after sampling

    @property
    def call(self) -> int:
        """The number of the next call; `requests.call_key(rollout, call)` is its key."""
        return self.episode.calls

    @property
    def room(self) -> int:
        """The number of ids that the next call may sample; 0 after the end."""
        return min(self.max_new_tokens, self.capacity - len(self.ids)) if isinstance(self.end, tuple) else 0


@record
class Transcript:
    """One episode of a language model: L columns for tokens, C for calls of the model."""

    token: Tensor = tensor("* L", "int")
    source: Tensor = tensor("* L", "int")  # SYSTEM, USER, TOOL, FEEDBACK, SAMPLED
    is_action: Tensor = tensor("* L", "bool")  # whether the model sampled it
    behaviour_log_prob: Tensor = tensor("* L", "float")  # under the distribution it was sampled from; 0 for context
    proximal_log_prob: Tensor = tensor("* L", "float")  # the behaviour's until `with_proximal` sets others
    version: Tensor = tensor("* L", "int")  # of the weights that sampled it, from 0 on; ABSENT for context
    call: Tensor = tensor("* L", "int")  # number of the model call, ABSENT for context
    turn: Tensor = tensor("* L", "int")  # number of the env step
    length: Tensor = tensor("*", "int")  # number of tokens
    temperature: Tensor = tensor("* C", "float")  # of each call's sampling
    top_p: Tensor = tensor("* C", "float")
    reward: Tensor = tensor("* C", "float")  # of each call
    credit: Tensor = tensor("* C", "float")  # learning signal of each call
    finish_reason: Tensor = tensor("* C", "int")  # NONE, STOP, LENGTH, TOOL_CALL, ABORT
    parse_error: Tensor = tensor("* C", "bool")  # whether its output could not be parsed
    calls: Tensor = tensor("*", "int")  # number of calls started
    turns: Tensor = tensor("*", "int")  # number of env steps so far
    overflow: Tensor = tensor("*", "int")  # operations dropped for lack of room
    inherited: Tensor = tensor("*", "int")  # number of tokens, the first ones, that are the parent's
    id: Tensor = tensor("*", "int")
    group: Tensor = tensor("*", "int")  # of episodes compared with each other, ABSENT if none
    parent: Tensor = tensor("*", "int")  # the id of the transcript this is a fork of, ABSENT if none
    terminated: Tensor = tensor("*", "bool")  # the episode terminated: no value beyond
    truncated: Tensor = tensor("*", "bool")  # the episode was cut: bootstrap from the value beyond
    reason: Tensor = tensor("*", "int")  # of the first truncation; NONE exactly where not truncated


@frozen
class Sample:
    """A finished attempt, as input of a learner."""

    row: Transcript  # [1]
    figures: dict[str, float]  # by the names in `figure_names`
    mode: str  # the label of its outcome, one of the task's labels
    head: int  # the oldest version of the weights that sampled its tokens
    tail: int  # the newest
    tokens: int  # number of tokens sampled by the model
    raised: str = ""  # the error that its environment raised, if any
    parts: Parts = ()  # of its reward, by name
    final: frozenset[int] = frozenset()  # versions of its tokens whose proximal log-probs are set; by the trainer

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tensors as bytes: tensors sent one by one take ten times as long, or more."""
        columns = {name: _packed(value) for name, value in vars(self.row).items()}
        own = attrs.fields(Sample)[1:]
        return _sent, (columns, *(getattr(self, one.name) for one in own))


def _packed(value: Tensor) -> Packed:
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), value.detach().cpu().numpy().tobytes()


def _sent(columns: dict[str, Packed], *rest: Any) -> Sample:
    unpacked = {
        name: torch.frombuffer(bytearray(content), dtype=getattr(torch, kind)).reshape(shape)
        for name, (kind, shape, content) in columns.items()
    }
    return Sample(Transcript(**unpacked), *rest)


def stacked(samples: Sequence[Sample]) -> Transcript:
    """Return the rows of N samples of one capacity, in order: [N]. Raises: ChoiceError for no samples.

    >>> from ..transcript.record import empty
    >>> stacked([Sample(empty(2, 1, id=torch.tensor([id])), {}, "", 0, 0, 1) for id in (7, 8)]).id
    tensor([7, 8])
    """
    if not samples:
        raise ChoiceError(message("stacked: samples", got="empty", wanted="at least one", remedy="wait for some"))
    made: Transcript = tree_map(lambda *columns: torch.cat(columns), *[sample.row for sample in samples])
    return made


@record
class TokenBatch:
    """N sequences in columns of L. A field that an algorithm does not use is ()."""

    token: Tensor = tensor("* L", "int")  # 0 in the padding
    sampled: Tensor = tensor("* L", "bool")  # sampled by the model in these transcripts, not inherited
    mask: Tensor = tensor("* L", "bool")  # the sampled tokens that are in the loss
    behaviour_log_prob: Tensor = tensor("* L", "float")  # under the sampling policy
    proximal_log_prob: Tensor = tensor("* L", "float")  # under the proximal policy
    temperature: Tensor = tensor("* L", "float")  # for scoring
    advantage: Tensor = tensor("* L", "float")
    weight: Tensor = tensor("*", "float")  # of the sample's loss
    length: Tensor = tensor("*", "int")
    top_p: Any = ()  # [* L] for scoring; () for all tokens
    share: Any = ()  # [* L] of `interpolation`
    reference_log_prob: Any = ()  # [* L]
    behaviour_value: Any = ()  # [* L] value of the prefix before the token, before the update
    target: Any = ()  # [* L] of the value


@record
class Counts:
    """Numbers of tokens and sequences in one optimiser step: the denominators of losses."""

    tokens: Tensor = tensor("*", "int")
    sequences: Tensor = tensor("*", "int")  # with at least one token in the mask

"""Conversations of training steps, for RUN/conversations.jsonl: made from the transcripts that were trained on.

A line is an attempt: {"step", "id", "group", "reward", "parts", "end", "label", "error", "messages"}. A message has its "role",
its token "ids" and its "text"; one that the model sampled also has, token by token, its text ("pieces"), "log_probs" under the
sampler, "versions" of the weights and "advantages" of the update. All ids of an attempt are those of its transcript, in order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from numbers import Real
from pathlib import Path
from struct import pack, unpack
from typing import Any

from attrs import frozen
from torch import Tensor

from ...algorithms.language.credit import episode_return
from ...core.language.codec import Codec, Ids
from ...core.language.episode import Grade
from ...core.language.task import OPEN, RAISED, TERMINATED, TextTask
from ...core.language.text_env import Raised
from ...core.language.to_transcript import FINISH, REASONS
from ...core.language.token_pieces import Decode, token_pieces
from ...core.language.types import Parts, Rollout, Transcript
from ...core.transcript.record import FAILED, FEEDBACK, SAMPLED, SYSTEM, TOOL, USER
from ..effects.layout import CONVERSATIONS
from ..effects.step_lines import step_lines
from .columns import label_of
from .config import TextConfig

REMEMBERED, SHORT = 1 << 16, 4  # sequences of tokens whose text is remembered: their number, and their longest length
ROLES = {SYSTEM: "system", USER: "user", TOOL: "tool", FEEDBACK: "feedback", SAMPLED: "assistant"}
FINISHED = {number: name for name, number in FINISH.items()}
TRUNCATED = {number: name for name, number in REASONS.items()}


@frozen
class TrainedAttempt:
    """An attempt that was trained on."""

    row: Transcript  # [1]
    advantage: Tensor  # [L], of its tokens
    label: str  # one of the task's labels
    parts: Parts = ()  # of its reward, by name
    error: str = ""  # that its environment raised, if any


Keep = Callable[
    [int, Sequence[int], Callable[[int], TrainedAttempt]], None
]  # (step, group of each attempt, place -> attempt)


def keep_none(step: int, groups: Sequence[int], attempt: Callable[[int], TrainedAttempt]) -> None:
    """Keep no conversations."""


def keep_conversations(
    home: Path, arguments: TextConfig, codec: Codec, *, last: int, notice: Callable[[str], None]
) -> Keep:
    """Return the function that writes the conversations of a step, those of its first groups, into a folder.

    Conversations of steps after `last`, which will be trained again, are removed. Raises: CheckpointError if something other
    than a file has the name.
    """
    given = arguments.conversations
    if not given.keep_conversations:
        return keep_none
    setting = f"--conversations-megabytes {given.conversations_megabytes}"
    most = given.conversations_megabytes << 20
    write = step_lines(home / CONVERSATIONS, last=last, most=most, setting=setting, notice=notice)
    decode = decoder_of(codec)

    def keep(step: int, groups: Sequence[int], attempt: Callable[[int], TrainedAttempt]) -> None:
        chosen = set(list(dict.fromkeys(groups))[: given.keep_conversations])
        places = [place for place, group in enumerate(groups) if group in chosen]
        write(step, [conversation(attempt(place), decode) for place in places])

    return keep


def decoder_of(codec: Codec) -> Decode:
    """Return the function that decodes all tokens of a sequence, also a stop token at its end.

    >>> from ...core.language.codec import byte_codec
    >>> decoder_of(byte_codec())((104, 105))
    'hi'
    """

    def decode(ids: Ids) -> str:
        return codec.decode((*ids, codec.stop[0]))  # of which a codec omits the last stop token alone

    remembered = lru_cache(REMEMBERED)(decode)
    return lambda ids: remembered(ids) if len(ids) <= SHORT else decode(ids)


def conversation(attempt: TrainedAttempt, decode: Decode) -> dict[str, Any]:
    """Return the line of an attempt, without its step."""
    row = attempt.row
    return {
        "id": int(row.id[0]),
        "group": int(row.group[0]),
        "reward": _number(float(episode_return(row.reward, row.calls)[0])),
        "parts": {name: value if math.isfinite(value) else repr(value) for name, value in attempt.parts},
        "end": end_in(row),
        "label": attempt.label,
        "error": attempt.error,
        "messages": messages_in(row, attempt.advantage, decode),
    }


def messages_in(row: Transcript, advantage: Tensor, decode: Decode) -> list[dict[str, Any]]:
    """Return the messages of a transcript [1]: tokens of one source and one call are one message.

    >>> import torch
    >>> from ...core.transcript.record import append_context, empty
    >>> row = append_context(empty(4, 1, id=torch.tensor([0])), torch.tensor([[104, 105]]), 2, USER)
    >>> messages_in(row, torch.zeros(4), lambda ids: bytes(ids).decode())
    [{'role': 'user', 'ids': [104, 105], 'text': 'hi'}]
    """
    length = int(row.length[0])
    columns = (row.token, row.source, row.call, row.behaviour_log_prob, row.version)
    token, source, call, log_prob, version = (column[0, :length].tolist() for column in columns)
    given = [_number(value) for value in advantage[:length].tolist()]
    found = list[dict[str, Any]]()
    for (role, number), places in groupby(range(length), lambda place: (source[place], call[place])):
        inside = list(places)
        ids: Ids = tuple(token[place] for place in inside)
        pieces = token_pieces(decode, ids)
        made: dict[str, Any] = {"role": ROLES[role], "ids": list(ids), "text": "".join(pieces)}
        if role == SAMPLED:
            made |= {
                "pieces": list(pieces),
                "log_probs": [_number(log_prob[place]) for place in inside],
                "versions": [version[place] for place in inside],
                "advantages": [given[place] for place in inside],
                "finish_reason": FINISHED.get(int(row.finish_reason[0, number]), ""),
                "reward": _number(float(row.reward[0, number])),
            }
        found.append(made)
    return found


def end_in(row: Transcript) -> str:
    """Return how the episode of a transcript [1] ended: terminated, the reason of a truncation, raised, or open.

    >>> import torch
    >>> from ...core.transcript.record import empty
    >>> end_in(empty(1, 1, id=torch.tensor([0])))
    'open'
    """
    reason = int(row.reason[0])
    if reason == FAILED:
        return RAISED
    if bool(row.terminated[0]):
        return TERMINATED
    return TRUNCATED.get(reason, "truncated") if bool(row.truncated[0]) else OPEN


def trained_attempt(task: TextTask, attempt: Rollout[Any], row: Transcript, advantage: Tensor) -> TrainedAttempt:
    """Return an attempt with its transcript [1] and its advantages [L]."""
    error = attempt.end.error if isinstance(attempt.end, Raised) else ""
    return TrainedAttempt(row, advantage, label_of(task, attempt), named_rewards(attempt), error)


def named_rewards(attempt: Rollout[Any]) -> Parts:
    """Return the parts of an attempt's reward by name; a value that is no number is NaN.

    >>> from types import SimpleNamespace
    >>> named_rewards(SimpleNamespace(grade=Grade(1.5, {"right": 1, "short": 0.5})))
    (('right', 1.0), ('short', 0.5))
    """
    given: Mapping[Any, Any] = attempt.grade.parts if isinstance(attempt.grade, Grade) else {}
    return tuple((str(name), float(value) if isinstance(value, Real) else math.nan) for name, value in given.items())


def _number(value: float) -> float | str:
    """Return a float32 in 7 digits if they identify it, else in 9; NaN and infinities as text, which JSON can hold.

    >>> _number(0.10000000149011612), _number(math.nan)
    (0.1, 'nan')
    """
    if not math.isfinite(value):
        return repr(value)
    short = float(f"{value:.7g}")
    return short if unpack("f", pack("f", short))[0] == value else float(f"{value:.9g}")

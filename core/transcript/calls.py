"""Recording of model calls, environment steps and the end of the episode in a transcript."""

import torch
from torch import Tensor

from ..errors import ChoiceError, ShapeError, message
from ..language.types import Transcript
from ..record import replace
from .record import ABORT, FAILED, NONE, OTHER, for_each, in_call


def begin_call(transcript: Transcript, temperature: Tensor | float, top_p: Tensor | float) -> Transcript:
    """Return the transcript with a model call started, with its sampling parameters: float [*] each.

    If another call is running, all C calls were made, or there was an overflow before, it counts as an overflow.
    Raises: ShapeError.

    >>> from .record import empty
    >>> asked = begin_call(empty(3, 2, id=0), 0.5, 1.0)
    >>> asked.temperature, asked.calls, begin_call(asked, 1.0, 1.0).overflow
    (tensor([0.5000, 1.0000]), tensor(1), tensor(1))
    """
    calls, number = transcript.calls, _numbers(transcript)
    room = ~in_call(transcript) & (calls < number.shape[0]) & (transcript.overflow == 0)
    here = (number == calls[..., None]) & room[..., None]
    heat, top = (
        for_each(f"begin_call: {name}", value, calls, "float")[..., None]
        for name, value in (("temperature", temperature), ("top_p", top_p))
    )
    return replace(
        transcript,
        temperature=torch.where(here, heat, transcript.temperature),
        top_p=torch.where(here, top, transcript.top_p),
        calls=calls + room.to(torch.int64),
        overflow=transcript.overflow + (~room).to(torch.int64),
    )


def end_call(
    transcript: Transcript,
    finish_reason: Tensor | int,
    parse_error: Tensor | bool = False,
    reward: Tensor | float = 0.0,
) -> Transcript:
    """Return the transcript with the running call ended: its finish reason, parse error and reward; [*] each.

    The end of a call is not the end of the episode: see `mark_end`. Without a running call, or for NONE given as a tensor,
    nothing is written and `overflow` counts it. Raises: ChoiceError (an unknown reason), ShapeError, DtypeError.

    >>> from .record import LENGTH, empty
    >>> heard = end_call(begin_call(empty(3, 2, id=0), 1.0, 1.0), LENGTH, reward=-0.5)
    >>> heard.finish_reason, heard.reward, heard.truncated
    (tensor([2, 0]), tensor([-0.5000,  0.0000]), tensor(False))
    """
    if isinstance(finish_reason, int):
        _among("end_call: finish_reason", finish_reason, ABORT, "STOP, LENGTH, TOOL_CALL or ABORT")
    calls = transcript.calls
    finish = for_each("end_call: finish_reason", finish_reason, calls, "int")
    failed = for_each("end_call: parse_error", parse_error, calls, "bool")
    earned = for_each("end_call: reward", reward, calls, "float")
    room = in_call(transcript) & (finish != NONE)
    here = (_numbers(transcript) == calls[..., None] - 1) & room[..., None]
    return replace(
        transcript,
        finish_reason=torch.where(here, finish[..., None], transcript.finish_reason),
        parse_error=torch.where(here, failed[..., None], transcript.parse_error),
        reward=torch.where(here, earned[..., None], transcript.reward),
        overflow=transcript.overflow + (~room).to(torch.int64),
    )


def next_turn(transcript: Transcript) -> Transcript:
    """Return the transcript after one more env step.

    >>> from .record import USER, append_context, empty
    >>> told = append_context(next_turn(empty(2, 1, id=0)), torch.tensor([5]), 1, USER)
    >>> told.turns, told.turn
    (tensor(1), tensor([ 1, -1]))
    """
    return replace(transcript, turns=transcript.turns + 1)


def mark_end(
    transcript: Transcript, terminated: Tensor | bool, truncated: Tensor | bool, reason: Tensor | int = NONE
) -> Transcript:
    """Return the transcript with the end of the episode recorded: `terminated` or `truncated`; [*] each.

    Flags are not cleared, and of several truncations the first one's reason is kept; OTHER if a tensor has NONE. `reason` is
    used only where truncated. Raises: ChoiceError (an unknown reason, NONE for a truncation), ShapeError, DtypeError.

    >>> from .record import ENV, MAX_SEQ_LEN, empty
    >>> over = mark_end(empty(2, 1, id=0), False, True, ENV)
    >>> again = mark_end(over, True, True, MAX_SEQ_LEN)
    >>> again.terminated, again.truncated, again.reason
    (tensor(True), tensor(True), tensor(1))
    """
    if isinstance(reason, int) and (reason != NONE or truncated is True):
        _among("ended: reason", reason, FAILED, "ENV, MAX_STEPS, MAX_SEQ_LEN, TIME_OUT, OTHER or FAILED")
    length = transcript.length
    cut = for_each("ended: truncated", truncated, length, "bool")
    why = for_each("ended: reason", reason, length, "int")
    said = torch.where(cut, torch.where(why == NONE, OTHER, why), NONE)
    return replace(
        transcript,
        terminated=transcript.terminated | for_each("ended: terminated", terminated, length, "bool"),
        truncated=transcript.truncated | cut,
        reason=torch.where(transcript.truncated, transcript.reason, said),
    )


def per_token(transcript: Transcript, values: Tensor, otherwise: float = 0.0) -> Tensor:
    """Return the value of each token's call: values [*, C] -> [*, L], `otherwise` for context tokens.

    `per_token(transcript, transcript.credit)` is the weight of log-probs, and with transcript.temperature and 1.0 it is the
    temperature for `token_log_probs`. Raises: ShapeError.

    >>> from .record import empty
    >>> said = replace(empty(3, 2, id=0), call=torch.tensor([-1, 0, 1]))
    >>> per_token(said, torch.tensor([0.5, 2.0]), 1.0)
    tensor([1.0000, 0.5000, 2.0000])
    """
    if values.shape != transcript.reward.shape:
        got, wanted = list(values.shape), f"{list(transcript.reward.shape)}, one for each call"
        raise ShapeError(message("per_token: values", got=got, wanted=wanted, remedy="pass a column of calls"))
    found = values.gather(-1, transcript.call.clamp_min(0))
    return torch.where(transcript.call >= 0, found, otherwise)


def _numbers(transcript: Transcript) -> Tensor:
    return torch.arange(transcript.reward.shape[-1], device=transcript.reward.device)


def _among(where: str, value: int, last: int, names: str) -> None:
    if not 1 <= value <= last:
        raise ChoiceError(message(where, got=value, wanted=names, remedy="use one of these constants"))

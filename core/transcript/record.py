"""Transcripts: context and outputs of a language model, token by token, in one append-only record.

Column t describes token t: its log-probs, its version and its call are at index t too. Beyond `length` every column is
blank, so that equal transcripts have equal bits. Written entries do not change; to rewrite a context make a `fork`.
Tokens are not cut to fit: an append without room is dropped completely and counted in `overflow`, as are all later ones.

All functions take transcripts with any leading axes [*], each row with its own length; exclude rows with `record.select`.
"""

import torch
from torch import Tensor

from ..check import KINDS
from ..errors import ChoiceError, DtypeError, ShapeError, message
from ..language.types import Transcript
from ..record import replace
from ..shapes import same_shape

ABSENT = -1  # no version, no call, no parent, no token
SYSTEM, USER, TOOL, FEEDBACK, SAMPLED = range(5)  # source of a token
NONE = 0  # finish_reason: the call is running; reason: not truncated
STOP, LENGTH, TOOL_CALL, ABORT = range(1, 5)  # finish_reason: why a call ended, not why the episode did
ENV, MAX_STEPS, MAX_SEQ_LEN, TIME_OUT, OTHER = range(1, 6)  # reason: why an episode was truncated
FAILED = 6  # reason: the environment raised, and the episode is excluded from training

TOKEN_BLANKS: dict[str, int | float] = {
    "token": 0,
    "source": ABSENT,
    "is_action": False,
    "behaviour_log_prob": 0.0,
    "proximal_log_prob": 0.0,
    "version": ABSENT,
    "call": ABSENT,
    "turn": ABSENT,
}
CALL_BLANKS: dict[str, int | float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "reward": 0.0,
    "credit": 0.0,
    "finish_reason": NONE,
    "parse_error": False,
}
DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float32}


def for_each(where: str, value: Tensor | float, like: Tensor, kind: str, *, width: int | None = None) -> Tensor:
    """Return `value` as one entry for each of `like` [*]: a number or [] for all of them, or [*] -> [*].

    With a `width` W, [*, W] is allowed as well, and one entry for all W columns has size 1: -> [*, W] or [*, 1].
    `kind` is "int", "float" or "bool". Raises: ShapeError, DtypeError.

    >>> for_each("f: count", 2, torch.zeros(3), "int")
    tensor([2, 2, 2])
    """
    dtype = {"int": torch.int64, "float": torch.float32, "bool": torch.bool}[kind]
    lead = tuple(like.shape)
    if not isinstance(value, Tensor):
        full = torch.full(lead, value, dtype=dtype, device=like.device)
        return full if width is None else full[..., None]
    if kind != "float" and value.dtype not in KINDS[kind]:
        raise DtypeError(message(where, got=value.dtype, wanted=kind, remedy=f"convert it with .to({dtype})"))
    if width is not None and tuple(value.shape) == (*lead, width):
        return value.to(dtype)
    if value.ndim and tuple(value.shape) != lead:
        wanted = f"{list(lead)}{'' if width is None else f' or {[*lead, width]}'}"
        raise ShapeError(message(where, got=list(value.shape), wanted=wanted, remedy="give it the leading axes"))
    spread = value.to(dtype).expand(lead)
    return spread if width is None else spread[..., None]


def empty(capacity: int, calls: int, *, id: Tensor | int, group: Tensor | int = ABSENT) -> Transcript:
    """Return a transcript without tokens, with room for `capacity` tokens and for `calls` model calls.

    Shapes: id and group int [*] -> Transcript [*]. Raises: ChoiceError, ShapeError, DtypeError.

    >>> blank = empty(3, 1, id=torch.tensor([7, 8]))
    >>> blank.token.shape, blank.length, blank.version[0]
    (torch.Size([2, 3]), tensor([0, 0]), tensor([-1, -1, -1]))
    """
    if min(capacity, calls) < 1:
        raise ChoiceError(message("empty: room", got=(capacity, calls), wanted="at least 1 each", remedy="give more"))
    own = for_each("empty: id", id, id if isinstance(id, Tensor) else torch.zeros(()), "int")
    zero, no = torch.zeros_like(own), torch.zeros_like(own, dtype=torch.bool)

    def blank(size: int, value: int | float) -> Tensor:
        return torch.full((*own.shape, size), value, dtype=DTYPES[type(value)], device=own.device)

    return Transcript(
        **{name: blank(capacity, value) for name, value in TOKEN_BLANKS.items()},
        **{name: blank(calls, value) for name, value in CALL_BLANKS.items()},
        **{name: zero.clone() for name in ("length", "calls", "turns", "overflow", "inherited", "reason")},
        id=own,
        group=for_each("empty: group", group, own, "int").clone(),
        parent=torch.full_like(own, ABSENT),
        terminated=no,
        truncated=no.clone(),
    )


def in_call(transcript: Transcript) -> Tensor:
    """Return whether a model call is running (started and not ended): bool [*].

    >>> in_call(empty(3, 1, id=0))
    tensor(False)
    """
    number = torch.arange(transcript.finish_reason.shape[-1], device=transcript.calls.device)
    last = number == transcript.calls[..., None] - 1
    return (last & (transcript.finish_reason == NONE)).any(-1)


def append_context(transcript: Transcript, tokens: Tensor, count: Tensor | int, source: Tensor | int) -> Transcript:
    """Return the transcript with the first `count` of `tokens` appended as context.

    Shapes: tokens int [*, K], count int [*], source int [*] or [*, K]. A count outside 0..K counts as an overflow.
    Raises: ShapeError, DtypeError, ChoiceError for SAMPLED as a source.

    >>> told = append_context(empty(4, 1, id=0), torch.tensor([5, 6, 7]), 2, USER)
    >>> told.token, told.length, append_context(told, torch.tensor([5, 6, 7]), 3, TOOL).overflow
    (tensor([5, 6, 0, 0]), tensor(2), tensor(1))
    """
    if isinstance(source, int) and source not in (SYSTEM, USER, TOOL, FEEDBACK):
        wanted = "SYSTEM, USER, TOOL or FEEDBACK"
        remedy = "use append_sampled for what a model said"
        raise ChoiceError(message("append_context: source", got=source, wanted=wanted, remedy=remedy))
    columns = {"source": for_each("append_context: source", source, transcript.length, "int", width=tokens.shape[-1])}
    return _append("append_context", transcript, tokens, count, columns, torch.ones_like(transcript.terminated))


def append_sampled(
    transcript: Transcript, tokens: Tensor, count: Tensor | int, log_probs: Tensor, version: Tensor | int
) -> Transcript:
    """Return the transcript with the first `count` of `tokens` appended as sampled by the running call.

    A call's tokens may come in chunks, each with the version of the weights that sampled it. `log_probs` are those of the
    actual sampling distribution, including temperature and top_p; they are kept in float32. Without a running call it counts
    as an overflow. Shapes: tokens int [*, K], count int [*], log_probs [*, K], version int [*] or [*, K].
    Raises: ShapeError, DtypeError.

    >>> from .calls import begin_call
    >>> said = append_sampled(begin_call(empty(3, 1, id=0), 1.0, 1.0), torch.tensor([9]), 1, torch.tensor([-0.5]), 4)
    >>> said.token, said.behaviour_log_prob, said.version
    (tensor([9, 0, 0]), tensor([-0.5000,  0.0000,  0.0000]), tensor([ 4, -1, -1]))
    """
    if not log_probs.is_floating_point():
        where, remedy = "append_sampled: log_probs", "pass those of the sampler"
        raise DtypeError(message(where, got=log_probs.dtype, wanted="float", remedy=remedy))
    same_shape("append_sampled", tokens=tokens, log_probs=log_probs)
    length = transcript.length
    columns = {
        "source": torch.full_like(length, SAMPLED)[..., None],
        "is_action": torch.ones_like(length, dtype=torch.bool)[..., None],
        "behaviour_log_prob": log_probs,
        "proximal_log_prob": log_probs,
        "version": for_each("append_sampled: version", version, length, "int", width=tokens.shape[-1]),
        "call": (transcript.calls - 1)[..., None],
    }
    return _append("append_sampled", transcript, tokens, count, columns, in_call(transcript))


def _append(
    where: str, transcript: Transcript, tokens: Tensor, count: Tensor | int, columns: dict[str, Tensor], may: Tensor
) -> Transcript:
    """Write the columns [*, K], or [*, 1] for all K, in rows where `may` [*] is true and there is room."""
    length, (capacity, size) = transcript.length, (transcript.token.shape[-1], tokens.shape[-1] if tokens.ndim else 0)
    if tokens.dtype not in KINDS["int"]:
        raise DtypeError(message(f"{where}: tokens", got=tokens.dtype, wanted="int", remedy="pass token ids"))
    if tokens.shape != (*length.shape, size) or not tokens.ndim:
        wanted = f"[{', '.join([*map(str, length.shape), 'K'])}]"
        remedy = "give it the transcript's leading axes"
        raise ShapeError(message(f"{where}: tokens", got=list(tokens.shape), wanted=wanted, remedy=remedy))
    number = for_each(f"{where}: count", count, length, "int")
    room = may & (number >= 0) & (number <= size) & (length + number <= capacity) & (transcript.overflow == 0)
    place = torch.arange(capacity, device=length.device) - length[..., None]
    written = room[..., None] & (place >= 0) & (place < number[..., None])
    index = place.clamp(0, max(size - 1, 0))

    def write(name: str, new: Tensor) -> Tensor:
        old: Tensor = getattr(transcript, name)
        picked = new if new.shape[-1] == 1 else new.gather(-1, index)
        return torch.where(written, picked.to(old.dtype), old)

    given = {"token": tokens, "turn": transcript.turns[..., None], **columns} if size else {}
    return replace(
        transcript,
        **{name: write(name, new) for name, new in given.items()},
        length=length + torch.where(room, number, 0),
        overflow=transcript.overflow + (~room & (number != 0)).to(torch.int64),
    )

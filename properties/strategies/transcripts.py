"""Programs of operations on transcripts, drawn for several rows at once, and functions that run them, batched or by row."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core.language.types import Transcript
from ...core.transcript import calls as transcript_calls
from ...core.transcript import forks
from ...core.transcript import record as transcript
from ...core.transcript.log_probs import loss_mask, with_proximal
from ...core.transcript.record import ABORT, FEEDBACK, LENGTH, NONE, OTHER, STOP, SYSTEM, TOOL, TOOL_CALL, USER

T = TypeVar("T")
Given = tuple[Tensor, ...]
ROWS = 3
OPERATIONS = 16
WIDEST = 4  # tokens of an append
BYTES = 2 + OPERATIONS * (3 + ROWS * (WIDEST * 2 + 11))
CONTEXT, BEGIN, SAMPLED, EACH, END, TURN, OVER, FORK = (
    "append_context",
    "begin_call",
    "append_sampled",
    "append_sampled, versions for each token",
    "end_call",
    "next_turn",
    "ended",
    "fork",
)
OUTSIDE = (
    BEGIN,
    CONTEXT,
    BEGIN,
    CONTEXT,
    BEGIN,
    BEGIN,
    TURN,
    OVER,
    FORK,
)  # the usual operations outside a model call
INSIDE = (SAMPLED, EACH, SAMPLED, EACH, SAMPLED, END, END, END, CONTEXT, CONTEXT, OVER, FORK)
APPENDS = (CONTEXT, SAMPLED, EACH)


@frozen
class RowEntry:
    """Arguments of all operations for one row; an operation reads those that it needs."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    versions: tuple[int, ...]
    count: int
    source: int
    version: int
    temperature: float
    top_p: float
    finish_reason: int
    parse_error: bool
    reward: float
    terminated: bool
    truncated: bool
    reason: int
    at: int
    id: int


@frozen
class Operation:
    """One operation on all rows."""

    kind: str
    entries: tuple[RowEntry, ...]

    def given(self, name: str, row: int | None = None) -> Tensor:
        """Return the argument of that name, for all rows or for one."""
        dtype = {"log_probs": torch.float32, "tokens": torch.int64, "versions": torch.int64}.get(name)
        values = [getattr(entry, name) for entry in self.entries]
        return torch.tensor(values if row is None else values[row], dtype=dtype)

    def part(self, start: int, stop: int) -> "Operation":
        """Return the append of only the tokens from `start` to `stop`."""

        def cut(entry: RowEntry) -> RowEntry:
            count = max(0, min(entry.count, stop) - start)
            tokens, log_probs = entry.tokens[start:stop], entry.log_probs[start:stop]
            return evolve(entry, tokens=tokens, log_probs=log_probs, versions=entry.versions[start:stop], count=count)

        return evolve(self, entries=tuple(map(cut, self.entries)))


@frozen
class TranscriptProgram:
    """Operations on ROWS transcripts, which start empty."""

    capacity: int
    calls: int
    operations: tuple[Operation, ...]


def programs() -> SearchStrategy[TranscriptProgram]:
    """Programs, most of them valid; some exceed the capacity, and in a few a call is begun twice or never."""
    return st.binary(min_size=BYTES, max_size=BYTES).map(_program)


def _program(data: bytes) -> TranscriptProgram:
    rest = iter(data)

    def pick(options: Sequence[T]) -> T:
        return options[next(rest) % len(options)]

    capacity, calls = pick((20, 20, 20, 7)), pick((4, 4, 4, 1))
    operations: list[Operation] = []
    inside = False
    for number in range(OPERATIONS):
        usual = INSIDE if inside else OUTSIDE
        kind = pick(pick((usual,) * 15 + (OUTSIDE + INSIDE,)))
        size = pick((2, 1, WIDEST, 3, 1, 2, 3, 0))
        entries = tuple(_entry(pick, size, 10 * number + row) for row in range(ROWS))
        operations.append(Operation(kind, entries))
        inside = (inside or kind == BEGIN) and kind not in (END, FORK)
    return TranscriptProgram(capacity, calls, tuple(operations))


def _entry(pick: Callable[[Sequence[Any]], Any], size: int, number: int) -> RowEntry:
    eighths = [step / 8 for step in range(256)]
    return RowEntry(
        tokens=tuple(pick(range(7)) for _ in range(size)),
        log_probs=tuple(-pick(eighths) for _ in range(size)),
        versions=tuple(number % 7 + place for place in range(size)),
        count=pick((*[size] * 24, *[size // 2] * 4, 0, 0, size + 1)),
        source=pick((USER, SYSTEM, TOOL, FEEDBACK)),
        version=pick((0, 1, 5)),
        temperature=pick((1.0, 0.5, 2.0)),
        top_p=pick((1.0, 0.75)),
        finish_reason=pick((*(STOP, LENGTH, LENGTH, TOOL_CALL, ABORT) * 3, NONE)),
        parse_error=pick((False, True)),
        reward=pick((0.0, 1.0, -0.25)),
        terminated=pick((False, False, True)),
        truncated=pick((True, False, True)),
        reason=pick(range(1, OTHER + 1)) if number % 4 else NONE,
        at=pick(range(10)),
        id=100 + number,
    )


def function_of(subject: Any, operation: Operation, row: int | None = None) -> tuple[Callable[..., Transcript], Given]:
    """Return the function of an operation, and its arguments after the transcript, for all rows or for one."""
    functions: dict[str, tuple[Callable[..., Transcript], tuple[str, ...]]] = {
        CONTEXT: (subject.append_context, ("tokens", "count", "source")),
        BEGIN: (subject.begin_call, ("temperature", "top_p")),
        SAMPLED: (subject.append_sampled, ("tokens", "count", "log_probs", "version")),
        EACH: (subject.append_sampled, ("tokens", "count", "log_probs", "versions")),
        END: (subject.end_call, ("finish_reason", "parse_error", "reward")),
        TURN: (subject.next_turn, ()),
        OVER: (subject.ended, ("terminated", "truncated", "reason")),
        FORK: (subject.fork, ("at", "id")),
    }
    function, names = functions[operation.kind]
    return function, tuple(operation.given(name, row) for name in names)


def perform(subject: Any, operation: Operation, transcript: Transcript, row: int | None = None) -> Transcript:
    """Return the transcripts [ROWS] after an operation; with `row`, only that row's []."""
    function, given = function_of(subject, operation, row)
    return function(transcript, *given)


def states(subject: Any, program: TranscriptProgram, row: int | None = None) -> list[Transcript]:
    """Return the transcripts before the first operation and after each."""
    ids = torch.arange(ROWS) if row is None else torch.tensor(row)
    found = [subject.empty(program.capacity, program.calls, id=ids)]
    for operation in program.operations:
        found.append(perform(subject, operation, found[-1], row))
    return found


def operation_steps(subject: Any, program: TranscriptProgram) -> Iterator[tuple[Operation, Transcript, Transcript]]:
    """Yield each operation with the transcripts before and after it."""
    found = states(subject, program)
    yield from zip(program.operations, found, found[1:], strict=False)


Change = Callable[..., Transcript]


@frozen
class Transcripts:
    """All functions that change or read transcripts."""

    empty: Change
    append_context: Change
    append_sampled: Change
    begin_call: Change
    end_call: Change
    next_turn: Change
    ended: Change
    fork: Change
    prefix_of: Callable[[Transcript, Transcript], Tensor]
    per_token: Callable[..., Tensor]
    loss_mask: Callable[[Transcript], Tensor]
    with_proximal: Change


def own_transcripts() -> Transcripts:
    """Return this library's functions on transcripts."""
    return Transcripts(
        empty=transcript.empty,
        append_context=transcript.append_context,
        append_sampled=transcript.append_sampled,
        begin_call=transcript_calls.begin_call,
        end_call=transcript_calls.end_call,
        next_turn=transcript_calls.next_turn,
        ended=transcript_calls.mark_end,
        fork=forks.fork,
        prefix_of=forks.prefix_of,
        per_token=transcript_calls.per_token,
        loss_mask=loss_mask,
        with_proximal=with_proximal,
    )

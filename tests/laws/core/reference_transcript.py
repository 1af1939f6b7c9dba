"""A transcript as plain lists: the reference of the laws of transcripts."""

import copy
from typing import Any

import torch
from attrs import Factory, evolve, mutable

from purestep.core.language.types import Transcript
from purestep.core.transcript.record import ABORT, ABSENT, CALL_BLANKS, DTYPES, NONE, OTHER, TOKEN_BLANKS
from purestep.core.transcript.record import SAMPLED as FROM_MODEL
from purestep.properties.strategies.transcripts import (
    BEGIN,
    CONTEXT,
    EACH,
    END,
    FORK,
    OVER,
    ROWS,
    SAMPLED,
    TURN,
    Operation,
    RowEntry,
    TranscriptProgram,
)

Row = dict[str, Any]


@mutable
class Book:
    """One transcript: a list of tokens, a list of calls, and the fields besides them."""

    capacity: int
    most_calls: int
    id: int
    tokens: list[Row] = Factory(list)
    calls: list[Row] = Factory(list)
    open: bool = False  # whether a call is under way
    turns: int = 0
    overflow: int = 0
    inherited: int = 0
    parent: int = ABSENT
    terminated: bool = False
    truncated: bool = False
    reason: int = NONE

    def after(self, operation: Operation, row: int) -> "Book":
        """The book after one row's part in an operation; this one stays."""
        book, entry, kind = copy.deepcopy(self), operation.entries[row], operation.kind
        if kind == FORK:
            return self.forked(entry)
        if kind == TURN:
            book.turns += 1
        elif kind == OVER:
            book.end(entry)
        elif kind == BEGIN:
            book.begin(entry)
        elif kind == END:
            book.finish(entry)
        else:
            book.append(entry, kind)
        return book

    def append(self, entry: RowEntry, kind: str) -> None:
        """Append tokens, all of them or none."""
        if not entry.count:
            return
        room = entry.count <= len(entry.tokens) and len(self.tokens) + entry.count <= self.capacity
        if self.overflow or not room or (kind != CONTEXT and not self.open):
            self.overflow += 1
            return
        for place in range(entry.count):
            row: Row = dict(TOKEN_BLANKS, token=entry.tokens[place], source=entry.source, turn=self.turns)
            if kind != CONTEXT:
                log_prob = entry.log_probs[place]
                row |= {"source": FROM_MODEL, "is_action": True, "call": len(self.calls) - 1}
                row |= {"behaviour_log_prob": log_prob, "proximal_log_prob": log_prob}
                row["version"] = {SAMPLED: entry.version, EACH: entry.versions[place]}[kind]
            self.tokens.append(row)

    def begin(self, entry: RowEntry) -> None:
        """Begin a call."""
        if self.open or self.overflow or len(self.calls) == self.most_calls:
            self.overflow += 1
            return
        self.open = True
        self.calls.append(dict(CALL_BLANKS, temperature=entry.temperature, top_p=entry.top_p))

    def finish(self, entry: RowEntry) -> None:
        """Finish the current call."""
        if not self.open or entry.finish_reason == NONE:
            self.overflow += 1
            return
        self.open = False
        for name in ("finish_reason", "parse_error", "reward"):
            self.calls[-1][name] = getattr(entry, name)

    def end(self, entry: RowEntry) -> None:
        """End the episode."""
        if entry.truncated and not self.truncated:
            self.reason = entry.reason or OTHER
        self.terminated |= entry.terminated
        self.truncated |= entry.truncated

    def forked(self, entry: RowEntry) -> "Book":
        """Return a book with the first tokens of this one."""
        kept = copy.deepcopy(self.tokens[: entry.at])
        count = 1 + max([ABSENT, *(row["call"] for row in kept)])
        calls = copy.deepcopy(self.calls[:count])
        cut = any(row["call"] == count - 1 for row in self.tokens[len(kept) :])
        if calls and (cut or calls[-1]["finish_reason"] == NONE):
            calls[-1] |= {"finish_reason": ABORT, "parse_error": False, "reward": 0.0, "credit": 0.0}
        fresh = Book(self.capacity, self.most_calls, entry.id, turns=self.turns, parent=self.id)
        return evolve(fresh, tokens=kept, calls=calls, inherited=len(kept))

    def transcript(self) -> Transcript:
        """The same content as a `Transcript`."""

        def columns(rows: list[Row], blanks: Row, size: int) -> Row:
            return {
                name: torch.tensor(
                    [row[name] for row in [*rows, *[blanks] * (size - len(rows))]], dtype=DTYPES[type(blank)]
                )
                for name, blank in blanks.items()
            }

        alone = ("id", "turns", "overflow", "inherited", "parent", "terminated", "truncated", "reason")
        return Transcript(
            **columns(self.tokens, TOKEN_BLANKS, self.capacity),
            **columns(self.calls, CALL_BLANKS, self.most_calls),
            **{name: torch.tensor(getattr(self, name)) for name in alone},
            length=torch.tensor(len(self.tokens)),
            calls=torch.tensor(len(self.calls)),
            group=torch.tensor(ABSENT),
        )


def books(program: TranscriptProgram) -> list[list[Book]]:
    """The books of all rows before the first operation and after each."""
    found = [[Book(program.capacity, program.calls, row) for row in range(ROWS)]]
    for operation in program.operations:
        found.append([book.after(operation, row) for row, book in enumerate(found[-1])])
    return found

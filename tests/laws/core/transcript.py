"""Laws of writing transcripts, against plain lists: entries stay, columns agree, and tokens without room are reported."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.language.types import Transcript
from purestep.core.record import replace, take
from purestep.core.transcript.record import (
    ABORT,
    ABSENT,
    CALL_BLANKS,
    LENGTH,
    MAX_SEQ_LEN,
    NONE,
    STOP,
    TOKEN_BLANKS,
    in_call,
)
from purestep.core.transcript.record import LENGTH as CUT_AT_LENGTH
from purestep.core.transcript.record import SAMPLED as FROM_MODEL
from purestep.properties.framework.compare import EXACT, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.properties.strategies.transcripts import (
    APPENDS,
    BEGIN,
    CONTEXT,
    END,
    FORK,
    OVER,
    ROWS,
    Change,
    TranscriptProgram,
    Transcripts,
    function_of,
    operation_steps,
    perform,
    programs,
    states,
)

from .reference_transcript import Book, books

# --- mutants ---
# Common errors in writing transcripts.


Make = Callable[[Transcripts], Transcripts]


def _appends(subject: Transcripts, change: Callable[[Change], Change]) -> Transcripts:
    """The subject with both append functions changed."""
    context, sampled = change(subject.append_context), change(subject.append_sampled)
    return evolve(subject, append_context=context, append_sampled=sampled)


def sliding(subject: Transcripts) -> Transcripts:
    """Drop the oldest tokens if there is no room for new ones."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            excess = (old.length + count - old.token.shape[-1]).clamp_min(0)
            kept = (old.length - excess).clamp_min(0)
            place = torch.arange(old.token.shape[-1])
            moved = {}
            for name, blank in TOKEN_BLANKS.items():
                column = getattr(old, name)
                shifted = column.gather(-1, (place + excess[..., None]).clamp_max(place.shape[0] - 1))
                moved[name] = torch.where(place < kept[..., None], shifted, blank)
            return append(replace(old, **moved, length=kept), tokens, count, *rest)

        return mutant

    return _appends(subject, change)


def one_to_the_left(subject: Transcripts) -> Transcripts:
    """Write a token's log-prob one column to the left, at the position of its logits."""

    def mutant(old: Transcript, *given: Tensor) -> Transcript:
        new = subject.append_sampled(old, *given)
        place = torch.arange(new.token.shape[-1])
        fresh = (place >= old.length[..., None] - 1) & (place < new.length[..., None])
        shifted = torch.where(fresh, new.behaviour_log_prob.roll(-1, -1), new.behaviour_log_prob)
        return replace(new, behaviour_log_prob=shifted)

    return evolve(subject, append_sampled=mutant)


def to_the_end(subject: Transcripts) -> Transcripts:
    """Mark everything from the first sampled token on as action."""

    def mutant(old: Transcript, *given: Tensor) -> Transcript:
        new = subject.append_context(old, *given)
        place = torch.arange(new.token.shape[-1])
        begun = new.is_action.to(torch.int64).cumsum(-1) > 0
        return replace(new, is_action=begun & (place < new.length[..., None]))

    return evolve(subject, append_context=mutant)


def what_fits(subject: Transcripts) -> Transcripts:
    """Write as many of the tokens as there is room for."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            return append(old, tokens, count.minimum(old.token.shape[-1] - old.length), *rest)

        return mutant

    return _appends(subject, change)


def last_column_free(subject: Transcripts) -> Transcripts:
    """Never fill the last column: `length + count < capacity`."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            full = (old.length + count >= old.token.shape[-1]) & (count > 0)
            return append(old, tokens, torch.where(full, tokens.shape[-1] + 1, count), *rest)

        return mutant

    return _appends(subject, change)


def goes_on(subject: Transcripts) -> Transcripts:
    """Append tokens that fit even after an overflow."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, *given: Tensor) -> Transcript:
            new = append(replace(old, overflow=torch.zeros_like(old.overflow)), *given)
            return replace(new, overflow=new.overflow + old.overflow)

        return mutant

    return _appends(subject, change)


def at_least_one(subject: Transcripts) -> Transcripts:
    """Append a first token even if the count is 0."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, tokens: Tensor, count: Tensor, *rest: Tensor) -> Transcript:
            return append(old, tokens, count.clamp_min(min(tokens.shape[-1], 1)), *rest)

        return mutant

    return _appends(subject, change)


def a_call_each(subject: Transcripts) -> Transcripts:
    """Count each appended chunk as another call."""

    def mutant(old: Transcript, *given: Tensor) -> Transcript:
        new = subject.append_sampled(old, *given)
        place = torch.arange(new.token.shape[-1])
        fresh = (place >= old.length[..., None]) & (place < new.length[..., None])
        again = (old.call == old.calls[..., None] - 1).any(-1) & (old.calls < old.reward.shape[-1])
        return replace(new, call=torch.where(fresh & again[..., None], new.call + 1, new.call))

    return evolve(subject, append_sampled=mutant)


def behind_the_longest(subject: Transcripts) -> Transcripts:
    """Write in all rows of a batch at the end of the longest one."""

    def change(append: Change) -> Change:
        def mutant(old: Transcript, *given: Tensor) -> Transcript:
            return append(replace(old, length=old.length.amax().expand_as(old.length)), *given)

        return mutant

    return _appends(subject, change)


def first_version(subject: Transcripts) -> Transcripts:
    """Use the version of a chunk's first token for the whole chunk."""

    def mutant(old: Transcript, tokens: Tensor, count: Tensor, log_probs: Tensor, version: Tensor) -> Transcript:
        if version.shape == tokens.shape and version.shape[-1]:
            version = version[..., 0]
        return subject.append_sampled(old, tokens, count, log_probs, version)

    return evolve(subject, append_sampled=mutant)


def zero_is_absent(subject: Transcripts) -> Transcripts:
    """Treat version 0 as absent: `version or -1`."""

    def mutant(old: Transcript, tokens: Tensor, count: Tensor, log_probs: Tensor, version: Tensor) -> Transcript:
        return subject.append_sampled(old, tokens, count, log_probs, torch.where(version == 0, ABSENT, version))

    return evolve(subject, append_sampled=mutant)


def length_truncates(subject: Transcripts) -> Transcripts:
    """Mark the episode as truncated if a call was cut at its length limit."""

    def mutant(old: Transcript, finish_reason: Tensor, *rest: Tensor) -> Transcript:
        new = subject.end_call(old, finish_reason, *rest)
        return subject.ended(new, torch.zeros_like(new.terminated), finish_reason == LENGTH, MAX_SEQ_LEN)

    return evolve(subject, end_call=mutant)


def last_reason(subject: Transcripts) -> Transcripts:
    """Overwrite the reason of an earlier truncation."""

    def mutant(old: Transcript, terminated: Tensor, truncated: Tensor, reason: Tensor) -> Transcript:
        new = subject.ended(old, terminated, truncated, reason)
        return replace(new, reason=torch.where(truncated & (reason != NONE), reason, new.reason))

    return evolve(subject, ended=mutant)


def stops_anyway(subject: Transcripts) -> Transcripts:
    """Begin a call if there is room for one, even during another call."""

    def mutant(old: Transcript, *given: Any) -> Transcript:
        closed = torch.where(old.finish_reason == NONE, LENGTH, old.finish_reason)
        new = subject.begin_call(replace(old, finish_reason=closed), *given)
        return replace(new, finish_reason=old.finish_reason)

    return evolve(subject, begin_call=mutant)


def cut_is_stopped(subject: Transcripts) -> Transcripts:
    """Set the finish reason of a call that a fork cuts short to `STOP`."""

    def mutant(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        new = subject.fork(old, at, id)
        return replace(new, finish_reason=torch.where(new.finish_reason == ABORT, STOP, new.finish_reason))

    return evolve(subject, fork=mutant)


MUTANTS: dict[str, Make] = {
    "gives a chunk the version of its first token": first_version,
    "takes version 0 for none": zero_is_absent,
    "leaves the last column free": last_column_free,
    "begins a call while another is under way": stops_anyway,
    "lets a call that a fork cuts short look finished": cut_is_stopped,
}


# --- laws ---


SOURCE = "core.transcript.record: what its functions promise"
ENDS = ("terminated", "truncated", "reason")
Check = Callable[[Transcripts, TranscriptProgram, Seen], None]


def transcript_laws() -> Suite:
    """The laws of writing: of `Transcripts(empty, append_context, ...)`."""
    growing = (_extends(), _columns(), _actions(), _whole(), _nothing_follows(), _nothing(), _chunks(), _alone())
    return Suite("transcript_laws", (*growing, _finish(), _reason()))


law = law_constructor(programs, SOURCE, most=500)  # on programs of operations


def columns(transcript: Transcript, names: Any, row: int, count: int) -> dict[str, Any]:
    """The first `count` entries of some columns of one row."""
    return {name: getattr(transcript, name)[row, :count] for name in names}


def _extends() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            for row in range(ROWS if operation.kind != FORK else 0):
                length, ended = int(old.length[row]), int(old.calls[row]) - int(in_call(old)[row])
                seen("an append behind tokens", length and new.length[row] > length)
                seen("an append that finds no room behind tokens", length and new.overflow[row] > old.overflow[row])
                seen("an operation after a call", ended)
                require(new.length[row] >= length, f"{operation.kind} took tokens away")
                before, after = (columns(one, TOKEN_BLANKS, row, length) for one in (old, new))
                same(f"what stood before {operation.kind}", after, before, EXACT)
                before, after = (columns(one, CALL_BLANKS, row, ended) for one in (old, new))
                same(f"calls that ended before {operation.kind}", after, before, EXACT)

    mutant = Mutant("lets the oldest tokens go where there is no room", sliding)
    claim = "Nothing but a fork changes a column of a token that stands, or of a call that has ended."
    needs = ("an append behind tokens", "an append that finds no room behind tokens", "an operation after a call")
    return law("extends", claim, mutant, check, *needs)


def _columns() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        labels = ["nothing", *(operation.kind for operation in program.operations)]
        for label, found, wanted in zip(labels, states(subject, program), books(program), strict=True):
            for row, book in enumerate(wanted):
                _events(book, seen)
                same(f"row {row} after {label}", take(found, row), book.transcript(), EXACT)

    mutant = Mutant("puts a log-prob one column to the left, where its logits stood", one_to_the_left)
    claim = "Every column says of each token, and of each call, what a list of them says; beyond them all is blank."
    needs = ("versions within a call", "context within a call", "several calls", "overflow", "a fork with calls")
    return law("columns", claim, mutant, check, *needs)


def _events(book: Book, seen: Seen) -> None:
    calls = [token["call"] for token in book.tokens]
    last = [token for token in book.tokens if token["call"] == len(book.calls) - 1]
    inside = book.tokens[calls.index(calls[-1]) :] if calls and calls[-1] >= 0 else []
    seen("versions within a call", len({token["version"] for token in last}) > 1)
    seen("context within a call", any(token["call"] < 0 for token in inside))
    seen("several calls", len(set(calls) - {-1}) > 1)
    seen("overflow", book.overflow)
    seen("a fork with calls", book.inherited and book.calls)


def _actions() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            more = int((new.length - old.length).clamp_min(0).sum())
            seen("context behind sampled tokens", operation.kind == CONTEXT and more and old.is_action.any())
            same("which tokens are actions", new.is_action, new.source == FROM_MODEL, EXACT)
            made = (new.is_action.sum() - old.is_action.sum()).item()
            if operation.kind != FORK:
                same(f"new actions of {operation.kind}", made, 0 if operation.kind == CONTEXT else more, EXACT)

    mutant = Mutant("takes all from the first sampled token on for actions", to_the_end)
    claim = "Exactly the tokens that a model sampled are actions."
    return law("actions", claim, mutant, check, "context behind sampled tokens")


def _whole() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            for row, entry in enumerate(operation.entries if operation.kind in APPENDS else ()):
                count, left = entry.count, program.capacity - int(old.length[row])
                if new.overflow[row] == old.overflow[row]:
                    seen("room", count)
                    same("tokens more", int(new.length[row] - old.length[row]), count, EXACT)
                    continue
                seen("room for a part", 0 < left < count <= len(entry.tokens))
                called = operation.kind == CONTEXT or bool(in_call(old)[row])
                fits = count <= min(left, len(entry.tokens)) and called and not old.overflow[row]
                require(not fits, f"{count} tokens found no room where {left} fit")
                before = replace(take(old, row), overflow=old.overflow[row] + 1)
                same("what found no room", take(new, row), before, EXACT)

    mutant = Mutant("writes as many tokens as fit", what_fits)
    claim = "An append writes all its tokens where there is room; elsewhere it writes none and says so."
    return law("whole", claim, mutant, check, "room", "room for a part")


def _nothing_follows() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            if operation.kind not in (*APPENDS, BEGIN):
                continue
            for row, entry in enumerate(operation.entries):
                if not old.overflow[row]:
                    continue
                small = 0 < entry.count <= min(len(entry.tokens), program.capacity - int(old.length[row]))
                seen("what would fit after what did not", operation.kind == CONTEXT and small)
                same("tokens", new.length[row], old.length[row], EXACT)
                same("calls", new.calls[row], old.calls[row], EXACT)

    mutant = Mutant("appends what fits after what did not", goes_on)
    claim = "No token and no call follows what found no room: it would be conditioned on what is missing."
    return law("nothing_follows", claim, mutant, check, "what would fit after what did not")


def _nothing() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        zero, floats = torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS, 2)
        for state in states(subject, program):
            seen("after an overflow", state.overflow.any())
            seen("without a call", ~in_call(state).all())
            seen("within a call", in_call(state).any())
            for size in (0, 2):
                tokens = torch.ones(ROWS, size, dtype=torch.int64)
                same("after no context", subject.append_context(state, tokens, zero, zero), state, EXACT)
                sampled = subject.append_sampled(state, tokens, zero, floats[:, :size], zero)
                same("after no sampled tokens", sampled, state, EXACT)

    mutant = Mutant("appends a first token where there is none", at_least_one)
    claim = "To append nothing changes nothing, whatever has happened before."
    return law("nothing", claim, mutant, check, "after an overflow", "without a call", "within a call")


def _chunks() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            size = len(operation.entries[0].tokens)
            if operation.kind not in APPENDS or size < 2 or (new.overflow > old.overflow).any():
                continue
            seen("sampled tokens", operation.kind != CONTEXT and (new.length > old.length).any())
            for cut in range(1, size):
                parts = (operation.part(0, cut), operation.part(cut, size))
                again = perform(subject, parts[1], perform(subject, parts[0], old))
                same(f"{operation.kind} in chunks of {cut} and {size - cut}", again, new, EXACT)

    mutant = Mutant("takes each chunk for a call of its own", a_call_each)
    claim = "Where all has room, tokens in several chunks are tokens at once."
    return law("chunks", claim, mutant, check, "sampled tokens")


def _alone() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        together = states(subject, program)
        seen("rows of several lengths", any(len(set(state.length.tolist())) > 1 for state in together))
        for row in range(ROWS):
            for number, state in enumerate(states(subject, program, row)):
                same(f"row {row} after {number} operations", take(together[number], row), state, EXACT)
        for operation, old, new in zip(program.operations, together, together[1:], strict=False):
            function, given = function_of(subject, operation)
            same(f"{operation.kind} under vmap", torch.vmap(function)(old, *given), new, EXACT)

    mutant = Mutant("writes all rows where the longest one ends", behind_the_longest)
    return law("alone", "A row is what it would be alone.", mutant, check, "rows of several lengths")


def _finish() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            if operation.kind != OVER and operation.kind != FORK:
                cut = operation.kind == END and (new.finish_reason == CUT_AT_LENGTH).any()
                seen("a call cut at its length", cut and not old.truncated.all())
                before, after = ({name: getattr(one, name) for name in ENDS} for one in (old, new))
                same(f"the end after {operation.kind}", after, before, EXACT)

    mutant = Mutant("takes a call cut at its length for a truncation", length_truncates)
    claim = "However a call finishes, only `mark_end` ends an episode."
    return law("finish_is_no_end", claim, mutant, check, "a call cut at its length")


def _reason() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            same("where there is a reason", new.reason != NONE, new.truncated, EXACT)
            if operation.kind == FORK:
                continue
            again = [
                entry.truncated and entry.reason not in (NONE, int(old.reason[row]))
                for row, entry in enumerate(operation.entries)
            ]
            seen("another truncation", operation.kind == OVER and (old.truncated & torch.tensor(again)).any())
            require(~old.terminated | new.terminated, "a termination was taken back")
            require(~old.truncated | new.truncated, "a truncation was taken back")
            same("the first reason", new.reason[old.truncated], old.reason[old.truncated], EXACT)

    mutant = Mutant("keeps the last truncation's reason", last_reason)
    claim = "An end stays, a truncation has a reason, and the first one is kept."
    return law("first_reason", claim, mutant, check, "another truncation")

"""Laws of forks, and of the columns that a learner reads from transcripts: each token counts once, for its own call."""

import torch
from attrs import evolve
from torch import Tensor

from purestep.core.language.types import Transcript
from purestep.core.record import replace
from purestep.core.transcript.record import ABSENT, TOKEN_BLANKS
from purestep.core.tree import clone, leaf_names, leaves
from purestep.properties.framework.compare import EXACT, bits_of, require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite
from purestep.properties.strategies.transcripts import (
    EACH,
    FORK,
    ROWS,
    SAMPLED,
    TranscriptProgram,
    Transcripts,
    operation_steps,
    perform,
    states,
)

from .transcript import Make, columns, law

# --- mutants ---
# Common errors in forks of transcripts, and in the columns that a learner reads.


def keeps_the_rest(subject: Transcripts) -> Transcripts:
    """Reset the length, but leave the tokens beyond it."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        return replace(subject.fork(old, at, id), **{name: getattr(old, name) for name in TOKEN_BLANKS})

    return evolve(subject, fork=fork)


def in_place(subject: Transcripts) -> Transcripts:
    """Blank the tokens beyond the fork in the parent's tensor."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        new = subject.fork(old, at, id)
        return replace(new, token=old.token.copy_(new.token))

    return evolve(subject, fork=fork)


def orphan(subject: Transcripts) -> Transcripts:
    """Return the parent's parent as the fork's parent."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        return replace(subject.fork(old, at, id), parent=old.parent)

    return evolve(subject, fork=fork)


def stays_ended(subject: Transcripts) -> Transcripts:
    """Keep the parent's end of the episode."""

    def fork(old: Transcript, at: Tensor, id: Tensor) -> Transcript:
        return replace(subject.fork(old, at, id), truncated=old.truncated, reason=old.reason)

    return evolve(subject, fork=fork)


def learns_again(subject: Transcripts) -> Transcripts:
    """Train on all actions, also those before the fork."""

    def loss_mask(transcript: Transcript) -> Tensor:
        return transcript.is_action

    return evolve(subject, loss_mask=loss_mask)


def compares_padding(subject: Transcripts) -> Transcripts:
    """Compare all columns, padding included."""

    def prefix_of(one: Transcript, other: Transcript) -> Tensor:
        shared = min(one.token.shape[-1], other.token.shape[-1])
        return (one.token[..., :shared] == other.token[..., :shared]).all(-1) & (one.length <= other.length)

    return evolve(subject, prefix_of=prefix_of)


def compares_lengths(subject: Transcripts) -> Transcripts:
    """Compare the lengths only."""

    def prefix_of(one: Transcript, other: Transcript) -> Tensor:
        return one.length <= other.length

    return evolve(subject, prefix_of=prefix_of)


def proximal_everywhere(subject: Transcripts) -> Transcripts:
    """Write all columns of the forward pass."""

    def with_proximal(old: Transcript, log_probs: Tensor, where: Tensor | None = None) -> Transcript:
        every = torch.ones_like(old.is_action) if where is None else where
        return replace(old, proximal_log_prob=torch.where(every, log_probs, old.proximal_log_prob))

    return evolve(subject, with_proximal=with_proximal)


def over_the_behaviour(subject: Transcripts) -> Transcripts:
    """Write recomputed log-probs over the behaviour log-probs."""

    def with_proximal(old: Transcript, log_probs: Tensor, where: Tensor | None = None) -> Transcript:
        new = subject.with_proximal(old, log_probs, where)
        return replace(new, behaviour_log_prob=new.proximal_log_prob)

    return evolve(subject, with_proximal=with_proximal)


def first_calls(subject: Transcripts) -> Transcripts:
    """Give context tokens the value of the first call."""

    def per_token(transcript: Transcript, values: Tensor, otherwise: float = 0.0) -> Tensor:
        return values.gather(-1, transcript.call.clamp_min(ABSENT + 1))

    return evolve(subject, per_token=per_token)


MUTANTS: dict[str, Make] = {
    "names the grandparent for the parent": orphan,
    "keeps the parent's end": stays_ended,
    "takes the shorter one for a prefix": compares_lengths,
    "writes recomputed log-probs over the behaviour's": over_the_behaviour,
}


# --- laws ---


def transcript_fork_laws() -> Suite:
    """The laws of forks and of masks: of `Transcripts(...)`."""
    return Suite("transcript_fork_laws", (_fork(), _untouched(), _once(), _prefix(), _proximal(), _per_token()))


def _fork() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old, new in operation_steps(subject, program):
            for row, entry in enumerate(operation.entries if operation.kind == FORK else ()):
                at = min(entry.at, int(old.length[row]))
                seen("a fork in the middle", 0 < at < old.length[row])
                seen("a fork of a fork", old.parent[row] != ABSENT)
                seen("a fork of what has ended", old.truncated[row])
                before, after = (columns(one, TOKEN_BLANKS, row, at) for one in (old, new))
                same("the prefix", after, before, EXACT)
                blank = columns(
                    subject.empty(program.capacity, 1, id=torch.tensor([0])), TOKEN_BLANKS, 0, program.capacity
                )
                rest = {name: getattr(new, name)[row, at:] for name in TOKEN_BLANKS}
                same("what follows the prefix", rest, {name: column[at:] for name, column in blank.items()}, EXACT)
                same("parent", new.parent[row], old.id[row], EXACT)
                same(
                    "id, length, inherited",
                    [int(getattr(new, name)[row]) for name in ("id", "length", "inherited")],
                    [entry.id, at, at],
                    EXACT,
                )
                require(~(new.terminated | new.truncated)[row] & (new.overflow[row] == 0), "a fork has not ended")

    mutant = Mutant("keeps what followed the place of the fork", keeps_the_rest)
    claim = "A fork is the prefix as it was written, of a parent that it names, and nothing more."
    needs = ("a fork in the middle", "a fork of a fork", "a fork of what has ended")
    return law("fork", claim, mutant, check, *needs)


def _untouched() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for operation, old in zip(program.operations, states(subject, program), strict=False):
            given = clone(old)
            before = [leaf._version for leaf in leaves(given)]
            perform(subject, operation, given)
            seen("a fork in the middle", operation.kind == FORK and (old.length > 1).any())
            for name, leaf, kept, version in zip(leaf_names(given), leaves(given), leaves(old), before, strict=True):
                same(f"{name} after {operation.kind}", bits_of(leaf), bits_of(kept), EXACT)
                require(leaf._version == version, f"{operation.kind} wrote to {name}")

    mutant = Mutant("blanks in place what the fork leaves out", in_place)
    claim = "No operation touches the transcript that it is given."
    return law("untouched", claim, mutant, check, "a fork in the middle")


def _once() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        sampled = counted = torch.zeros(ROWS, dtype=torch.int64)
        for operation, old, new in operation_steps(subject, program):
            if operation.kind in (SAMPLED, EACH):
                sampled = sampled + new.length - old.length
            if operation.kind == FORK:
                seen("actions in a prefix", new.is_action.any())
                counted = counted + subject.loss_mask(old).sum(-1)
            last = subject.loss_mask(new)
            require(~last | new.is_action, "something is learnt from that nobody sampled")
            same("tokens learnt from", counted + last.sum(-1), sampled, EXACT)

    mutant = Mutant("learns in a fork from what the parent said", learns_again)
    claim = "Over a transcript and its forks, each sampled token is learnt from exactly once."
    return law("learnt_once", claim, mutant, check, "actions in a prefix")


def _prefix() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        found = states(subject, program)
        texts = [[state.token[row, : state.length[row]].tolist() for row in range(ROWS)] for state in found]
        wider = subject.empty(program.capacity + 2, 1, id=torch.arange(ROWS))
        for one, some in zip(found, texts, strict=True):
            for other, more in zip(found, texts, strict=True):
                wanted = [b[: len(a)] == a for a, b in zip(some, more, strict=True)]
                seen(
                    "a shorter prefix",
                    any(w and 0 < len(a) < len(b) for w, a, b in zip(wanted, some, more, strict=True)),
                )
                seen(
                    "a shorter one, no prefix",
                    any(not w and len(a) <= len(b) for w, a, b in zip(wanted, some, more, strict=True)),
                )
                same(f"whether {some} begin {more}", subject.prefix_of(one, other).tolist(), wanted, EXACT)
            same("within more room", subject.prefix_of(wider, one).tolist(), [True] * ROWS, EXACT)
            same("of an empty one", subject.prefix_of(one, wider).tolist(), [not text for text in some], EXACT)

    mutant = Mutant("compares padding, too", compares_padding)
    claim = "One is a prefix of another exactly where its list of tokens begins the other's."
    return law("prefix", claim, mutant, check, "a shorter prefix", "a shorter one, no prefix")


def _proximal() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        for state in states(subject, program):
            scores = -torch.arange(1.0, state.token.numel() + 1).reshape(state.token.shape)
            for where in (None, state.version == 1):
                new = subject.with_proximal(state, scores, where)
                chosen = state.is_action if where is None else state.is_action & where
                seen("some of the actions", where is not None and chosen.any() and (state.is_action & ~chosen).any())
                seen("context", (~state.is_action).any() and state.is_action.any())
                wanted = torch.where(chosen, scores, state.proximal_log_prob)
                same("proximal log-probs", new, replace(state, proximal_log_prob=wanted), EXACT)

    mutant = Mutant("gives context proximal log-probs as well", proximal_everywhere)
    claim = "Proximal log-probs come to the actions asked for, and nothing else changes."
    return law("proximal", claim, mutant, check, "some of the actions", "context")


def _per_token() -> Law:
    def check(subject: Transcripts, program: TranscriptProgram, seen: Seen) -> None:
        values = torch.arange(1.0, 1 + ROWS * program.calls).reshape(ROWS, -1)
        for state in states(subject, program):
            found = subject.per_token(state, values, 0.5)
            for row in range(ROWS):
                calls = state.call[row].tolist()
                seen("context beside a call", len(set(calls[: int(state.length[row])])) > 1)
                wanted = torch.tensor([0.5 if call < 0 else float(values[row, call]) for call in calls])
                same(f"what tokens of calls {calls} get", found[row], wanted, EXACT)

    mutant = Mutant("gives context what the first call has", first_calls)
    claim = "A token gets what stands at its call, and what no call made gets the rest."
    return law("per_token", claim, mutant, check, "context beside a call")

"""Laws of the columns of a learner's batch that are computed from transcripts: the subject is `Columns`."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.core.language.types import Counts, TokenBatch, Transcript
from purestep.core.record import replace
from purestep.core.transcript.calls import per_token
from purestep.core.transcript.record import ABSENT
from purestep.properties.framework.compare import DOUBLE, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.learner import Talks, talks

# --- mutants ---
# Common errors in columns of transcripts: each an edit of a right function.


@attrs.frozen
class Columns:
    """The subject of the laws of columns."""

    token_batch: Callable[[Transcript], TokenBatch]
    token_rewards: Callable[[Transcript], Tensor]
    numbered: Callable[[Tensor], Tensor]
    counts: Callable[..., Counts]  # (batch, *, of)


def _rewarding(change: Callable[[Columns, Transcript], Tensor]) -> Callable[[Columns], Columns]:
    return lambda subject: attrs.evolve(subject, token_rewards=lambda said: change(subject, said))


def _batch(change: Callable[[TokenBatch, Transcript], TokenBatch]) -> Callable[[Columns], Columns]:
    return lambda subject: attrs.evolve(subject, token_batch=lambda said: change(subject.token_batch(said), said))


def counts_rows(subject: Columns) -> Columns:
    """Count sequences without a token that counts as well."""

    def counts(batch: TokenBatch, **named: Any) -> Counts:
        told = subject.counts(batch, **named)
        return replace(told, sequences=torch.full_like(told.sequences, len(batch.length)))

    return attrs.evolve(subject, counts=counts)


def ids_as_numbers(subject: Columns) -> Columns:
    """Use group ids as indices, and clamp those that are too large."""
    return attrs.evolve(subject, numbered=lambda group: group.clamp(-1, len(group) - 1))


pays_every_token = _rewarding(lambda right, said: torch.where(said.is_action, per_token(said, said.reward), 0.0))
forgets_silent_calls = _rewarding(
    lambda right, said: torch.where(right.token_rewards(said) != 0, per_token(said, said.reward), 0.0)
)
learns_twice = _batch(lambda batch, said: replace(batch, mask=said.is_action.clone(), sampled=said.is_action.clone()))
divides_by_0 = _batch(lambda batch, said: replace(batch, temperature=per_token(said, said.temperature, 1.0)))

MUTANTS: dict[str, Callable[[Columns], Columns]] = {"forgets what a silent call earned": forgets_silent_calls}


# --- laws ---


SOURCE = "design: a reward belongs to the last token sampled before it; a token learns where it was written"


def column_laws() -> Suite:
    """The laws of `Columns(token_batch, token_rewards, numbered, counts)`."""
    return Suite("column_laws", (_rewards(), _own(), _temperatures(), _numbers(), _counts()))


_law = law_constructor(talks, SOURCE)


def _silenced(said: Transcript) -> Transcript:
    """Return the transcript with a second call that sampled nothing, in every other row."""
    silent = (said.call == 1) & (torch.arange(len(said.length)) % 2 == 0)[:, None]
    return replace(said, is_action=said.is_action & ~silent, call=torch.where(silent, ABSENT, said.call))


def _paid(said: Transcript, row: int) -> list[float]:
    """The rewards of tokens by a loop over calls: at the last token of the call, or of the last call before it with any."""
    paid, last = [0.0] * said.token.shape[1], -1
    for call in range(int(said.calls[row])):
        own = [t for t in range(len(paid)) if bool(said.is_action[row, t]) and int(said.call[row, t]) == call]
        last = own[-1] if own else last
        if last >= 0:
            paid[last] += float(said.reward[row, call])
    return paid


def _rewards() -> Law:
    def check(subject: Columns, talk: Talks, seen: Seen) -> None:
        said = _silenced(talk.transcripts)
        got = subject.token_rewards(said)
        for row in range(len(said.length)):
            spoke = {int(call) for call in said.call[row] if call >= 0}
            seen("a silent call behind another", 0 in spoke and int(said.calls[row]) > 1 and 1 not in spoke)
            seen("a call of several tokens", len(spoke) < int(said.is_action[row].sum()))
            same(f"rewards of row {row}", got[row], torch.tensor(_paid(said, row), dtype=torch.float64), DOUBLE)

    mutant = ("pays every token of a call", pays_every_token)
    claim = "A call's reward stands at its last token, that of a silent one at the last token before it."
    needs = ("a silent call behind another", "a call of several tokens")
    return _law("rewards", claim, mutant, check, *needs)


def _own() -> Law:
    def check(subject: Columns, talk: Talks, seen: Seen) -> None:
        said = replace(talk.transcripts, inherited=talk.transcripts.length.clamp(max=3))
        place = torch.arange(said.token.shape[1])
        old = said.is_action & (place < said.inherited[:, None])
        seen("sampled tokens that were inherited, and others", old.any() and (said.is_action & ~old).any())
        batch = subject.token_batch(said)
        same("mask", batch.mask, said.is_action & ~old)
        same("sampled", batch.sampled, batch.mask)
        inside = place < said.length[:, None]
        same("tokens", batch.token, torch.where(inside, said.token, 0))
        same("behaviour log-probs", batch.behaviour_log_prob, said.behaviour_log_prob)

    mutant = ("learns from inherited tokens again", learns_twice)
    claim = "What counts is what was sampled in this transcript; columns are the transcript's."
    return _law("own_tokens", claim, mutant, check, "sampled tokens that were inherited, and others")


def _temperatures() -> Law:
    def check(subject: Columns, talk: Talks, seen: Seen) -> None:
        said = talk.transcripts
        first = torch.arange(said.temperature.shape[1]) == 0
        greedy = replace(said, temperature=torch.where(first, 0.0, said.temperature))
        got = subject.token_batch(greedy).temperature
        seen("a greedy token", (said.call == 0).any())
        seen("another one", (said.call > 0).any())
        wanted: Tensor = said.temperature.gather(1, said.call.clamp(min=0))
        same("temperatures", got, torch.where(said.call > 0, wanted, 1.0).to(got.dtype))

    mutant = ("keeps the temperature 0 of a greedy call", divides_by_0)
    claim = "A token has the temperature of its call, and 1 at context or where the call was greedy."
    return _law("temperatures", claim, mutant, check, "a greedy token", "another one")


def _numbers() -> Law:
    def check(subject: Columns, talk: Talks, seen: Seen) -> None:
        group = torch.where(talk.transcripts.length > 0, talk.transcripts.group, ABSENT)
        seen("rows of no group", (group < 0).any())
        seen("several groups", len({int(each) for each in group if each >= 0}) > 1)
        got = subject.numbered(group)
        require((got < len(group)) & (got >= -1), f"numbers are {got.tolist()}")
        same("which rows have none", got < 0, group < 0)
        same("which rows share one", got[:, None] == got, (group[:, None] == group))

    mutant = ("takes ids for numbers", ids_as_numbers)
    claim = "Rows have the same number exactly if they have the same group, from 0 to N - 1; -1 is that of no group."
    return _law("numbers", claim, mutant, check, "rows of no group", "several groups")


def _counts() -> Law:
    def check(subject: Columns, talk: Talks, seen: Seen) -> None:
        batch = subject.token_batch(talk.transcripts)
        left = batch.mask & (torch.arange(batch.mask.shape[1]) % 2 == 0)
        some = replace(batch, mask=left)
        for of, mask in (("counted", left), ("sampled", batch.mask)):
            told = subject.counts(some, of=of)
            rows = [sum(bool(each) for each in row) for row in mask]
            seen("a row in which nothing counts", 0 in rows and any(rows))
            same(f"tokens {of}", int(told.tokens), sum(rows))
            same(f"sequences {of}", int(told.sequences), sum(number > 0 for number in rows))

    mutant = ("counts empty sequences too", counts_rows)
    claim = "Counts are the numbers of tokens and of sequences with one, of what counts or of all that was sampled."
    return _law("counts", claim, mutant, check, "a row in which nothing counts")

"""Laws of credit: every sampled token gets exactly one credit, equal to the one computed from lists of rewards."""

from collections.abc import Callable

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ....algorithms.language.group_advantages import rloo_advantages
from ....core.language.types import Transcript
from ....core.record import take
from ....core.transcript.record import SAMPLED as FROM_MODEL
from ...framework.compare import ROUNDING, require, same
from ...framework.law import Law, Seen, Suite, law_constructor
from ...strategies.transcripts import (
    EACH,
    FORK,
    ROWS,
    SAMPLED,
    TranscriptProgram,
    operation_steps,
    own_transcripts,
    programs,
    states,
)
from ...strategies.values import POISON, dyadic, integers

# --- mutants ---
# Common mistakes in credit: each edits correct functions.


@attrs.frozen
class Crediting:
    """The subject of the laws of credit; rewards are [N, C], numbers of calls made [N], groups [N]."""

    per_step: Callable[[Tensor, Tensor], Tensor]
    episode: Callable[[Tensor, Tensor], Tensor]
    monte_carlo: Callable[..., Tensor]  # (reward, calls, *, gamma)
    group: Callable[..., Tensor]  # (reward, calls, group, *, estimator)
    token_credit: Callable[[Transcript, Tensor], Tensor]  # credit [N, C] -> [N, L]


def _tokens(subject: Crediting, change: Callable[[Transcript, Tensor], Tensor]) -> Crediting:
    return attrs.evolve(subject, token_credit=change)


def pays_context(subject: Crediting) -> Crediting:
    """Give the tokens after a call, tool results included, the credit of that call."""

    def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
        call = transcript.call.cummax(-1).values
        place = torch.arange(call.shape[-1])
        here = (call >= 0) & (place >= transcript.inherited[:, None]) & (place < transcript.length[:, None])
        return torch.where(here, credit.gather(-1, call.clamp_min(0)), 0.0)

    return _tokens(subject, token_credit)


def pays_twice(subject: Crediting) -> Crediting:
    """Give the tokens that a fork inherited their credit once more."""

    def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
        found = credit.gather(-1, transcript.call.clamp_min(0))
        return torch.where(transcript.source == FROM_MODEL, found, 0.0)

    return _tokens(subject, token_credit)


def last_call_only(subject: Crediting) -> Crediting:
    """Give credit to the last call's tokens only."""

    def token_credit(transcript: Transcript, credit: Tensor) -> Tensor:
        right = subject.token_credit(transcript, credit)
        return torch.where(transcript.call == transcript.calls[:, None] - 1, right, 0.0)

    return _tokens(subject, token_credit)


def what_came_before(subject: Crediting) -> Crediting:
    """Sum the rewards up to a call, not from it on."""

    def monte_carlo(reward: Tensor, calls: Tensor, *, gamma: float) -> Tensor:
        earned = subject.per_step(reward, calls)
        total, found = torch.zeros_like(calls, dtype=reward.dtype), []
        for column in earned.unbind(-1):
            total = column + gamma * total
            found.append(total)
        return torch.where(torch.arange(reward.shape[-1]) < calls[:, None], torch.stack(found, -1), 0.0)

    return attrs.evolve(subject, monte_carlo=monte_carlo)


def mean_return(subject: Crediting) -> Crediting:
    """Give each call an equal share of the return, not the whole."""

    def episode(reward: Tensor, calls: Tensor) -> Tensor:
        return subject.episode(reward, calls) / calls.clamp_min(1)[:, None]

    return attrs.evolve(subject, episode=episode)


def counts_blanks(subject: Crediting) -> Crediting:
    """Multiply the rewards of calls that were not made by 0, which keeps NaN."""

    def per_step(reward: Tensor, calls: Tensor) -> Tensor:
        return reward * (torch.arange(reward.shape[-1]) < calls[:, None])

    return attrs.evolve(subject, per_step=per_step)


def compares_calls(subject: Crediting) -> Crediting:
    """Compare the first calls of a group with each other, then the second ones, and so on."""

    def group(reward: Tensor, calls: Tensor, group: Tensor, *, estimator: Callable[..., Tensor]) -> Tensor:
        columns = [estimator(column, group) for column in subject.per_step(reward, calls).unbind(-1)]
        return torch.where(torch.arange(reward.shape[-1]) < calls[:, None], torch.stack(columns, -1), 0.0)

    return attrs.evolve(subject, group=group)


def weighs_calls(subject: Crediting) -> Crediting:
    """Weight an episode in its group by the number of its calls."""

    def group(reward: Tensor, calls: Tensor, group: Tensor, *, estimator: Callable[..., Tensor]) -> Tensor:
        return subject.group(reward * calls[:, None], calls, group, estimator=estimator)

    return attrs.evolve(subject, group=group)


MUTANTS: dict[str, Callable[[Crediting], Crediting]] = {
    "lets the last call alone learn": last_call_only,
    "weighs an episode by its calls": weighs_calls,
}


# --- laws ---


GAMMA = 0.5
SOURCE = "design: a reward belongs to the call that earned it, a credit to all its tokens"


@attrs.frozen
class Earned:
    """Rewards of the calls of some episodes, and the value to put beyond the calls made."""

    reward: Tensor
    calls: Tensor
    group: Tensor
    poison: float


@st.composite
def _earned(draw: DrawFn) -> Earned:
    count, most = draw(st.sampled_from((2, 4))), draw(st.sampled_from((1, 3)))
    calls, group = draw(integers((count,), 0, most + 1)), draw(integers((count,), 0, 2))
    return Earned(draw(dyadic((count, most))), calls, group, draw(st.sampled_from(POISON)))


def credit_laws() -> Suite:
    """Return the laws of `Crediting(per_step, episode, monte_carlo, group, token_credit)`."""
    tokens = (_one_each(), _own_call())
    return Suite("credit_laws", (*tokens, _whole(), _to_come(), _relation(), _compared(), _unmade()))


_law = law_constructor(_earned, SOURCE, numeric=True)


_written = law_constructor(programs, SOURCE, most=200, numeric=True)


def _one_each() -> Law:
    def check(subject: Crediting, program: TranscriptProgram, seen: Seen) -> None:
        found = states(own_transcripts(), program)
        final = [old for operation, old in zip(program.operations, found, strict=False) if operation.kind == FORK]
        paid = torch.zeros(ROWS, dtype=torch.int64)
        for transcript in [*final, found[-1]]:
            seen("context behind a call", (~transcript.is_action & (transcript.call.cummax(-1).values >= 0)).any())
            seen("a fork with sampled tokens", (transcript.is_action.any(-1) & (transcript.inherited > 0)).any())
            ones = subject.token_credit(transcript, torch.ones_like(transcript.reward))
            require(not bool(ones[~transcript.is_action].any()), "a token that no model sampled has credit")
            paid = paid + ones.sum(-1).to(torch.int64)
        made = torch.zeros(ROWS, dtype=torch.int64)
        for operation, old, new in operation_steps(own_transcripts(), program):
            if operation.kind in (SAMPLED, EACH):
                made = made + new.length - old.length
        same("credits paid", paid, made)

    claim = "Over a transcript and its forks every sampled token gets exactly one credit, and context gets none."
    mutant = ("pays what a fork inherited once more", pays_twice)
    needs = ("context behind a call", "a fork with sampled tokens")
    return _written("one_credit_each", claim, mutant, check, *needs)


def _own_call() -> Law:
    def check(subject: Crediting, program: TranscriptProgram, seen: Seen) -> None:
        transcript = states(own_transcripts(), program)[-1]
        credit = torch.arange(transcript.reward.numel(), dtype=torch.float32).reshape(transcript.reward.shape) + 1.0
        got = subject.token_credit(transcript, credit)
        for row in range(ROWS):
            one = take(transcript, row)
            calls, inherited = one.call.tolist(), int(one.inherited)
            seen("several calls", len({*calls[inherited:]} - {-1}) > 1)
            wanted = [
                float(credit[row, call]) if call >= 0 and place >= inherited else 0.0
                for place, call in enumerate(calls)
            ]
            same(f"the credit of the tokens of row {row}", got[row], torch.tensor(wanted))

    claim = "The credit of a token is that of the call which sampled it."
    mutant = ("gives context the credit of the call before it", pays_context)
    return _written("its_own_call", claim, mutant, check, "several calls")


def _lists(drawn: Earned) -> list[list[float]]:
    return [row[:calls] for row, calls in zip(drawn.reward.tolist(), drawn.calls.tolist(), strict=True)]


def _columns(rows: list[list[float]], like: Tensor) -> Tensor:
    return torch.tensor([row + [0.0] * (like.shape[-1] - len(row)) for row in rows])


def _whole() -> Law:
    def check(subject: Crediting, drawn: Earned, seen: Seen) -> None:
        seen("several calls of one episode", (drawn.calls > 1).any())
        wanted = [[sum(row)] * len(row) for row in _lists(drawn)]
        same("episode", subject.episode(drawn.reward, drawn.calls), _columns(wanted, drawn.reward), ROUNDING)

    mutant = ("divides the return among the calls", mean_return)
    claim = "With `episode` every call made has the whole return, and every other 0."
    return _law("whole_return", claim, mutant, check, "several calls of one episode")


def _to_come() -> Law:
    def check(subject: Crediting, drawn: Earned, seen: Seen) -> None:
        rows = _lists(drawn)
        seen("several calls of one episode", (drawn.calls > 1).any())
        wanted = [[sum(GAMMA**k * r for k, r in enumerate(row[c:])) for c in range(len(row))] for row in rows]
        got = subject.monte_carlo(drawn.reward, drawn.calls, gamma=GAMMA)
        same("monte_carlo", got, _columns(wanted, drawn.reward), ROUNDING)

    mutant = ("sums what came before a call", what_came_before)
    source = "Sutton and Barto 2018, equation 3.9"
    claim = "With `monte_carlo` a call has the discounted rewards from its own on."
    return _law("rewards_to_come", claim, mutant, check, "several calls of one episode", source=source)


def _relation() -> Law:
    def check(subject: Crediting, drawn: Earned, seen: Seen) -> None:
        given = drawn.reward, drawn.calls
        seen("several calls of one episode", (drawn.calls > 1).any())
        own = subject.per_step(*given)
        same("monte_carlo with gamma 0", subject.monte_carlo(*given, gamma=0.0), own)
        undiscounted = subject.monte_carlo(*given, gamma=1.0)
        same("the first call's, with gamma 1", undiscounted[:, 0], subject.episode(*given)[:, 0], ROUNDING)
        same("what each call adds", undiscounted[:, :-1] - undiscounted[:, 1:], own[:, :-1], ROUNDING)

    def edit(subject: Crediting) -> Crediting:
        def monte_carlo(reward: Tensor, calls: Tensor, *, gamma: float) -> Tensor:
            return gamma * subject.monte_carlo(reward, calls, gamma=gamma)

        return attrs.evolve(subject, monte_carlo=monte_carlo)

    claim = "monte_carlo is per_step for gamma 0, and for gamma 1 the first call's is the episode's return."
    return _law("relations", claim, ("discounts a call's own reward", edit), check, "several calls of one episode")


def _compared() -> Law:
    def estimator(value: Tensor, group: Tensor) -> Tensor:
        return rloo_advantages(value, group, groups=2)

    def check(subject: Crediting, drawn: Earned, seen: Seen) -> None:
        episodes = torch.tensor([sum(row) for row in _lists(drawn)])
        advantage = estimator(episodes, drawn.group).tolist()
        seen("episodes of different lengths that differ", len(set(drawn.calls.tolist())) > 1 and any(advantage))
        wanted = [[a] * calls for a, calls in zip(advantage, drawn.calls.tolist(), strict=True)]
        got = subject.group(drawn.reward, drawn.calls, drawn.group, estimator=estimator)
        same("group", got, _columns(wanted, drawn.reward), ROUNDING)

    mutant = ("compares calls, not episodes", compares_calls)
    source = "Shao et al. 2024, arXiv:2402.03300, section 4.1.2"
    claim = "With `group` every call made has its episode's advantage over others of the group."
    needs = "episodes of different lengths that differ"
    return _law("episodes_compared", claim, mutant, check, needs, source=source)


def _unmade() -> Law:
    def check(subject: Crediting, drawn: Earned, seen: Seen) -> None:
        beyond = torch.arange(drawn.reward.shape[-1]) >= drawn.calls[:, None]
        seen("calls not made", beyond.any())
        poisoned = torch.where(beyond, drawn.poison, drawn.reward)
        for name in ("per_step", "episode"):
            function = getattr(subject, name)
            same(f"{name} beside {drawn.poison}", function(poisoned, drawn.calls), function(drawn.reward, drawn.calls))
        got, wanted = (subject.monte_carlo(x, drawn.calls, gamma=GAMMA) for x in (poisoned, drawn.reward))
        same(f"monte_carlo beside {drawn.poison}", got, wanted)

    claim = "Whatever stands at calls that were not made, NaN and infinity included, no credit changes."
    return _law("calls_not_made", claim, ("multiplies them by 0", counts_blanks), check, "calls not made")

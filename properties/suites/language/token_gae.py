"""Laws of advantages over sampled tokens: f(rewards, values, mask, next_value, terminated, *, gamma, lambda_) -> [N, L]."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...framework.compare import ROUNDING, require, same
from ...framework.law import Law, Seen, Suite, always, law_constructor
from ...strategies.values import POISON, dyadic, flags
from ..estimator import reference
from ..loss import LARGE, NAN

# --- mutants ---
# Common errors in advantages over the tokens of a conversation.


TokenGae = Callable[..., Tensor]  # (rewards, values, mask, next_value, terminated, *, gamma, lambda_)


def _given(change: Callable[..., tuple[Tensor, ...]]) -> Callable[[TokenGae], TokenGae]:
    """Return an edit of the arguments; the result is masked with the original mask."""

    def make(subject: TokenGae) -> TokenGae:
        def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
            found = subject(*change(rewards, values, mask, *rest), **numbers)
            return torch.where(mask, found, 0.0)

        return edited

    return make


def _up_to_the_last(mask: Tensor) -> Tensor:
    return mask.flip(-1).cummax(-1).values.flip(-1) if mask.shape[-1] else mask


def _reward_moved(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
    earlier = torch.nn.functional.pad(rewards, (0, 1))[..., 1:]
    return (rewards + torch.where(torch.nn.functional.pad(~mask, (0, 1))[..., 1:], earlier, 0.0), values, mask, *rest)


context_takes_time = _given(lambda r, v, mask, *rest: (r, v, _up_to_the_last(mask.to(torch.uint8)) > 0, *rest))
pays_for_context = _given(_reward_moved)
truncation_terminates = _given(lambda r, v, m, after, terminated: (r, v, m, after, torch.ones_like(terminated)))
past_termination = _given(lambda r, v, m, after, terminated: (r, v, m, after, torch.zeros_like(terminated)))
next_row = _given(lambda r, v, m, after, terminated: (r, v, m, after.roll(1), terminated))


def cut_at_turns(subject: TokenGae) -> TokenGae:
    """Restart the trace after each stretch of context, and bootstrap from the value behind it."""

    def edited(
        rewards: Tensor, values: Tensor, mask: Tensor, next_value: Tensor, terminated: Tensor, **numbers: Any
    ) -> Tensor:
        right = subject(rewards, values, mask, next_value, terminated, **numbers)
        one_step = subject(rewards, values, mask, next_value, terminated, **{**numbers, "lambda_": 0.0})
        before_context = mask & torch.nn.functional.pad(~mask, (0, 1))[..., 1:]
        return torch.where(before_context, one_step, right)

    return edited


def multiplies_by_mask(subject: TokenGae) -> TokenGae:
    """Multiply by the mask, which leaves NaN: 0 times NaN is NaN."""

    def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
        return subject(rewards, values, mask, *rest, **numbers) + 0.0 * (values * ~mask).sum(-1, keepdim=True)

    return edited


def adds_context(subject: TokenGae) -> TokenGae:
    """Add the values of context with a small weight."""

    def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
        found = subject(rewards, values, mask, *rest, **numbers)
        return found + mask * (0.01 * (values * ~mask).sum(-1, keepdim=True))

    return edited


def centred_advantages(subject: TokenGae) -> TokenGae:
    """Centre the advantages over the batch before they are returned."""

    def edited(rewards: Tensor, values: Tensor, mask: Tensor, *rest: Tensor, **numbers: Any) -> Tensor:
        found = subject(rewards, values, mask, *rest, **numbers)
        return torch.where(mask, found - found.sum() / mask.sum().clamp_min(1), 0.0)

    return edited


MUTANTS: dict[str, Callable[[TokenGae], TokenGae]] = {
    "bootstraps past a termination": past_termination,
    "takes the next value of another row": next_row,
}


# --- laws ---


GAE = "Schulman et al. 2016, arXiv:1506.02438"
FIELD = "verl, AReaL: value and trace are carried across context"


@attrs.frozen
class Talk:
    """Conversations: rewards and values of tokens, the mask of sampled tokens, and the ends of the rows."""

    rewards: Tensor
    values: Tensor
    mask: Tensor
    next_value: Tensor
    terminated: Tensor
    gamma: float
    lambda_: float
    poison: float


@st.composite
def mixed_talks(draw: DrawFn, poison: tuple[float, ...] = POISON) -> Talk:
    """Draw conversations: some begin with context, some end with it, some consist of it."""
    rows, length = draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 4, 9)))
    mask, shape = ~draw(flags((rows, length))), (rows, length)
    numbers = st.sampled_from((0.5, 1.0, 0.0))
    return Talk(
        rewards=draw(dyadic(shape)),
        values=draw(dyadic(shape)),
        mask=mask & ~draw(flags((rows, 1))) & ~draw(flags(shape)),
        next_value=draw(dyadic((rows,))),
        terminated=draw(flags((rows,))),
        gamma=draw(numbers),
        lambda_=draw(numbers),
        poison=draw(st.sampled_from(poison)),
    )


def token_gae_laws(*, nan_padding: bool = False) -> Suite:
    """The laws of generalized advantages in which only sampled tokens are steps.

    `nan_padding`: it claims that NaN and infinity at context and beyond a termination do not matter.
    """
    inputs = mixed_talks(POISON if nan_padding else LARGE)
    laws = (_joined(), _context(nan_padding), _inserted(), _ends(), _sums(), _rows())
    return Suite("token_gae_laws", tuple(attrs.evolve(law, inputs=always(inputs)) for law in laws))


_law = law_constructor(mixed_talks, FIELD, numeric=True)


def _ask(subject: TokenGae, talk: Talk, **changes: Any) -> Tensor:
    talk = attrs.evolve(talk, **changes)
    given = talk.rewards, talk.values, talk.mask, talk.next_value, talk.terminated
    return subject(*given, gamma=talk.gamma, lambda_=talk.lambda_)


def _joined_up(talk: Talk, row: int) -> Tensor:
    """The definition, applied to the sampled tokens of one row."""
    kept = talk.mask[row]
    rewards, values = talk.rewards[row][kept], talk.values[row][kept]
    if not len(rewards):
        return rewards
    after = torch.cat([values[1:], talk.next_value[row : row + 1]])
    last = torch.arange(len(rewards)) == len(rewards) - 1
    terminated = last & talk.terminated[row]
    return reference(rewards, values, after, terminated, last & ~terminated, gamma=talk.gamma, lambda_=talk.lambda_)


def _joined() -> Law:
    def check(subject: TokenGae, talk: Talk, seen: Seen) -> None:
        got = _ask(subject, talk)
        for row, mask in enumerate(talk.mask):
            places = mask.nonzero()[:, 0]
            seen("context between sampled tokens", len(places) and places[-1] - places[0] >= len(places))
            seen("nothing sampled", not len(places))
            same(f"row {row} of the tokens sampled", got[row][mask], _joined_up(talk, row), ROUNDING)

    claim = "The advantages are those of the sampled tokens in a row, all else left out."
    mutant = ("takes context for steps", context_takes_time)
    needs = ("context between sampled tokens", "nothing sampled")
    return _law("sampled_tokens_joined", claim, mutant, check, *needs, source=GAE)


def _context(nan_padding: bool) -> Law:
    def check(subject: TokenGae, talk: Talk, seen: Seen) -> None:
        seen("context", (~talk.mask).any())
        wanted = _ask(subject, talk)
        changed = {name: torch.where(talk.mask, getattr(talk, name), talk.poison) for name in ("rewards", "values")}
        same(f"advantages with context of {talk.poison}", _ask(subject, talk, **changed), wanted)
        require(not bool(wanted[~talk.mask].any()), "a token that no model sampled has an advantage")

    claim = f"Whatever stands at context{NAN if nan_padding else ''}, advantages keep their bits, and there they are 0."
    mutant = ("multiplies by the mask", multiplies_by_mask) if nan_padding else ("adds a little of all", adds_context)
    return _law("context_is_nothing", claim, mutant, check, "context")


def _inserted() -> Law:
    def check(subject: TokenGae, talk: Talk, seen: Seen) -> None:
        rows, length = talk.mask.shape
        seen("several tokens sampled", (talk.mask.sum(-1) > 1).any())

        def spread(column: Tensor, between: float | bool) -> Tensor:
            return torch.stack([column, torch.full_like(column, between)], -1).reshape(rows, 2 * length)

        longer = {"rewards": spread(talk.rewards, 3.0), "values": spread(talk.values, 5.0)}
        got = _ask(subject, talk, **longer, mask=spread(talk.mask, False))
        same("advantages with context after each token", got, spread(_ask(subject, talk), 0.0), ROUNDING)

    claim = "Context between tokens costs no discount, however long it is, and what it earns is nobody's."
    mutant = ("adds what context earned to the token before", pays_for_context)
    return _law("context_takes_no_time", claim, mutant, check, "several tokens sampled")


def _ends() -> Law:
    def check(subject: TokenGae, talk: Talk, seen: Seen) -> None:
        over, open_ = torch.ones_like(talk.terminated), torch.zeros_like(talk.terminated)
        seen("a value beyond that counts", talk.gamma and (talk.mask.any(-1) & (talk.next_value != 0)).any())
        nothing = torch.zeros_like(talk.next_value)
        ended = _ask(subject, talk, terminated=over)
        poisoned = _ask(subject, talk, terminated=over, next_value=torch.full_like(nothing, talk.poison))
        same(f"terminated, with {talk.poison} beyond", poisoned, ended)
        same("truncated, with nothing beyond", _ask(subject, talk, terminated=open_, next_value=nothing), ended)
        last = torch.where(talk.mask, torch.arange(talk.mask.shape[1]), -1).amax(-1, keepdim=True)
        more = (_ask(subject, talk, terminated=open_) - ended).gather(-1, last.clamp_min(0))
        wanted = torch.where(last >= 0, talk.gamma * talk.next_value[:, None], 0.0)
        same("what the value beyond adds to the last token", more, wanted, ROUNDING)

    claim = "A termination ignores what lies beyond, and a truncation adds gamma v' to the last token."
    mutant = ("takes a truncation for a termination", truncation_terminates)
    return _law("endings", claim, mutant, check, "a value beyond that counts", source=GAE)


def _sums() -> Law:
    def check(subject: TokenGae, talk: Talk, seen: Seen) -> None:
        seen("several tokens sampled", (talk.mask.sum(-1) > 1).any())
        talk = attrs.evolve(talk, gamma=1.0, lambda_=1.0)
        rewards = torch.where(talk.mask, talk.rewards, 0.0)
        to_come = rewards.flip(-1).cumsum(-1).flip(-1) + torch.where(talk.terminated, 0.0, talk.next_value)[:, None]
        wanted = torch.where(talk.mask, to_come - talk.values, 0.0)
        same("advantages with gamma = lambda = 1", _ask(subject, talk), wanted, ROUNDING)

    claim = "With gamma = lambda = 1 an advantage is what is still to come, less the value."
    mutant = ("begins the trace anew after context", cut_at_turns)
    return _law("sums", claim, mutant, check, "several tokens sampled", source="derived: the errors telescope")


def _rows() -> Law:
    def check(subject: TokenGae, talk: Talk, seen: Seen) -> None:
        seen("several conversations", talk.mask.any(-1).sum() > 1)
        wanted = _ask(subject, talk)
        for row in range(len(talk.mask)):
            names = ("rewards", "values", "mask", "next_value", "terminated")
            alone = {name: getattr(talk, name)[row : row + 1] for name in names}
            same(f"conversation {row} alone", _ask(subject, talk, **alone), wanted[row : row + 1], ROUNDING)

    claim = "A conversation's advantages do not depend on the others in the batch."
    return _law("rows_alone", claim, ("centres over the batch", centred_advantages), check, "several conversations")

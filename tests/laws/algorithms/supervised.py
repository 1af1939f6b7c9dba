"""Laws of the cross-entropy of demonstrated tokens; the subject is f(model, params, token, mask, *, denominator) -> []."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.core.bigram import bigram
from purestep.properties.framework.compare import ROUNDING, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import dyadic, flags, integers

# --- mutants ---
# Common errors in cross-entropies of transcripts.


Entropy = Callable[..., Tensor]  # (model, params, token, mask, *, denominator) -> []


def _given(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[Entropy], Entropy]:
    """An edit of the tokens and the mask."""

    def make(subject: Entropy) -> Entropy:
        return lambda model, params, token, mask, **given: subject(model, params, *change(token, mask), **given)

    return make


unshifted = _given(lambda token, mask: (token, mask.roll(1, -1)))
counts_context = _given(lambda token, mask: (token, torch.ones_like(mask)))


def own_count(subject: Entropy) -> Entropy:
    """Divide each part by its own count of tokens, not by the denominator."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        return subject(model, params, token, mask)

    return entropy


def by_row(subject: Entropy) -> Entropy:
    """Return the mean of the means of rows."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        rows = zip(token[:, None], mask[:, None], strict=True)
        means = [subject(model, params, *row) for row in rows]
        return torch.stack(means).mean() if not given else subject(model, params, token, mask, **given)

    return entropy


def unnormalized(subject: Entropy) -> Entropy:
    """Use logits as log-probs, without normalising them."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        logits = model.head(params, model.apply(params, token, (), ()))
        chosen = torch.nn.functional.pad(logits[:, :-1].gather(-1, token[:, 1:, None])[..., 0], (1, 0))
        count = given.get("denominator", mask.sum().clamp(min=1))
        total: Tensor = -torch.where(mask, chosen, 0.0).sum() / count
        return total

    return entropy


def sees_beyond(subject: Entropy) -> Entropy:
    """Add a term of the tokens behind the last one that counts."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        behind = mask.flip(-1).cumsum(-1).flip(-1) == 0
        return subject(model, params, token, mask, **given) + 0.25 * (token * behind).sum()

    return entropy


MUTANTS: dict[str, Callable[[Entropy], Entropy]] = {"takes the mean of rows": by_row}


# --- laws ---


SOURCE = "the definition: -log p of each token that counts, given those before it"
SIZE = 4


@frozen
class Said:
    """Tokens, their mask, and a table of the logits of each token after each other one."""

    table: Tensor
    token: Tensor
    mask: Tensor
    other: Tensor  # more tokens


@st.composite
def sayings(draw: DrawFn) -> Said:
    """Draw tokens and masks; the first token of a row never counts, as no logits precede it."""
    shape = draw(st.sampled_from(((1, 2), (3, 5), (2, 9))))
    mask = ~draw(flags(shape)) & ~draw(flags((shape[0], 1)))
    return Said(
        table=draw(dyadic((SIZE, SIZE))),
        token=draw(integers(shape, 0, SIZE)),
        mask=mask & (torch.arange(shape[1]) > 0),
        other=draw(integers(shape, 0, SIZE)),
    )


def supervised_laws() -> Suite:
    """The laws of the cross-entropy of demonstrated tokens."""
    return Suite("supervised_laws", (_definition(), _beyond(), _even(), _parts(), _odds()))


_law = law_constructor(sayings, SOURCE)


def _surprises(said: Said) -> list[Tensor]:
    """Return -log p of every token that counts, in a loop."""
    rows = torch.log_softmax(said.table, -1)
    places = [(int(row), int(place)) for row, place in said.mask.nonzero()]
    return [-rows[said.token[row, place - 1], said.token[row, place]] for row, place in places]


def _definition() -> Law:
    def check(subject: Entropy, said: Said, seen: Seen) -> None:
        found = _surprises(said)
        seen("several tokens", len(found) > 2)
        wanted = torch.stack(found).mean() if found else torch.zeros(())
        same("the cross-entropy", subject(bigram(SIZE), said.table, said.token, said.mask), wanted, ROUNDING)

    claim = "The loss is the mean of -log p over the tokens that count, 0 where none does."
    return _law("definition", claim, ("scores each token by itself", unshifted), check, "several tokens")


def _beyond() -> Law:
    def check(subject: Entropy, said: Said, seen: Seen) -> None:
        behind = said.mask.flip(-1).cumsum(-1).flip(-1) == 0
        seen("tokens behind", (behind & (said.token != said.other)).any())
        changed = torch.where(behind, said.other, said.token)
        wanted = subject(bigram(SIZE), said.table, said.token, said.mask)
        same("with other tokens behind", subject(bigram(SIZE), said.table, changed, said.mask), wanted)

    claim = "What stands behind the last token that counts changes no bit."
    return _law("beyond_is_nothing", claim, ("looks at what stands behind", sees_beyond), check, "tokens behind")


def _even() -> Law:
    def check(subject: Entropy, said: Said, seen: Seen) -> None:
        count = int(said.mask.sum())
        seen("context between", 0 < count < said.mask.numel())
        got = subject(bigram(SIZE), torch.zeros_like(said.table), said.token, said.mask, denominator=1)
        same("the sum under even odds", got, count * torch.log(torch.tensor(float(SIZE))), ROUNDING)

    claim = "Under even odds each token that counts costs log V, and no other costs anything."
    return _law("even_odds", claim, ("learns context too", counts_context), check, "context between")


def _parts() -> Law:
    def check(subject: Entropy, said: Said, seen: Seen) -> None:
        counts = said.mask.sum(-1)
        seen("rows of different counts", len(set(counts.tolist())) > 1)
        model, number = bigram(SIZE), int(counts.sum())
        rows = zip(said.token[:, None], said.mask[:, None], strict=True)
        parts = [subject(model, said.table, *row, denominator=number) for row in rows]
        wanted = subject(model, said.table, said.token, said.mask)
        same("the rows, one by one", torch.stack(parts).sum(), wanted, ROUNDING)

    claim = "Rows divided by the whole batch's count add up to the whole: every token weighs the same."
    needs = ("rows of different counts",)
    return _law("parts_add_up", claim, ("divides parts by their own count", own_count), check, *needs)


def _odds() -> Law:
    def check(subject: Entropy, said: Said, seen: Seen) -> None:
        seen("tokens that count", said.mask.any())
        wanted = subject(bigram(SIZE), said.table, said.token, said.mask)
        raised = said.table + torch.arange(1.0, SIZE + 1.0)[:, None]
        same("with all logits of a row raised", subject(bigram(SIZE), raised, said.token, said.mask), wanted, ROUNDING)

    claim = "Only odds matter: a number added to all logits of a prediction changes nothing."
    return _law("odds_alone", claim, ("takes logits for log-probs", unnormalized), check, "tokens that count")

"""Laws of reductions from token losses to one number (L5, L6, L7, L10): the subject is a `Reduction`."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ..framework.compare import ROUNDING, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import POISON, dyadic, masks
from .loss import LARGE, NAN, PADDING

# --- mutants ---
# Common mistakes in reductions: each edits a correct one.


@attrs.frozen
class Reduction:
    """The subject of the laws of reductions."""

    reduce: Callable[..., Tensor]  # (loss [N, L], mask [N, L], *, denominator) -> [], or without a denominator
    denominator: Callable[[Tensor], Tensor | float]  # of a mask [N, L]: the default divisor


def multiplies_by_mask(subject: Reduction) -> Reduction:
    """Multiply by the mask: 0 times NaN is NaN."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) + (loss * ~mask).sum() * 0.0

    return attrs.evolve(subject, reduce=reduce)


def sums_all(subject: Reduction) -> Reduction:
    """Add the losses of tokens that do not count, with a small weight."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) + (loss * ~mask).sum() * 0.01

    return attrs.evolve(subject, reduce=reduce)


def mean_over_all(subject: Reduction) -> Reduction:
    """Take the mean over all columns: the loss shrinks as the padding grows."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) * (mask.sum() / mask.numel())

    return attrs.evolve(subject, reduce=reduce)


def divides_by_nothing(subject: Reduction) -> Reduction:
    """Divide by the count of tokens without a guard: 0 / 0 if no token counts."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        count = mask.sum()
        return subject.reduce(loss, mask, **denominator) * count / count

    return attrs.evolve(subject, reduce=reduce)


def fresh_zero(subject: Reduction) -> Reduction:
    """Return a zero without a graph if no token counts: backward then fails in this process while the others wait for it."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) if mask.any() else torch.zeros(())

    return attrs.evolve(subject, reduce=reduce)


def own_denominator(subject: Reduction) -> Reduction:
    """Divide each micro-batch by its own denominator."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask)

    return attrs.evolve(subject, reduce=reduce)


def first_row(subject: Reduction) -> Reduction:
    """Use the first sequence's length for all sequences."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss, mask, **denominator) * (1.0 + mask[0].sum())

    return attrs.evolve(subject, reduce=reduce)


def long_weigh_more(subject: Reduction) -> Reduction:
    """Weight each sequence by its length once more."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss * mask.sum(-1, keepdim=True), mask, **denominator)

    return attrs.evolve(subject, reduce=reduce)


def squares(subject: Reduction) -> Reduction:
    """Square the losses, with their signs: the result is no longer linear in them."""

    def reduce(loss: Tensor, mask: Tensor, **denominator: Tensor | float) -> Tensor:
        return subject.reduce(loss * loss.abs(), mask, **denominator)

    return attrs.evolve(subject, reduce=reduce)


MUTANTS: dict[str, Callable[[Reduction], Reduction]] = {"squares the losses": squares}


# --- laws ---


Weights = Callable[[Tensor], Tensor]  # lengths [N] -> the weight of each token of sequence i [N]


@attrs.frozen
class Losses:
    """Token losses, the mask of tokens that count, the value at all other places, and the row at which to split the batch."""

    loss: Tensor
    mask: Tensor
    poison: float
    cut: int


@st.composite
def token_batches(draw: DrawFn, poison: tuple[float, ...] = POISON) -> Losses:
    """Sequences of different lengths, some of them empty, padded on the right."""
    rows, length = draw(st.sampled_from((1, 3, 4))), draw(st.sampled_from((1, 2, 4)))
    mask = draw(masks(rows, length))
    return Losses(draw(dyadic((rows, length))), mask, draw(st.sampled_from(poison)), draw(st.integers(0, rows)))


def _per_token(lengths: Tensor) -> Tensor:
    return (1.0 / lengths.sum().clamp(min=1)).expand(lengths.shape)


def _per_sequence(lengths: Tensor) -> Tensor:
    return 1.0 / (lengths.clamp(min=1) * (lengths > 0).sum().clamp(min=1))


def _per_sum(lengths: Tensor) -> Tensor:
    return (1.0 / (lengths > 0).sum().clamp(min=1)).expand(lengths.shape)


WEIGHTS: Mapping[str, Weights] = {
    "token_mean": _per_token,
    "sequence_mean": _per_sequence,
    "sequence_sum_mean": _per_sum,
    "token_sum": lambda lengths: torch.ones(lengths.shape),
}


def aggregate_laws(
    weights: Weights, *, nan_padding: bool = False, empty: bool = True, live: bool = False, parts: bool = True
) -> Suite:
    """Return the laws of a reduction that weights each sequence's tokens by `weights(lengths)`, such as one of `WEIGHTS`.

    Claims that the subject makes: `nan_padding` does not matter, a batch without tokens (`empty`) has the loss 0
    and, if `live`, a graph, and `parts` divided by a denominator that is given add up.
    """
    laws = [_padding(nan_padding), _longer(), _rows(), _declared(weights), _equal(weights)]
    laws += [*([_nothing(parts)] if empty else []), *([_live()] if live else []), *([_parts()] if parts else [])]
    return Suite("aggregate_laws", tuple(laws if empty else [_not_empty(law) for law in laws]))


def _not_empty(law: Law) -> Law:
    """Return the law for batches with a token."""

    def filled(drawn: Losses) -> Losses:
        first = torch.zeros_like(drawn.mask)
        first[0, 0] = True
        return attrs.evolve(drawn, mask=drawn.mask | first, cut=max(drawn.cut, 1))

    return attrs.evolve(law, inputs=lambda subject: law.inputs(subject).map(filled))


_law = law_constructor(token_batches, PADDING, numeric=True)


def _both(subject: Reduction, loss: Tensor, mask: Tensor, **denominator: Any) -> tuple[Tensor, Tensor]:
    """Return the value and its gradient."""
    leaf = loss.detach().clone().requires_grad_()
    value = subject.reduce(leaf, mask, **denominator)
    if not value.requires_grad:
        return value, torch.zeros_like(loss)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def _padding(nan_padding: bool) -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        seen("padding", (~drawn.mask).any())
        wanted = _both(subject, drawn.loss, drawn.mask)
        got = _both(subject, torch.where(drawn.mask, drawn.loss, drawn.poison), drawn.mask)
        same(f"(loss, gradient) with padding of {drawn.poison}", got, wanted)
        require(not bool(got[1][~drawn.mask].any()), "a padded token has a gradient")

    claim = f"Whatever stands in the padding{NAN if nan_padding else ''}, value and gradient stay."
    mutant = ("multiplies by the mask", multiplies_by_mask) if nan_padding else ("adds a little of all", sums_all)
    drawn = token_batches(POISON if nan_padding else LARGE)
    return _law("padding_is_nothing", claim, mutant, check, "padding", inputs=drawn)


def _longer() -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        seen("a token", drawn.mask.any())
        pad = torch.nn.functional.pad
        got = _both(subject, pad(drawn.loss, (0, 2)), pad(drawn.mask, (0, 2)))
        wanted = _both(subject, drawn.loss, drawn.mask)
        same("(loss, gradient) of longer rows", got, (wanted[0], pad(wanted[1], (0, 2))), ROUNDING)

    claim = "More columns of padding change neither value nor gradient."
    return _law("length_of_padding", claim, ("takes the mean over all columns", mean_over_all), check, "a token")


def _nothing(parts: bool) -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        value, slope = _both(subject, drawn.loss, torch.zeros_like(drawn.mask))
        same("the loss of nothing", value, torch.zeros_like(value))
        same("its gradient", slope, torch.zeros_like(slope))
        if parts:
            again = subject.reduce(drawn.loss, torch.zeros_like(drawn.mask), denominator=torch.tensor(0))
            same("the loss of nothing in a batch of nothing", again, torch.zeros_like(again))

    source = "verl 785, OLMo-core 657, prime-rl 1961: NaN where a micro-batch is all masked"
    claim = "A batch in which no token counts has the loss 0 and the gradient 0, never NaN."
    return _law("nothing", claim, ("divides by a count of 0", divides_by_nothing), check, source=source)


def _live() -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        leaf = drawn.loss.clone().requires_grad_()
        value = subject.reduce(leaf, torch.zeros_like(drawn.mask))
        require(value.requires_grad, "the loss of nothing has no graph behind it")

    claim = "A batch in which no token counts still has a graph: every process can go backwards through it."
    source = "derived: a process without a gradient keeps the others waiting"
    return _law("live_graph", claim, ("gives a fresh 0 where no token counts", fresh_zero), check, source=source)


def _parts() -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        first, second = drawn.mask[: drawn.cut], drawn.mask[drawn.cut :]
        seen("parts of different sizes", first.any() and second.any() and first.sum() != second.sum())
        whole = subject.denominator(drawn.mask)
        wanted = _both(subject, drawn.loss, drawn.mask)
        loss = (drawn.loss[: drawn.cut], drawn.loss[drawn.cut :])
        parts = [_both(subject, *part, denominator=whole) for part in zip(loss, (first, second), strict=True)]
        same("the sum of the parts", parts[0][0] + parts[1][0], wanted[0], ROUNDING)
        same("the gradients of the parts", torch.cat([parts[0][1], parts[1][1]]), wanted[1], ROUNDING)

    source = "TRL 3021, NeMo-RL 84, ms-swift 10117: the loss depends on gradient accumulation"
    claim = "Micro-batches divided by the whole batch's denominator add up to the whole, value and gradient."
    mutant = ("divides each micro-batch by its own denominator", own_denominator)
    return _law("parts_make_the_whole", claim, mutant, check, "parts of different sizes", source=source)


def _rows() -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        seen("several lengths", len(set(drawn.mask.sum(-1).tolist())) > 1)
        value, slope = _both(subject, drawn.loss, drawn.mask)
        got = _both(subject, drawn.loss.flip(0), drawn.mask.flip(0))
        same("(loss, gradient) of the rows turned round", got, (value, slope.flip(0)), ROUNDING)

    mutant = ("takes the first row's length for everybody's", first_row)
    source = "derived: a sum over sequences has no order"
    return _law(
        "rows_permute", "The order of sequences does not matter.", mutant, check, "several lengths", source=source
    )


def _declared(weights: Weights) -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        lengths = drawn.mask.sum(-1)
        seen("several lengths", len(set(lengths.tolist())) > 1)
        wanted = torch.where(drawn.mask, weights(lengths)[:, None], 0.0)
        value, slope = _both(subject, drawn.loss, drawn.mask)
        same("the weight of each token", slope, wanted, ROUNDING)
        same("the loss", value, (wanted * drawn.loss).sum(), ROUNDING)

    claim = "Each token weighs what the reduction's name says, and the loss is linear in the losses of tokens."
    mutant = ("weighs sequences by their length once more", long_weigh_more)
    return _law("declared_weights", claim, mutant, check, "several lengths", source="Liu et al. 2025, arXiv:2503.20783")


def _equal(weights: Weights) -> Law:
    def check(subject: Reduction, drawn: Losses, seen: Seen) -> None:
        mask = torch.ones_like(drawn.mask)
        seen("several tokens", mask.shape[1] > 1)
        mean, tokens = drawn.loss.mean(), mask.numel()
        scale = weights(mask.sum(-1))[0] * tokens  # 1 for the means
        same("the loss of equal lengths", subject.reduce(drawn.loss, mask), scale * mean, ROUNDING)

    claim = "Where all sequences are of one length, every mean is the mean over tokens, and every sum a multiple of it."
    mutant = ("squares the losses", squares)
    return _law("equal_lengths", claim, mutant, check, "several tokens", source="derived")

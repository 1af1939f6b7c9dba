"""Laws of reduced policy losses over padded sequences (L5, L6).

The subject: f(log_prob, behaviour_log_prob, advantage, mask), each [B, L], returns one number.
"""

from collections.abc import Callable

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...framework.compare import ROUNDING, require, same
from ...framework.law import Law, Seen, Suite, law_constructor
from ...strategies.values import POISON, dyadic, log_prob_pairs, masks
from ..loss import LARGE, NAN, PADDING, Batch, map_batch, reference

# --- mutants ---
# Common errors in losses over masked steps.


def masked_reference(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """The mean over real steps; the inputs of all other steps are set to 0 before the loss."""
    return (_neutral(log_prob, behaviour_log_prob, advantage, mask)).sum() / mask.sum().clamp(min=1)


def _neutral(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    quiet = [torch.where(mask, x, 0.0) for x in (log_prob, behaviour_log_prob, advantage)]
    return torch.where(mask, reference(*quiet, clip=0.25), 0.0)


def multiplies_by_mask(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Multiply the losses by the mask, which leaves NaN: 0 times NaN is NaN."""
    losses = reference(log_prob, behaviour_log_prob, advantage, clip=0.25)
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def masks_afterwards(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Mask the value of a padded step, but not its gradient."""
    losses = reference(log_prob, behaviour_log_prob, advantage, clip=0.25)
    return torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)


def counts_padding(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Sum the losses of all steps, and divide by the number of real ones."""
    losses = reference(log_prob, behaviour_log_prob, advantage, clip=0.25)
    return losses.sum() / mask.sum().clamp(min=1)


def mean_over_all(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Take the mean over all steps, padding included."""
    return _neutral(log_prob, behaviour_log_prob, advantage, mask).mean()


def divides_by_count(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Divide by the number of real steps, which is 0 / 0 without any."""
    return _neutral(log_prob, behaviour_log_prob, advantage, mask).sum() / mask.sum()


def first_row_denominator(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Take the number of real steps in each row from the first row."""
    return _neutral(log_prob, behaviour_log_prob, advantage, mask).sum() / (mask[0].sum() * len(mask)).clamp(min=1)


Masked = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


MASKED: dict[str, Masked] = {"masks the losses after an infinite ratio has made them": masks_afterwards}


# --- laws ---


@attrs.frozen
class Padded:
    """A batch [B, L] of rows with their own lengths, and the padding to test with."""

    batch: Batch
    mask: Tensor
    poison: float
    more: int  # columns of padding to add


@st.composite
def draw_padded_rows(draw: DrawFn, poison: tuple[float, ...] = POISON) -> Padded:
    """Draw rows of different lengths, some of them empty."""
    rows, length = draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 2, 4)))
    log_prob, behaviour = draw(log_prob_pairs((rows, length)))
    batch = Batch(log_prob, behaviour, draw(dyadic((rows, length))), 0.25)
    return Padded(batch, draw(masks(rows, length)), draw(st.sampled_from(poison)), draw(st.sampled_from((0, 1, 3))))


def masked_loss_laws(*, nan_padding: bool = False, empty: bool = True) -> Suite:
    """The laws of a loss that is reduced over the real steps of padded sequences.

    `nan_padding`: it claims that NaN and infinity in the padding do not matter. `empty`: it may be called for a batch without
    a real step.
    """
    laws = [_padding_is_nothing(nan_padding), _more_padding(), _rows_permute(), *([_nothing_counts()] if empty else [])]
    return Suite("masked_loss_laws", tuple(laws if empty else [_not_empty(law) for law in laws]))


def _not_empty(law: Law) -> Law:
    """Return the law for batches with a real step in each row."""

    def filled(drawn: Padded) -> Padded:
        first = torch.arange(drawn.mask.shape[1]) == 0
        return attrs.evolve(drawn, mask=drawn.mask | first)

    return attrs.evolve(law, inputs=lambda subject: law.inputs(subject).map(filled))


_law = law_constructor(draw_padded_rows, PADDING, replaced=True, numeric=True)


def _value_and_gradient(loss: Masked, batch: Batch, mask: Tensor) -> tuple[Tensor, Tensor]:
    leaf = batch.log_prob.detach().clone().requires_grad_()
    value = loss(leaf, batch.behaviour_log_prob, batch.advantage, mask)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def _refilled(batch: Batch, mask: Tensor, fill: float) -> Batch:
    return map_batch(batch, lambda x: torch.where(mask, x, fill))


def _padding_is_nothing(nan_padding: bool) -> Law:
    def check(loss: Masked, drawn: Padded, seen: Seen) -> None:
        seen("padding beside real steps", (~drawn.mask).any() & drawn.mask.any())
        wanted = _value_and_gradient(loss, _refilled(drawn.batch, drawn.mask, 0.0), drawn.mask)
        got = _value_and_gradient(loss, _refilled(drawn.batch, drawn.mask, drawn.poison), drawn.mask)
        same(f"(loss, gradient) with padding of {drawn.poison}", got, wanted)
        require(not bool(wanted[1][~drawn.mask].any()), "a padded step has a gradient")

    return _law(
        "padding_is_nothing",
        f"Whatever stands in the padding{NAN if nan_padding else ''}, value and gradient stay.",
        ("multiplies the losses by the mask, which leaves NaN where it was", multiplies_by_mask)
        if nan_padding
        else ("takes the padding for real steps", counts_padding),
        check,
        "padding beside real steps",
        inputs=draw_padded_rows(POISON if nan_padding else LARGE),
    )


def _more_padding() -> Law:
    def check(loss: Masked, drawn: Padded, seen: Seen) -> None:
        seen("more padding", drawn.more > 0)

        def pad(x: Tensor) -> Tensor:
            return torch.nn.functional.pad(x, (0, drawn.more))

        longer = map_batch(drawn.batch, pad)
        wanted = _value_and_gradient(loss, drawn.batch, drawn.mask)
        got = _value_and_gradient(loss, longer, pad(drawn.mask))
        same("the loss of a longer batch", got[0], wanted[0], ROUNDING)
        same("the gradient of a longer batch", got[1], pad(wanted[1]), ROUNDING)

    return _law(
        "length_of_padding",
        "More columns of padding change neither value nor gradient.",
        ("divides by the size of the batch, padding included", mean_over_all),
        check,
        "more padding",
    )


def _nothing_counts() -> Law:
    def check(loss: Masked, drawn: Padded, seen: Seen) -> None:
        value, slope = _value_and_gradient(loss, drawn.batch, torch.zeros_like(drawn.mask))
        same("the loss of nothing", value, torch.zeros_like(value))
        same("its gradient", slope, torch.zeros_like(slope))

    return _law(
        "nothing_counts_for_nothing",
        "A batch without a single real step has loss 0 and gradient 0, never NaN.",
        ("divides by the number of real steps, which may be 0", divides_by_count),
        check,
        source="verl 785, prime-rl 1961: NaN on a micro-batch that is all masked",
    )


def _rows_permute() -> Law:
    def check(loss: Masked, drawn: Padded, seen: Seen) -> None:
        seen("several rows", len(drawn.mask) > 1)
        turned = map_batch(drawn.batch, lambda x: x.flip(0))
        wanted = _value_and_gradient(loss, drawn.batch, drawn.mask)
        got = _value_and_gradient(loss, turned, drawn.mask.flip(0))
        same("the loss in another order", got[0], wanted[0], ROUNDING)
        same("the gradient in another order", got[1], wanted[1].flip(0), ROUNDING)

    return _law(
        "rows_permute",
        "The order of the rows does not matter to the reduced loss.",
        ("weighs the first row as if it were alone", first_row_denominator),
        check,
        "several rows",
        source="derived: a sum over sequences has no order",
    )

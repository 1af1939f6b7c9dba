"""Laws of importance weights between trainer and sampler: f(log_prob, sampler_log_prob, mask) -> [N, L], of [N, L] each."""

import math
from collections.abc import Callable

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ..framework.compare import ROUNDING, require, same
from ..framework.law import Law, Seen, Suite, law_constructor
from ..strategies.values import POISON, log_prob_pairs, masks
from .loss import LARGE, NAN, PADDING

# --- mutants ---
# Common mistakes in importance weights: each edits a function f(log_prob, sampler_log_prob, mask) -> [N, L].


Weighting = Callable[[Tensor, Tensor, Tensor], Tensor]
Edit = Callable[[Weighting], Weighting]


def probability(weighting: Weighting) -> Weighting:
    """Ignore the sampler's log-probs."""
    return lambda log_prob, sampler, mask: weighting(log_prob, torch.zeros_like(sampler), mask)


def live(weighting: Weighting) -> Weighting:
    """Give the weights a gradient."""
    return lambda log_prob, sampler, mask: (
        weighting(log_prob, sampler, mask) + torch.where(mask, log_prob - log_prob.detach(), 0.0)
    )


def believes_the_sampler(weighting: Weighting) -> Weighting:
    """Return NaN for a log-ratio that is not finite."""
    return lambda log_prob, sampler, mask: torch.where(
        mask & ~torch.isfinite(log_prob - sampler), torch.nan, weighting(log_prob, sampler, mask)
    )


def multiplies_by_mask(weighting: Weighting) -> Weighting:
    """Multiply by the mask: 0 times infinity is NaN."""
    return lambda log_prob, sampler, mask: (
        weighting(log_prob, sampler, mask) + torch.exp(log_prob - sampler) * ~mask * 0.0
    )


def of_the_batch(weighting: Weighting) -> Weighting:
    """Divide by the mean of all ratios, padding included."""
    return lambda log_prob, sampler, mask: (
        weighting(log_prob, sampler, mask) / torch.exp(log_prob - sampler).mean().clamp(1e-3, 1e3)
    )


def unbounded(weighting: Weighting) -> Weighting:
    """Let large weights exceed the bounds."""

    def wrong(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        kept = weighting(log_prob, sampler, mask)
        return torch.where(mask, kept + torch.nan_to_num(log_prob - sampler, 0.0, 0.0, 0.0).clamp(min=0.0), 0.0)

    return wrong


def turned_round(weighting: Weighting) -> Weighting:
    """Divide the sampler's probability by the trainer's."""
    return lambda log_prob, sampler, mask: weighting(sampler, log_prob, mask)


def whole_batch(weighting: Weighting) -> Weighting:
    """Treat the batch as one sequence."""

    def wrong(log_prob: Tensor, sampler: Tensor, mask: Tensor) -> Tensor:
        flat = [x.reshape(1, -1) for x in (log_prob, sampler, mask)]
        return weighting(flat[0], flat[1].mean(-1, keepdim=True).expand(flat[1].shape), flat[2]).reshape(mask.shape)

    return wrong


MUTANTS: dict[str, Edit] = {"takes the batch for one sequence": whole_batch}


# --- laws ---


SOURCE = "Yao et al. 2025, truncated importance sampling; Ling Team 2025, arXiv:2510.18855"


@attrs.frozen
class SampledTokens:
    """Log-probs of tokens by trainer and sampler, the mask of tokens that count, and the value at all other places."""

    log_prob: Tensor
    sampler_log_prob: Tensor
    mask: Tensor
    poison: float


@st.composite
def sampled_sequences(draw: DrawFn, poison: tuple[float, ...] = POISON) -> SampledTokens:
    """Sequences of different lengths, with ratios from exp(-2) to exp(2)."""
    rows, length = draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 2, 4)))
    log_prob, sampler = draw(log_prob_pairs((rows, length)))
    return SampledTokens(log_prob, sampler, draw(masks(rows, length)), draw(st.sampled_from(poison)))


def importance_laws(
    *,
    high: float,
    low: float = 0.0,
    level: str = "token",
    outside: str = "clamp",
    nan_padding: bool = False,
    detached: bool = False,
    unknown: bool = False,
    masked: bool = True,
) -> Suite:
    """Return the laws of importance weights; the arguments describe them.

    `level` is "token", "sequence" (the product of the ratios) or "geometric" (their geometric mean). A weight outside
    [low, high], which contains 1, is clamped for `outside` "clamp" and becomes 0 for "zero". Claims that the subject makes:
    `nan_padding` does not matter, weights are `detached`, an `unknown` log-prob (not finite) counts as ratio 1, and weights of
    the padding are 0 (`masked`).
    """
    bounds = (low, high)
    laws = [_on_policy(masked), _padding(nan_padding, masked), _bounds(bounds, outside)]
    laws += [*([_constant()] if detached else []), *([_unknown(level)] if unknown else [])]
    return Suite("importance_laws", (*laws, _definition(bounds, outside, level)))


_law = law_constructor(sampled_sequences, SOURCE, numeric=True)


def _on_policy(masked: bool) -> Law:
    def check(weighting: Weighting, drawn: SampledTokens, seen: Seen) -> None:
        seen("a token", drawn.mask.any())
        got = weighting(drawn.log_prob, drawn.log_prob.clone(), drawn.mask)
        same("the weights of equal log-probs", got if masked else got * drawn.mask, drawn.mask.to(got.dtype))

    claim = "Where trainer and sampler agree every token that counts has the weight 1, all others 0."
    return _law("agreement", claim, ("forgets the sampler", probability), check, "a token")


def _constant() -> Law:
    def check(weighting: Weighting, drawn: SampledTokens, seen: Seen) -> None:
        leaf = drawn.log_prob.clone().requires_grad_()
        got = weighting(leaf, drawn.sampler_log_prob.clone().requires_grad_(), drawn.mask)
        require(not got.requires_grad, "a weight has a gradient")

    claim = "Weights are constants: no gradient flows through them."
    return _law("constant", claim, ("forgets to detach", live), check)


def _unknown(level: str) -> Law:
    def check(weighting: Weighting, drawn: SampledTokens, seen: Seen) -> None:
        first = drawn.mask & (torch.arange(drawn.mask.shape[1]) == 0)
        seen("an unknown log-prob", first.any())
        broken = torch.where(first, -math.inf, drawn.sampler_log_prob)
        believed = torch.where(first, drawn.log_prob, drawn.sampler_log_prob)
        wanted = weighting(drawn.log_prob, believed, drawn.mask)
        for unknown in (broken, torch.where(first, math.nan, broken)):
            same("the weights", weighting(drawn.log_prob, unknown, drawn.mask), wanted)
        require(not bool((wanted[first] != 1).any()) or level != "token", "an unknown ratio is not 1")

    claim = "A log-ratio that is not finite counts as 0, and changes no other token's."
    mutant = ("believes what the sampler says", believes_the_sampler)
    source = "objectives: a missing rollout log-prob must not poison the batch (TRL 6166)"
    return _law("unknown", claim, mutant, check, "an unknown log-prob", source=source)


def _padding(nan_padding: bool, masked: bool) -> Law:
    def check(weighting: Weighting, drawn: SampledTokens, seen: Seen) -> None:
        seen("padding beside tokens", (~drawn.mask).any() & drawn.mask.any())
        wanted = weighting(drawn.log_prob, drawn.sampler_log_prob, drawn.mask)
        log_prob, sampler = (torch.where(drawn.mask, x, drawn.poison) for x in (drawn.log_prob, drawn.sampler_log_prob))
        got = weighting(log_prob, sampler, drawn.mask)
        same(f"the weights with padding of {drawn.poison}", got[drawn.mask], wanted[drawn.mask])
        for weights in (wanted, got) if masked else ():
            require(not bool(weights[~drawn.mask].any()), "a padded token has a weight")

    zero = ", and those of the padding are 0" if masked else ""
    claim = f"Whatever stands in the padding{NAN if nan_padding else ''}, the weights stay{zero}."
    mutant = ("multiplies by the mask", multiplies_by_mask) if nan_padding else ("weights by the batch", of_the_batch)
    drawn = sampled_sequences(POISON if nan_padding else LARGE)
    return _law("padding_is_nothing", claim, mutant, check, "padding beside tokens", source=PADDING, inputs=drawn)


def _bounds(bounds: tuple[float, float], outside: str) -> Law:
    low, high = bounds

    def check(weighting: Weighting, drawn: SampledTokens, seen: Seen) -> None:
        got = weighting(drawn.log_prob, drawn.sampler_log_prob, drawn.mask)[drawn.mask]
        seen("a bound", ((got == low) | (got == high) | (got == 0)).any())
        inside = (got >= low) & (got <= high)
        require(inside | (got == 0) if outside == "zero" else inside, f"weights {got.tolist()} outside {bounds}")

    said = "or 0" if outside == "zero" else "and reach the bounds"
    mutant = ("lets large weights through", unbounded)
    return _law("bounds", f"Weights lie between the bounds, {said}.", mutant, check, "a bound")


def _definition(bounds: tuple[float, float], outside: str, level: str) -> Law:
    def one(log_ratios: list[float], own: float) -> float:
        mean = sum(log_ratios) / len(log_ratios)
        weight = math.exp({"token": own, "sequence": sum(log_ratios), "geometric": mean}[level])
        if outside == "zero":
            return weight if bounds[0] <= weight <= bounds[1] else 0.0
        return min(max(weight, bounds[0]), bounds[1])

    def check(weighting: Weighting, drawn: SampledTokens, seen: Seen) -> None:
        got = weighting(drawn.log_prob, drawn.sampler_log_prob, drawn.mask)
        for i, row in enumerate(drawn.mask):
            ratios = (drawn.log_prob[i] - drawn.sampler_log_prob[i])[row].tolist()
            wanted = torch.tensor([one(ratios, own) for own in ratios])
            seen("a weight that is not 1", (wanted != 1).any())
            same(f"the weights of sequence {i}", got[i][row], wanted, ROUNDING)

    claim = f"A weight is the ratio of trainer to sampler at the level of {level}, kept to its bounds."
    mutant = ("turns the ratio round", turned_round)
    return _law("definition", claim, mutant, check, "a weight that is not 1")

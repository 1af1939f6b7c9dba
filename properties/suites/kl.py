"""Laws of estimators of a Kullback-Leibler divergence (L9): f(log_prob, reference_log_prob) -> [*], one number per sample.

    test_k3 = check(kl_laws(), my_k3)
    test_k2 = check(kl_laws(unbiased=False, gradient="divergence"), my_k2)      # (log p - log q)^2 / 2, in a loss
    test_penalty = check(kl_laws(gradient="none"), my_detached_k3)              # subtracted from rewards

>>> from purestep.properties import kl_laws, verify
>>> verify(kl_laws(unbiased=False), lambda p, q: (p - q).square())["scale"].outcome  # without the half
'broken'
"""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ...core.errors import ChoiceError, message
from ..framework.compare import CURVATURE, DOUBLE, EXACT, Tolerance, require, same
from ..framework.law import Law, Mutant, Seen, Suite, law_constructor
from ..strategies.values import dyadic, probabilities

# --- mutants ---
# Common mistakes in divergence estimators.


Estimator = Callable[[Tensor, Tensor], Tensor]


def without_one(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return exp(d) - d, which is 1 at equality."""
    distance = reference_log_prob - log_prob
    return torch.exp(distance) - distance


def difference(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return log p - log q."""
    return log_prob - reference_log_prob


def swapped(estimator: Estimator) -> Estimator:
    """Estimate the divergence in the other direction, from the wrong samples."""
    return lambda log_prob, reference_log_prob: estimator(reference_log_prob, log_prob)


def averaged(estimator: Estimator) -> Estimator:
    """Give every sample the mean over the batch."""
    return lambda log_prob, reference: estimator(log_prob, reference).mean().expand_as(log_prob)


def drops_far(estimator: Estimator) -> Estimator:
    """Return 0 for samples whose log-probs differ by more than 2."""

    def mutant(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
        distance = (log_prob - reference_log_prob).abs()
        return torch.where(distance > 2.0, 0.0, estimator(log_prob, reference_log_prob))

    return mutant


def wrong_sign(log_prob: Tensor, reference_log_prob: Tensor) -> Tensor:
    """Return k3 with the sign of the difference reversed: exp(-d) - 1 + d."""
    distance = log_prob - reference_log_prob
    return torch.expm1(distance) - distance


def doubled_estimate(estimator: Estimator) -> Estimator:
    """Give twice the estimate, as (log p - log q)^2 without the half."""
    return lambda log_prob, reference_log_prob: 2.0 * estimator(log_prob, reference_log_prob)


def detached_estimate(estimator: Estimator) -> Estimator:
    """Detach the estimate, so that a loss with it has no gradient."""
    return lambda log_prob, reference_log_prob: estimator(log_prob, reference_log_prob).detach()


def attached_penalty(estimator: Estimator) -> Estimator:
    """Leave a gradient in a penalty that belongs to rewards."""
    return lambda log_prob, reference_log_prob: (
        estimator(log_prob, reference_log_prob) + 0.5 * (log_prob - log_prob.detach())
    )


MUTANTS: dict[str, Estimator] = {"turns the difference in k3 round": wrong_sign}


# --- laws ---


Pair = tuple[Tensor, Tensor]
SOURCE = "Schulman 2020, Approximating KL divergence"


@st.composite
def distribution_pairs(draw: DrawFn, largest: int = 4) -> Pair:
    """Two distributions over up to `largest` outcomes, without zeros, equal at least one time in four."""
    size = draw(st.integers(2, largest))
    first = draw(probabilities((size,), zeros=False))
    return (
        (first, first.clone()) if draw(st.integers(0, 3)) == 3 else (first, draw(probabilities((size,), zeros=False)))
    )


GRADIENTS = ("formula", "divergence", "none")


def kl_laws(
    *, unbiased: bool = True, never_negative: bool = True, scale: float = 1.0, gradient: str = "formula"
) -> Suite:
    """Return the laws of an estimator of KL(p || q) from samples of p. k1 is unbiased, k2 never negative, k3 both.

    `scale` is a factor of all estimates. `gradient` with respect to log p is that of the "formula" of each sample (k1, k2 and
    k3 as written), "divergence": its expectation over samples is the gradient of the divergence (k2, or k3 with the score
    function added), or "none" (a constant, for rewards). Raises: ChoiceError.
    """
    if gradient not in GRADIENTS:
        wanted, remedy = f"one of {GRADIENTS}", "say what its gradient is"
        raise ChoiceError(message("kl_laws: gradient", got=gradient, wanted=wanted, remedy=remedy))
    laws = [_zero_at_equality(), _own_sample()]
    laws += [_expectation(scale)] if unbiased else [_grows()]
    laws += [_not_negative(), _small(scale)] if never_negative else []
    laws += [{"formula": _slope, "divergence": _divergence_slope, "none": _no_slope}[gradient](scale)]
    return Suite("kl_laws", tuple(laws))


_law = law_constructor(st.nothing, SOURCE, numeric=True)


def _log_probs() -> SearchStrategy[Pair]:
    size = st.integers(1, 3)
    return size.flatmap(lambda n: st.tuples(dyadic((n,), limit=2), dyadic((n,), limit=2)))


def _zero_at_equality() -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        same("the estimate at p = q", estimator(pair[0], pair[0].clone()), torch.zeros_like(pair[0]), EXACT)

    mutant = Mutant("leaves out the -1: exp(d) - d", lambda subject: without_one)
    return _law("zero_at_equality", "Where p = q every sample gives 0.", mutant, check, inputs=_log_probs())


def _own_sample() -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        seen("several samples", len(pair[0]) > 1)
        alone = torch.cat([estimator(p[None], q[None]) for p, q in zip(*pair, strict=True)])
        same("samples together against alone", estimator(*pair), alone, EXACT)

    mutant = Mutant("gives every sample the batch's mean", averaged)
    claim = "One number for each sample, from that sample alone."
    return _law("own_sample", claim, mutant, check, "several samples", inputs=_log_probs())


def _expectation(scale: float) -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        p, q = pair
        seen("two different distributions", bool((p != q).any()))
        exact = scale * (p * (p.log() - q.log())).sum()
        same("E[estimate]", (p * estimator(p.log(), q.log())).sum(), exact, DOUBLE)

    mutant = Mutant("exchanges its two arguments", swapped)
    claim = "Expected over samples of p, by enumeration, the estimate is the divergence."
    return _law("expectation", claim, mutant, check, "two different distributions", inputs=distribution_pairs())


def _grows() -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        log_prob, difference = pair[0], pair[1].abs()
        seen("a difference", difference.any())
        near, far = estimator(log_prob, log_prob - difference), estimator(log_prob, log_prob - 2 * difference)
        require(near <= far, f"log-probs {difference.tolist()} apart give {near.tolist()}, twice as far {far.tolist()}")

    mutant = Mutant("throws away samples in which p and q are far apart", drops_far)
    claim = "The further q's log-prob lies below p's, the larger the estimate."
    return _law("grows_with_distance", claim, mutant, check, "a difference", inputs=_log_probs())


def _not_negative() -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        seen("q above p", (pair[1] > pair[0]).any())
        got = estimator(*pair)
        require(got >= 0, f"the estimates {got.tolist()} are not all positive")

    mutant = Mutant("takes the plain difference, k1, which may be negative", lambda subject: difference)
    return _law(
        "never_negative", "No sample gives a negative estimate.", mutant, check, "q above p", inputs=_log_probs()
    )


def _small(scale: float) -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        log_prob = pair[0].double()
        distance = torch.tensor(2.0**-7, dtype=torch.float64)
        for near in (distance, -distance):
            got = estimator(log_prob, log_prob + near)
            wanted = torch.full_like(log_prob, float(scale * distance**2 / 2))
            same(f"the estimate for log q - log p = {float(near)}", got, wanted, Tolerance("second order", 0.01))

    claim = "Where q is close to p the estimate is half the squared difference of log-probs, times the declared scale."
    mutant = Mutant("leaves out the half", doubled_estimate)
    return _law("scale", claim, mutant, check, inputs=_log_probs())


def _gradient(estimator: Estimator, log_prob: Tensor, reference: Tensor) -> Tensor:
    leaf = log_prob.detach().clone().requires_grad_()
    value = estimator(leaf, reference).sum()
    if not value.requires_grad:
        return torch.zeros_like(log_prob)
    return torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)[0]


def _slope(scale: float) -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        p, q = (x.double() for x in pair)
        step = 1e-5
        got = _gradient(estimator, p, q)
        slope = (estimator(p + step, q) - estimator(p - step, q)) / (2 * step)
        seen("a gradient", bool((slope.abs() > 1e-3).any()))
        same("the gradient in log p", got, slope.detach(), CURVATURE)

    claim = "The gradient with respect to log p is the slope of the formula."
    return _law(
        "gradient_is_the_slope",
        claim,
        Mutant("is detached", detached_estimate),
        check,
        "a gradient",
        inputs=_log_probs(),
    )


def _divergence_slope(scale: float) -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        p, q = pair
        seen("two different distributions", bool((p != q).any()))
        leaf = p.log().detach().requires_grad_()
        log_prob = leaf.log_softmax(-1)
        expected = (p * estimator(log_prob, q.log())).sum()
        flows = expected.requires_grad
        got = torch.autograd.grad(expected, leaf)[0] if flows else torch.zeros_like(p)
        again = p.log().detach().requires_grad_()
        inner = again.log_softmax(-1)
        wanted = torch.autograd.grad(scale * (inner.exp() * (inner - q.log())).sum(), again)[0]
        same("E[gradient of the estimate]", got, wanted, DOUBLE)

    claim = "Expected over samples of p, by enumeration, the gradient is that of the divergence."
    return _law(
        "gradient_of_divergence",
        claim,
        Mutant("is detached", detached_estimate),
        check,
        "two different distributions",
        inputs=distribution_pairs(),
        source=f"{SOURCE}; Tang and Munos 2025, arXiv:2506.09477",
    )


def _no_slope(scale: float) -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        got = _gradient(estimator, *pair)
        require(not bool(got.any()), f"the gradient with respect to log p is {got.tolist()}, wanted 0")

    mutant = Mutant("leaves a gradient in a penalty", attached_penalty)
    return _law("no_gradient", "The estimate is a constant: it has no gradient.", mutant, check, inputs=_log_probs())

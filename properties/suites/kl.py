"""Laws of estimators of a Kullback-Leibler divergence (L9): f(log_prob, reference_log_prob) -> [*], one number per sample."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from ..framework.compare import DOUBLE, EXACT, require, same
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


def kl_laws(*, unbiased: bool = True, never_negative: bool = True) -> Suite:
    """Return the laws of an estimator of KL(p || q) from samples of p. k1 is unbiased, k2 never negative, k3 both."""
    laws = [_zero_at_equality(), _own_sample()]
    laws += [_expectation()] if unbiased else [_grows()]
    laws += [_not_negative()] if never_negative else []
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


def _expectation() -> Law:
    def check(estimator: Estimator, pair: Pair, seen: Seen) -> None:
        p, q = pair
        seen("two different distributions", bool((p != q).any()))
        exact = (p * (p.log() - q.log())).sum()
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

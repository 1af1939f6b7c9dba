"""Laws of pass@k: it is the share of right choices among all choices of k attempts, and its mean is the true probability.

The subject is `core.language.pass_at_k.pass_at_k`, or another estimator (attempts, solved, k) -> float.
"""

import math
from collections.abc import Callable
from itertools import combinations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor

SOURCE = "Chen et al. 2021, arXiv:2107.03374, section 2.1"
MOST = 8  # attempts
Estimator = Callable[[int, int, int], float]
Counts = tuple[int, int, int]  # attempts, right ones, k


def counts() -> SearchStrategy[Counts]:
    """Draw up to eight attempts, right ones among them, and a k."""
    return st.integers(1, MOST).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)),
    )


def with_replacement(estimator: Estimator) -> Estimator:
    """Estimate from the share of right attempts, as if they were drawn with replacement."""
    return lambda attempts, solved, k: 1 - (1 - solved / attempts) ** k


def of_all(estimator: Estimator) -> Estimator:
    """Estimate pass@n for every k."""
    return lambda attempts, solved, k: estimator(attempts, solved, attempts)


_law = law_constructor(counts, SOURCE)


def pass_at_k_laws() -> Suite:
    """The laws of an estimator of pass@k."""
    return Suite("pass_at_k_laws", (_enumerated(), _unbiased()))


def _enumerated() -> Law:
    def check(estimator: Estimator, drawn: Counts, seen: Seen) -> None:
        attempts, solved, k = drawn
        choices = [any(place < solved for place in chosen) for chosen in combinations(range(attempts), k)]
        seen("some choices without a right attempt", not all(choices) and any(choices))
        same("pass@k", estimator(attempts, solved, k), sum(choices) / len(choices))

    mutant = Mutant("draws attempts with replacement", with_replacement)
    claim = "pass@k is exactly the share of the choices of k attempts that hold a right one."
    return _law("all_choices", claim, mutant, check, "some choices without a right attempt")


def _unbiased() -> Law:
    def check(estimator: Estimator, drawn: tuple[Counts, int], seen: Seen) -> None:
        (attempts, _, k), tenths = drawn
        p = tenths / 10
        seen("fewer than all attempts", k < attempts)
        mean = math.fsum(
            math.comb(attempts, solved) * p**solved * (1 - p) ** (attempts - solved) * estimator(attempts, solved, k)
            for solved in range(attempts + 1)
        )
        wanted = 1 - (1 - p) ** k
        require(math.isclose(mean, wanted, abs_tol=1e-12), f"the mean of pass@{k} is {mean}, the probability {wanted}")

    mutant = Mutant("uses all attempts for every k", of_all)
    claim = "The mean of pass@k over independent attempts that are right with probability p is 1 - (1 - p)^k."
    inputs = st.tuples(counts(), st.integers(1, 9))
    return _law("unbiased", claim, mutant, check, "fewer than all attempts", inputs=inputs)

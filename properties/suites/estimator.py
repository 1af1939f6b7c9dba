"""Laws of advantage estimators (E1 to E8, E11, E12).

The subject: f(rewards, values, next_values, terminated, truncated, *, gamma, lambda_) -> advantages, all [T]. On drawn
values (multiples of 1/4, gamma and lambda 0, 1/2 or 1) every law but the last two asks for equal bits.
"""

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ..framework.law import Suite
from ..strategies.streams import bootstraps
from ..strategies.values import LENGTHS, dyadic, flags
from .estimator_definition import monte_carlo, recursion, td_error, value_beyond
from .estimator_exact import expected_advantage, gradient_is_exact
from .estimator_symmetries import causal, cut, linear, shaping
from .step import step_laws


def estimator_laws(convention: str = "bootstrap") -> Suite:
    """The laws of an advantage estimator under a convention on truncation: "bootstrap", "terminate" or "drop".

    "bootstrap" counts the value beyond a truncation, "terminate" takes it for 0, "drop" gives truncated steps advantage 0.
    Only the first is unbiased, so only its suite has the two laws against exact answers.
    Raises: ChoiceError.
    """
    bootstraps(convention, *(torch.zeros(1, dtype=torch.bool),) * 2)
    own = (recursion, td_error, monte_carlo, cut, causal, linear, value_beyond, shaping)
    exact = (expected_advantage(), gradient_is_exact()) if convention == "bootstrap" else ()
    return Suite("estimator_laws", (*(law(convention) for law in own), *exact))


def estimator_step_laws(columns: int = 1) -> Suite:
    """The laws of every step, for an estimator of `columns` streams side by side; shapes from the usual buckets."""

    def arguments(length: int) -> SearchStrategy[tuple[Tensor, ...]]:
        shape = (length,) if columns == 1 else (length, columns)
        return st.tuples(dyadic(shape), dyadic(shape), dyadic(shape), flags(shape), flags(shape))

    return step_laws([arguments(length) for length in LENGTHS])

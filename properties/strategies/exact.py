"""Helpers of laws against exact answers (E11, E12): expectations over every history of a small process, without sampling."""

from collections.abc import Callable

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.envs.tabular import TabularMDP
from ..framework.compare import DOUBLE, ROUNDING, Tolerance
from ..framework.law import Seen
from .mdps import (
    Histories,
    layered_mdps,
    policies,
    tabular_mdps,
)
from .values import dyadic

LAMBDAS = (0.0, 0.5, 1.0)


@attrs.frozen
class EstimatorCase:
    """A process, the behaviour policy, the policy to evaluate (if it differs), and the estimator's other inputs."""

    mdp: TabularMDP
    behaviour: Tensor
    policy: Tensor
    baseline: Tensor
    gamma: float
    lambda_: float
    horizon: int
    truncated_at: int


@st.composite
def problems(draw: DrawFn) -> EstimatorCase:
    """Processes of up to 3 states, followed for up to 3 steps and truncated at one of them, or at none."""
    mdp = draw(tabular_mdps())
    horizon = draw(st.sampled_from((1, 2, 2, 3) if len(mdp.initial) < 3 else (1, 2, 2)))
    return EstimatorCase(
        mdp=mdp,
        behaviour=draw(policies(mdp)),
        policy=draw(policies(mdp, zeros=True)),
        baseline=draw(dyadic((len(mdp.initial),), dtype=torch.float64)),
        gamma=draw(st.sampled_from((0.5, 0.0, 0.75, 0.5))),
        lambda_=draw(st.sampled_from(LAMBDAS)),
        horizon=horizon,
        truncated_at=draw(st.sampled_from((-1, 0, 0, horizon - 1))),
    )


@st.composite
def ending_problems(draw: DrawFn) -> EstimatorCase:
    """Processes that always end within 3 steps."""
    mdp = draw(layered_mdps())
    policy = draw(policies(mdp))
    gamma, lambda_ = draw(st.sampled_from((0.5, 1.0, 0.75))), draw(st.sampled_from(LAMBDAS))
    baseline = draw(dyadic((len(mdp.initial),), dtype=torch.float64))
    return EstimatorCase(mdp, policy, policy, baseline, gamma, lambda_, 3, -1)


def estimator_columns(all_: Histories, value: Tensor) -> tuple[Tensor, ...]:
    """Return the columns that an estimator takes, [H, N] each, with values from the table `value` [S]."""
    return all_.reward, value[all_.state], value[all_.next_state], all_.terminated, all_.truncated


def map_streams(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply a function of one stream [H] to all streams [H, N]: by vmap, or in a loop if vmap cannot trace the function."""
    try:
        result: Tensor = torch.vmap(function, in_dims=1, out_dims=1)(*tensors)
    except (RuntimeError, TypeError, ValueError):  # data-dependent, in place, or not of torch
        rows = [function(*one) for one in zip(*(x.unbind(1) for x in tensors), strict=True)]
        result = torch.stack(rows, 1)
    return result


def arithmetic_of(got: Tensor) -> Tolerance:
    """Return the tolerance of an expectation over what a subject returned: it may compute in float32 whatever it is given."""
    return DOUBLE if got.dtype == torch.float64 else ROUNDING


def expectations(all_: Histories, quantity: Tensor, shape: tuple[int, ...], *by: Tensor) -> tuple[Tensor, Tensor]:
    """Return E[quantity | first state, ...] as a table, and a mask of its entries that have a positive probability."""
    index = torch.zeros_like(by[0])
    for part, size in zip(by, shape, strict=True):
        index = index * size + part
    size = torch.Size(shape).numel()
    zero = torch.zeros(size, dtype=all_.probability.dtype)
    weight = zero.index_add(0, index, all_.probability)
    total = zero.index_add(0, index, all_.probability * quantity.to(zero.dtype))
    return (total / weight.clamp(min=1e-30)).reshape(shape), (weight > 0).reshape(shape)


def exact_events(all_: Histories, seen: Seen) -> None:
    seen("a termination", all_.terminated.any())
    seen("a truncation", (all_.truncated & ~all_.terminated).any())
    seen("chance", len(all_.probability) > 1)

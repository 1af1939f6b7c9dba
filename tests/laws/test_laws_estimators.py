"""Our returns and advantages obey their laws, alone and as steps; conventions on truncation are told apart."""

from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.advantages import gae
from purestep.algorithms.returns import lambda_returns
from purestep.algorithms.vtrace import VTrace, vtrace
from purestep.properties import (
    check,
    classify,
    dyadic,
    estimator_laws,
    flags,
    gradient_laws,
    lambda_return_laws,
    smooth,
    step_laws,
    vtrace_laws,
)
from purestep.properties.framework.law import Suite
from purestep.properties.strategies.mdps import action_values, chain_of_states, exact_policy_gradient, objective, values
from purestep.properties.strategies.values import LENGTHS
from purestep.properties.suites import estimator as mutants


def estimator_step_laws(columns: int = 1) -> Suite:
    """Return the laws of a step for an estimator of `columns` streams side by side, of the lengths in `LENGTHS`."""

    def arguments(length: int) -> st.SearchStrategy[tuple[Tensor, ...]]:
        shape = (length,) if columns == 1 else (length, columns)
        return st.tuples(dyadic(shape), dyadic(shape), dyadic(shape), flags(shape), flags(shape))

    return step_laws([arguments(length) for length in LENGTHS])


def halves(*columns: Tensor) -> Tensor:
    """gae with gamma = lambda = 1/2: exact on dyadic numbers."""
    return gae(*columns, gamma=0.5, lambda_=0.5)


def both(*columns: Tensor) -> VTrace:
    """V-trace of actions half as likely as they were."""
    return vtrace(torch.full_like(columns[0], -0.5), *columns, gamma=0.5, lambda_=0.5)


def returns(rewards: Tensor, values: Tensor, next_values: Tensor) -> Tensor:
    """lambda-returns of a stream without an ending."""
    no = torch.zeros_like(rewards, dtype=torch.bool)
    return lambda_returns(rewards, values, next_values, no, no, gamma=0.9, lambda_=0.8)


test_gae = check(estimator_laws(), gae, exact=True)
test_gae_as_a_step = check(estimator_step_laws(), halves)
test_gae_of_a_batch = check(estimator_step_laws(columns=3), halves, skip={"compiled_is_eager": "as for one stream"})
test_lambda_returns = check(lambda_return_laws(), lambda_returns, exact=True)
test_vtrace = check(vtrace_laws(), vtrace, exact=True)
test_vtrace_as_a_step = check(
    estimator_step_laws() - {"compiled_is_eager"}, both, skip={"batch_is_singles": "exp rounds by vector width"}
)
test_slopes = check(gradient_laws(st.tuples(smooth((3,)), smooth((3,)), smooth((3,)))), returns)


@pytest.mark.parametrize(
    ("estimator", "convention"),
    [
        (gae, "bootstrap"),
        (mutants.truncation_terminates, "terminate"),
        (mutants.drops_truncated, "drop"),
        (mutants.leaks, "none of these"),
        (mutants.one_lambda_missing, "none of these"),
    ],
)
def test_conventions_are_told_apart(estimator: Any, convention: str) -> None:
    assert classify(estimator) == convention


def test_exact_answers_on_a_chain() -> None:
    mdp, wanted = chain_of_states(3, 0.5)
    policy = torch.ones(4, 1, dtype=torch.float64)
    assert torch.equal(values(mdp, policy, 0.5), wanted)
    assert torch.equal(action_values(mdp, policy, 0.5)[:, 0], wanted)
    assert float(objective(mdp, policy, 0.5)) == 0.25


def test_policy_gradient_on_a_bandit() -> None:
    """One state, two actions of reward 1 and 0: J = p, and dJ/dlogits = p (1 - p) (1, -1)."""
    mdp, _ = chain_of_states(1, 0.5)
    reward = torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    two = mdp.transition.repeat_interleave(2, 1)
    bandit = type(mdp)(transition=two, reward=reward, termination=mdp.termination, initial=mdp.initial)
    gradient = exact_policy_gradient(bandit, torch.zeros(2, 2, dtype=torch.float64), 0.5)
    assert torch.allclose(gradient[0], torch.tensor([0.25, -0.25], dtype=torch.float64))

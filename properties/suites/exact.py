"""Laws against exact answers (E11, E12): expectations over every history of a small process, no sampling anywhere."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.envs.tabular import TabularMDP
from ..framework.compare import DOUBLE, same
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.mdps import (
    Histories,
    action_values,
    histories,
    layered_mdps,
    logits_of,
    policies,
    policy_gradient,
    tabular_mdps,
    values,
)
from ..strategies.values import dyadic
from . import estimator_mutants, returns_mutants

LAMBDAS = (0.0, 0.5, 1.0)


@attrs.frozen
class Problem:
    """A process, who acts in it (and whom to judge, if that is another), and what the estimator is told."""

    mdp: TabularMDP
    behaviour: Tensor
    policy: Tensor
    baseline: Tensor
    gamma: float
    lambda_: float
    horizon: int
    truncated_at: int


@st.composite
def problems(draw: DrawFn) -> Problem:
    """Processes of up to 3 states, followed for up to 3 steps and truncated at one of them, or at none."""
    mdp = draw(tabular_mdps())
    horizon = draw(st.sampled_from((1, 2, 2, 3) if len(mdp.initial) < 3 else (1, 2, 2)))
    return Problem(
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
def ending_problems(draw: DrawFn) -> Problem:
    """Processes that always end within 3 steps."""
    mdp = draw(layered_mdps())
    policy = draw(policies(mdp))
    gamma, lambda_ = draw(st.sampled_from((0.5, 1.0, 0.75))), draw(st.sampled_from(LAMBDAS))
    baseline = draw(dyadic((len(mdp.initial),), dtype=torch.float64))
    return Problem(mdp, policy, policy, baseline, gamma, lambda_, 3, -1)


def columns(all_: Histories, value: Tensor) -> tuple[Tensor, ...]:
    """What an estimator takes, [H, N] each, with the values of a table."""
    return all_.reward, value[all_.state], value[all_.next_state], all_.terminated, all_.truncated


def each(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """The function of one stream [H], on all streams [H, N]."""
    result: Tensor = torch.vmap(function, in_dims=1, out_dims=1)(*tensors)
    return result


def _given(all_: Histories, quantity: Tensor, shape: tuple[int, ...], *by: Tensor) -> tuple[Tensor, Tensor]:
    """E[quantity | first state, ...] as a table, and which of its entries can happen."""
    index = torch.zeros_like(by[0])
    for part, size in zip(by, shape, strict=True):
        index = index * size + part
    size = torch.Size(shape).numel()
    zero = torch.zeros(size, dtype=quantity.dtype)
    weight = zero.index_add(0, index, all_.probability)
    total = zero.index_add(0, index, all_.probability * quantity)
    return (total / weight.clamp(min=1e-30)).reshape(shape), (weight > 0).reshape(shape)


def _events(all_: Histories, seen: Seen) -> None:
    seen("a termination", all_.terminated.any())
    seen("a truncation", (all_.truncated & ~all_.terminated).any())
    seen("chance", len(all_.probability) > 1)


def expected_advantage() -> Law:
    """E11 for advantages."""

    def check(estimator: Callable[..., Tensor], problem: Problem, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.behaviour, problem.gamma
        all_ = histories(mdp, policy, problem.horizon, truncated_at=problem.truncated_at)
        _events(all_, seen)
        exact = values(mdp, policy, gamma)
        got = each(lambda *c: estimator(*c, gamma=gamma, lambda_=problem.lambda_), *columns(all_, exact))
        table, known = _given(all_, got[0], tuple(policy.shape), all_.state[0], all_.action[0])
        wanted = action_values(mdp, policy, gamma) - exact[:, None]
        same("E[A | s, a] against Q - V", torch.where(known, table, wanted), wanted, DOUBLE)

    return Law(
        name="expected_advantage",
        claim="With exact values the expected advantage of (s, a) is Q(s, a) - V(s), for every lambda.",
        source="Schulman et al. 2016, arXiv:1506.02438, section 3; by enumeration",
        inputs=always(problems()),
        check=check,
        mutant=Mutant(
            "bootstraps from the value of the reset observation", lambda subject: estimator_mutants.reset_value
        ),
        needs=("a termination", "a truncation", "chance"),
    )


def gradient_is_exact() -> Law:
    """E12."""

    def check(estimator: Callable[..., Tensor], problem: Problem, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.policy, problem.gamma
        all_ = histories(mdp, policy, problem.horizon)
        inside = all_.first_episode
        seen("an episode of several steps", inside[1:].any())
        seen("a baseline that is not the value", problem.lambda_ == 1.0)
        baseline = problem.baseline if problem.lambda_ == 1.0 else values(mdp, policy, gamma)
        got = each(lambda *c: estimator(*c, gamma=gamma, lambda_=problem.lambda_), *columns(all_, baseline))
        discount = gamma ** torch.arange(problem.horizon, dtype=torch.float64)[:, None]
        weights = all_.probability * discount * got * inside

        def surrogate(logits: Tensor) -> Tensor:
            return (weights * logits.log_softmax(-1)[all_.state, all_.action]).sum()

        logits = logits_of(policy)
        same("the gradient", torch.func.grad(surrogate)(logits), policy_gradient(mdp, logits, gamma), DOUBLE)

    return Law(
        name="gradient_is_exact",
        claim="sum_t gamma^t A_t grad log pi, expected over all histories, is grad J: for any baseline at lambda 1, "
        "for the exact one below.",
        source="Sutton et al. 2000, policy gradient theorem; by enumeration, the gradient through the linear solve",
        inputs=always(ending_problems()),
        check=check,
        mutant=Mutant(
            "subtracts the value of the row after for a baseline", lambda subject: estimator_mutants.late_baseline
        ),
        needs=("an episode of several steps", "a baseline that is not the value"),
    )


def expected_target() -> Law:
    """E11 for lambda-returns."""

    def check(returns: Callable[..., Tensor], problem: Problem, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.behaviour, problem.gamma
        all_ = histories(mdp, policy, problem.horizon, truncated_at=problem.truncated_at)
        _events(all_, seen)
        exact = values(mdp, policy, gamma)
        got = each(lambda *c: returns(*c, gamma=gamma, lambda_=problem.lambda_), *columns(all_, exact))
        table, known = _given(all_, got[0], tuple(exact.shape), all_.state[0])
        same("E[target | s] against V", torch.where(known, table, exact), exact, DOUBLE)

    return Law(
        name="expected_target",
        claim="With exact values the expected lambda-return of a state is its value, for every lambda.",
        source="Sutton and Barto 2018, chapter 12; by enumeration",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("stops the trace before a bad step", lambda subject: returns_mutants.cuts_before_bad),
        needs=("a termination", "a truncation", "chance"),
    )


def fixed_point() -> Law:
    """E11 for V-trace."""

    def check(subject: Callable[..., Any], problem: Problem, seen: Seen) -> None:
        mdp, behaviour, policy, gamma = problem.mdp, problem.behaviour, problem.policy, problem.gamma
        bar = 1.0
        clipped = torch.minimum(bar * behaviour, policy)
        learnt = clipped / clipped.sum(-1, keepdim=True)
        seen("a ratio above the bound", (policy > bar * behaviour).any())
        exact = values(mdp, learnt, gamma)
        all_ = histories(mdp, behaviour, problem.horizon, truncated_at=problem.truncated_at)
        _events(all_, seen)
        ratios = (policy / behaviour).log()[all_.state, all_.action]

        def targets(*arguments: Tensor) -> Tensor:
            result = subject(*arguments, gamma=gamma, lambda_=problem.lambda_, rho_bar=bar, c_bar=bar)
            found: Tensor = result.targets
            return found

        got = each(targets, ratios, *columns(all_, exact))
        table, known = _given(all_, got[0], tuple(exact.shape), all_.state[0])
        same("E[target | s] against V of the bounded policy", torch.where(known, table, exact), exact, DOUBLE)

    return Law(
        name="fixed_point",
        claim="The value of the policy proportional to min(rho_bar mu, pi) is what V-trace's targets expect to be.",
        source="Espeholt et al. 2018, arXiv:1802.01561, appendix A; by enumeration, the value by a linear solve",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("weighs each error by the squared ratio", lambda subject: returns_mutants.ratio_twice),
        needs=("a ratio above the bound", "a truncation", "chance"),
    )

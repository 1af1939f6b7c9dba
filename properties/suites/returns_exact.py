"""Laws of returns against exact answers (E11): no sampling anywhere."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..framework.compare import DOUBLE, same
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.exact import Problem, columns, each, exact_events, expectations, problems
from ..strategies.mdps import histories, values
from .returns_mutants import cuts_before_bad, ratio_twice


def expected_target() -> Law:
    """E11 for lambda-returns."""

    def check(returns: Callable[..., Tensor], problem: Problem, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.behaviour, problem.gamma
        all_ = histories(mdp, policy, problem.horizon, truncated_at=problem.truncated_at)
        exact_events(all_, seen)
        exact = values(mdp, policy, gamma)
        got = each(lambda *c: returns(*c, gamma=gamma, lambda_=problem.lambda_), *columns(all_, exact))
        table, known = expectations(all_, got[0], tuple(exact.shape), all_.state[0])
        same("E[target | s] against V", torch.where(known, table, exact), exact, DOUBLE)

    return Law(
        name="expected_target",
        claim="With exact values the expected lambda-return of a state is its value, for every lambda.",
        source="Sutton and Barto 2018, chapter 12; by enumeration",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("stops the trace before a bad step", lambda subject: cuts_before_bad),
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
        exact_events(all_, seen)
        ratios = (policy / behaviour).log()[all_.state, all_.action]

        def targets(*arguments: Tensor) -> Tensor:
            result = subject(*arguments, gamma=gamma, lambda_=problem.lambda_, rho_bar=bar, c_bar=bar)
            found: Tensor = result.targets
            return found

        got = each(targets, ratios, *columns(all_, exact))
        table, known = expectations(all_, got[0], tuple(exact.shape), all_.state[0])
        same("E[target | s] against V of the bounded policy", torch.where(known, table, exact), exact, DOUBLE)

    return Law(
        name="fixed_point",
        claim="The value of the policy proportional to min(rho_bar mu, pi) is what V-trace's targets expect to be.",
        source="Espeholt et al. 2018, arXiv:1802.01561, appendix A; by enumeration, the value by a linear solve",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("weighs each error by the squared ratio", lambda subject: ratio_twice),
        needs=("a ratio above the bound", "a truncation", "chance"),
    )

"""Laws of advantage estimators against exact answers (E11, E12): no sampling anywhere."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..framework.compare import DOUBLE, same
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.exact import Problem, columns, each, ending_problems, exact_events, expectations, problems
from ..strategies.mdps import (
    action_values,
    histories,
    logits_of,
    policy_gradient,
    values,
)
from .estimator_mutants import late_baseline, reset_value


def expected_advantage() -> Law:
    """E11 for advantages."""

    def check(estimator: Callable[..., Tensor], problem: Problem, seen: Seen) -> None:
        mdp, policy, gamma = problem.mdp, problem.behaviour, problem.gamma
        all_ = histories(mdp, policy, problem.horizon, truncated_at=problem.truncated_at)
        exact_events(all_, seen)
        exact = values(mdp, policy, gamma)
        got = each(lambda *c: estimator(*c, gamma=gamma, lambda_=problem.lambda_), *columns(all_, exact))
        table, known = expectations(all_, got[0], tuple(policy.shape), all_.state[0], all_.action[0])
        wanted = action_values(mdp, policy, gamma) - exact[:, None]
        same("E[A | s, a] against Q - V", torch.where(known, table, wanted), wanted, DOUBLE)

    return Law(
        name="expected_advantage",
        claim="With exact values the expected advantage of (s, a) is Q(s, a) - V(s), for every lambda.",
        source="Schulman et al. 2016, arXiv:1506.02438, section 3; by enumeration",
        inputs=always(problems()),
        check=check,
        mutant=Mutant("bootstraps from the value of the reset observation", lambda subject: reset_value),
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
        mutant=Mutant("subtracts the value of the row after for a baseline", lambda subject: late_baseline),
        needs=("an episode of several steps", "a baseline that is not the value"),
    )

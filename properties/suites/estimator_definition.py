"""Laws that say what an advantage is (E1, E2, E3, E7), under a convention on truncation."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core.record import replace
from ..framework.compare import same
from ..framework.law import Law, Mutant, Seen, always
from ..strategies.streams import Discounted, Stream, bootstraps, discounted, events, kept, last_of_episode, over
from . import estimator_mutants as mutants

Estimator = Callable[..., Tensor]
PAPER = "Schulman et al. 2016, arXiv:1506.02438"
ENDS = ("a termination", "a truncation")


def judge(estimator: Estimator, drawn: Discounted, stream: Stream | None = None) -> Tensor:
    """What the estimator gives for a stream, under the drawn gamma and lambda."""
    return estimator(*(stream or drawn.stream).columns, gamma=drawn.gamma, lambda_=drawn.lambda_)


def td_errors(convention: str, stream: Stream, gamma: float) -> Tensor:
    """delta_t = r_t + gamma b_t v'_t - v_t, b the convention's bootstrap mask; 0 where it drops the step: [T]."""
    beyond = gamma * bootstraps(convention, stream.terminated, stream.truncated) * stream.next_values
    return (stream.rewards + beyond - stream.values) * kept(convention, stream.terminated, stream.truncated)


def law_of(
    name: str,
    claim: str,
    mutant: tuple[str, Estimator],
    inputs: SearchStrategy[Any],
    check: Callable[[Estimator, Any, Seen], None],
    *needs: str,
    source: str = PAPER,
) -> Law:
    """A law whose mutant is a whole function of its own."""
    edited = mutant[1]
    return Law(
        name=name,
        claim=claim,
        source=source,
        inputs=always(inputs),
        check=check,
        mutant=Mutant(mutant[0], lambda subject: edited),
        needs=needs,
    )


def recursion(convention: str) -> Law:
    """E1."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream, advantage, wanted = drawn.stream, torch.zeros(()), []
        events(stream, seen)
        errors = td_errors(convention, stream, drawn.gamma)
        for t in reversed(range(len(errors))):
            trace = 0.0 if bool(over(stream)[t]) else drawn.gamma * drawn.lambda_
            advantage = errors[t] + trace * advantage
            wanted.append(advantage)
        same("advantages", judge(estimator, drawn), torch.stack(wanted[::-1]))

    return law_of(
        "recursion",
        "A_t = delta_t + gamma lambda (1 - ended_t) A_t+1.",
        ("forgets gamma in the trace", mutants.trace_without_gamma),
        discounted(),
        check,
        *ENDS,
    )


def td_error(convention: str) -> Law:
    """E2."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        events(drawn.stream, seen)
        seen("two rows of one episode", (~over(drawn.stream))[:-1].any() and drawn.gamma)
        same("advantages at lambda 0", judge(estimator, drawn), td_errors(convention, drawn.stream, drawn.gamma))

    return law_of(
        "lambda_0_is_td_error",
        "At lambda 0 the advantage is the temporal difference delta_t.",
        ("adds a lambda-return where gae adds lambda times an advantage", mutants.one_lambda_missing),
        discounted(lambdas=(0.0,)),
        check,
        "two rows of one episode",
        *ENDS,
    )


def monte_carlo(convention: str) -> Law:
    """E3, written without recursion."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        keeps = kept(convention, stream.terminated, stream.truncated)
        wanted = []
        for t in range(len(stream.rewards)):
            last = last_of_episode(stream, t)
            # A dropped step ends the sum before it: what it would have led to is worth the value it had.
            rows = range(t, last + 1 if bool(keeps[last]) else last)
            total = sum((drawn.gamma ** (k - t) * stream.rewards[k] for k in rows), torch.zeros(()))
            if bool(keeps[last]):
                total = total + drawn.gamma ** (last + 1 - t) * counts[last] * stream.next_values[last]
            else:
                total = total + drawn.gamma ** (last - t) * stream.values[last]
            wanted.append(total - stream.values[t])
        same("advantages at lambda 1", judge(estimator, drawn), torch.stack(wanted))

    return law_of(
        "lambda_1_is_monte_carlo",
        "At lambda 1 the advantage is the discounted sum to the episode's end, and the value beyond it, minus v_t.",
        ("adds the value beyond an ending twice", mutants.bootstrap_twice),
        discounted(lambdas=(1.0,)),
        check,
        *ENDS,
    )


def value_beyond(convention: str) -> Law:
    """E7."""

    def check(estimator: Estimator, drawn: Discounted, seen: Seen) -> None:
        stream = drawn.stream
        events(stream, seen)
        before = judge(estimator, drawn)
        counts = bootstraps(convention, stream.terminated, stream.truncated)
        counts = counts & kept(convention, stream.terminated, stream.truncated)
        for t in range(len(before)):
            if bool(over(stream)[t]):
                raised = stream.next_values + (torch.arange(len(before)) == t)
                change = judge(estimator, drawn, replace(stream, next_values=raised))[t] - before[t]
                wanted = drawn.gamma * counts[t].to(change.dtype)
                same(f"dA/dv' at the ending {t}", change, wanted)

    return law_of(
        "value_beyond_an_ending",
        "At a termination v'_t has no effect; at a truncation dA_t/dv'_t is gamma.",
        ("bootstraps past a termination", mutants.past_termination),
        discounted(),
        check,
        *ENDS,
    )

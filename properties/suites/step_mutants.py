"""A running total as a pure step, and the ways in which people make such a step impure."""

import logging
import random
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core.record import record, replace, tensor
from ..strategies.values import dyadic, integers

Step = Callable[["Total", Tensor], tuple["Total", Tensor]]


@record
class Total:
    """A discounted total and how many numbers went into it."""

    total: Tensor = tensor("*", "float")
    count: Tensor = tensor("*", "int")


def running_total(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
    """total' = total / 2 + reward; gives the total before the reward as well."""
    return Total(total=state.total * 0.5 + reward, count=state.count + 1), state.total * 0.5


def totals() -> SearchStrategy[tuple[Total, Tensor]]:
    """Arguments of `running_total`, scalars."""
    return st.tuples(st.builds(Total, total=dyadic(), count=integers((), 0, 8)), dyadic())


def stale(step: Step) -> Step:
    """Keeps results in a cache and serves the one before."""
    results: list[tuple[Total, Tensor]] = []

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        results.append(step(state, reward))
        return results[-2] if len(results) > 1 else results[-1]

    return mutant


def seeds_globally(step: Step) -> Step:
    """Draws from the global generator, made repeatable by seeding it."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        torch.manual_seed(0)
        return step(state, reward + torch.rand(()))

    return mutant


def global_noise(step: Step) -> Step:
    """Draws from torch's global generator."""
    return lambda state, reward: step(state, reward + torch.rand_like(reward))


def python_noise(step: Step) -> Step:
    """Draws from Python's generator, which a compiler freezes."""
    return lambda state, reward: step(state, reward + random.random())


def in_place(step: Step) -> Step:
    """Halves the caller's own total."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        half = state.total.mul_(0.5)
        return Total(total=half + reward, count=state.count + 1), half.clone()

    return mutant


def in_place_same(step: Step) -> Step:
    """Writes into the caller's tensor what stood there already."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        state.total.mul_(1.0)
        return step(state, reward)

    return mutant


def view(step: Step) -> Step:
    """Gives a view of its input."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        return step(state, reward)[0], state.total[...]

    return mutant


def branches(step: Step) -> Step:
    """Lets Python decide on a tensor's value."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        return step(state, -reward if state.count > 3 else reward)

    return mutant


def logs(step: Step) -> Step:
    """Tells the log what it does."""
    logger = logging.getLogger(__name__)

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        logger.debug("a step")
        return step(state, reward)

    return mutant


def widens(step: Step) -> Step:
    """Leaves the carry in another dtype than it came in."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        after, before = step(state, reward)
        return replace(after, total=after.total.double()), before

    return mutant


def counts_in_python(step: Step) -> Step:
    """Keeps a counter beside the state."""
    calls: list[Any] = []

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        calls.append(None)
        return step(state, reward + len(calls))

    return mutant


def on_the_cpu(step: Step) -> Step:
    """Makes its tensors where tensors are made by default."""

    def mutant(state: Total, reward: Tensor) -> tuple[Total, Tensor]:
        after, before = step(state, reward)
        return after, torch.cat([torch.zeros(1), before.reshape(1)])[1]

    return mutant


MUTANTS: dict[str, Callable[[Step], Step]] = {
    "draws noise from torch's global generator": global_noise,
    "draws noise from the module random": python_noise,
    "scales its input in place by 1, which changes nothing": in_place_same,
    "counts its calls in a list": counts_in_python,
}

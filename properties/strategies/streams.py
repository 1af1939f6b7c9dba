"""Streams of steps, the inputs of estimators; drawn as a list of steps, so that a counterexample shrinks to one or two."""

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from ...core.errors import choose
from ...core.record import record, replace, take, tensor
from ...core.steps import ended

ENDINGS = ("none", "truncated", "none", "terminated", "none", "both")
FRACTIONS = (0.0, 0.5, 1.0, 0.5)  # gamma and lambda, 1/2 twice as often: products with multiples of 1/4 are exact
CONVENTIONS = ("bootstrap", "terminate", "drop")


@record
class Stream:
    """One stream of T steps, with the columns that an estimator takes."""

    rewards: Tensor = tensor("T", "float")
    values: Tensor = tensor("T", "float")
    next_values: Tensor = tensor("T", "float")  # of next_observation, before a reset
    terminated: Tensor = tensor("T", "bool")
    truncated: Tensor = tensor("T", "bool")

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """The five columns, in the order in which estimators take them."""
        return self.rewards, self.values, self.next_values, self.terminated, self.truncated


@attrs.frozen
class Discounted:
    """A stream, and the estimator's arguments gamma and lambda."""

    stream: Stream
    gamma: float
    lambda_: float


@attrs.frozen
class _Step:
    reward: int
    value: int
    beyond: int  # the value of the next observation, where the episode ends
    ending: str


def _step() -> SearchStrategy[_Step]:
    quarters = st.integers(-32, 31)
    return st.builds(_Step, reward=quarters, value=quarters, beyond=quarters, ending=st.sampled_from(ENDINGS))


def _lists(element: SearchStrategy[Any], longest: int) -> SearchStrategy[list[Any]]:
    """Lists of at least one element, most of them long, so that a few draws contain every kind of ending."""
    lengths = (1, max(1, longest - 2), max(1, longest - 1))
    return st.one_of([st.lists(element, min_size=least, max_size=longest) for least in lengths])


def _stream(steps: Sequence[_Step]) -> Stream:
    values = [step.value for step in steps]
    following = [*values[1:], steps[-1].beyond]
    over = [step.ending != "none" for step in steps]
    next_values = [step.beyond if last else after for step, last, after in zip(steps, over, following, strict=True)]
    return Stream(
        rewards=torch.tensor([step.reward for step in steps], dtype=torch.float32) / 4,
        values=torch.tensor(values, dtype=torch.float32) / 4,
        next_values=torch.tensor(next_values, dtype=torch.float32) / 4,
        terminated=torch.tensor([step.ending in ("terminated", "both") for step in steps]),
        truncated=torch.tensor([step.ending in ("truncated", "both") for step in steps]),
    )


def streams(longest: int = 6) -> SearchStrategy[Stream]:
    """Streams of up to `longest` steps, multiples of 1/4 below 8; v'_t = v_{t+1} inside an episode.

    Half the steps end an episode: by termination, truncation, or both at once.
    """
    return _lists(_step(), longest).map(_stream)


def twins(longest: int = 6) -> SearchStrategy[tuple[Stream, Stream]]:
    """Two streams whose episodes end at the same steps."""

    def make(steps: list[tuple[_Step, _Step]]) -> tuple[Stream, Stream]:
        one = [first for first, _ in steps]
        two = [attrs.evolve(second, ending=first.ending) for first, second in steps]
        return _stream(one), _stream(two)

    return _lists(st.tuples(_step(), _step()), longest).map(make)


def streams_with_numbers(
    longest: int = 6, *, gammas: Sequence[float] = FRACTIONS, lambdas: Sequence[float] = FRACTIONS
) -> SearchStrategy[Discounted]:
    """Streams with gamma and lambda."""
    return st.builds(
        Discounted, stream=streams(longest), gamma=st.sampled_from(gammas), lambda_=st.sampled_from(lambdas)
    )


def over(stream: Stream) -> Tensor:
    """Return a mask of the steps at which an episode ends: bool [T]."""
    return ended(stream.terminated, stream.truncated)


def episodes(stream: Stream) -> list[Stream]:
    """Return the episodes of the stream: it is cut after each ending."""
    cuts = [t + 1 for t in range(len(stream.rewards)) if bool(over(stream)[t])]
    edges = sorted({0, len(stream.rewards), *cuts})
    return [take(stream, slice(a, b)) for a, b in itertools.pairwise(edges)]


def last_of_episode(stream: Stream, t: int) -> int:
    """Return the row in which the episode of row t ends; the last row if it does not."""
    rows = [k for k in range(t, len(stream.rewards)) if bool(over(stream)[k])]
    return rows[0] if rows else len(stream.rewards) - 1


def bootstraps(convention: str, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return a mask of the steps whose next value counts, under a convention on truncation: bool [T].

    "bootstrap": everywhere but at a termination. "terminate": a truncation counts as a termination. "drop": as
    "bootstrap", but see `kept_steps`. Raises: ChoiceError.
    """
    lasting = ~terminated
    return choose("convention", convention, {"bootstrap": lasting, "drop": lasting, "terminate": lasting & ~truncated})


def kept_steps(convention: str, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return a mask of the steps that get an advantage; "drop" gives truncated steps, unless also terminated, advantage 0."""
    everywhere = torch.ones_like(terminated)
    dropped = terminated | ~truncated
    return choose("convention", convention, {"bootstrap": everywhere, "terminate": everywhere, "drop": dropped})


def events(stream: Stream, seen: Any) -> None:
    """Count the endings that laws need."""
    inside, alone = over(stream)[:-1], stream.truncated & ~stream.terminated
    seen("a termination", stream.terminated.any())
    seen("a truncation", alone.any())
    seen("an ending inside", inside.any())
    seen("no ending at the last step", not over(stream)[-1])


def with_rows(stream: Stream, rows: Tensor, other: Stream, *fields: str) -> Stream:
    """Return the stream with the rows of a mask (bool [T]) taken from `other`, in the fields named or in all."""
    names = fields or ("rewards", "values", "next_values", "terminated", "truncated")
    return replace(stream, **{name: torch.where(rows, getattr(other, name), getattr(stream, name)) for name in names})

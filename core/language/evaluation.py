"""A task's own evaluation, instead of attempts at held-out episodes: its prompts, and the report of its result."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import frozen

from .prompting import Prompting

R = TypeVar("R")


@frozen(kw_only=True)
class Curve:
    """A line with its band over x = 1, 2, ..., for a plot."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@frozen(kw_only=True)
class Axis:
    """The labels of a plot of curves: its title, the heading of the curves, the x axis, and one marked x."""

    title: str
    heading: str
    x: str
    mark: int
    marked: str


@frozen(kw_only=True)
class TaskEvaluation(Generic[R]):
    """An evaluation by prompts to the current weights, on held-out tasks numbered from 0, drawn with a key.

    `described` returns JSON, and `read(value, where)` is its inverse or raises StructureError. `figures` returns metrics with
    the names in `names`, which are reported for evaluations during training. `table` takes results by column name.
    """

    prompting: Prompting[Any, R]
    temperature: float
    top_p: float
    names: tuple[str, ...]
    figures: Callable[[R], Mapping[str, float]]
    line: Callable[[R], str]
    table: Callable[[Mapping[str, R]], str]
    described: Callable[[R], Mapping[str, Any]]
    read: Callable[[Any, str], R]
    curve: Callable[[R], Curve]
    axis: Axis

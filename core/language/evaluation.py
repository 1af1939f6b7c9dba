"""A task's own evaluation, in place of attempts at held-out episodes: how it prompts, and how its result is reported."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from attrs import frozen

from .prompting import Prompting

R = TypeVar("R")


@frozen(kw_only=True)
class Curve:
    """A line with its band over x = 1, 2, ..., for a picture."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@frozen(kw_only=True)
class Axis:
    """What a picture of curves says: its title, the heading of its curves, their x, and one x that is marked."""

    title: str
    heading: str
    x: str
    mark: int
    marked: str


@frozen(kw_only=True)
class Evaluation(Generic[R]):
    """An evaluation by prompts to the weights at hand, on held-out tasks of number 0 on, from the key of the draw.

    `described` gives JSON, and `read(value, where)` undoes it or raises StructureError. `figures` has the names in `names`;
    they are reported where the run is evaluated on its way. `table` takes results by the names of their columns.
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

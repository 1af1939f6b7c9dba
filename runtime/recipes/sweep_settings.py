"""Settings of a sweep: the values of each swept number. Imports no torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from random import Random
from typing import Literal

from attrs import frozen

from ...core.errors import ChoiceError, choose, message
from ..runs.arguments import check_memory, check_whole, check_wholes, flag
from .classic import INPUTS
from .shared_settings import check_episodes

MEMBER = 1000  # bytes of a run's settings and results

# settings that are numbers of a state -> their names there
SWEPT: Mapping[str, str] = {
    "learning_rate": "learning_rate",
    "max_gradient_norm": "max_norm",
    **{name: name for name in INPUTS},
}
Point = Mapping[str, float]  # a value of each swept setting
SAMPLERS = ("random", "optuna")


@frozen
class SettingValues:
    """The values of one setting: a list, or a range from which values are drawn."""

    name: str
    values: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False


@frozen(kw_only=True)
class Sweep:
    """Options of a sweep."""

    seeds: int = 3  # of each setting: 0, 1, ...
    samples: int = 20  # settings that are drawn, where one has a range without a count
    members: int = 64  # runs that are trained at once, at most; fewer need less memory, and optuna learns more often
    episodes: int = 20  # of each member's evaluation, greedy
    draw: int = 0  # the seed of the drawn settings
    sampler: Literal["random", "optuna"] = "random"  # of ranges; optuna (an extra) learns from the settings done before
    halving: int = 0  # N: after a rung the best 1/N of the settings go on, to N times the steps; 0: all to the end
    rungs: int = 0  # of --halving; 0 for as many as leave one setting or more

    def check(self, axes: Sequence[SettingValues]) -> None:
        """Refuse invalid options, and those that do not fit the swept numbers. Raises: ChoiceError."""
        check_wholes(self, 1, "seeds", "samples", "members")
        check_episodes(self.episodes)
        check_memory({"--seeds x --samples": MEMBER * self.seeds * self.samples})
        check_wholes(self, 0, "draw", "rungs")
        choose("--sampler", self.sampler, dict.fromkeys(SAMPLERS))
        if self.halving:
            check_whole("--halving", self.halving, 2)
        elif self.rungs:
            remedy = "add it, e.g. --halving 3"
            raise ChoiceError(message("--rungs", got="without --halving", wanted="with it", remedy=remedy))
        if self.sampler == "optuna":
            self._check_optuna(axes)

    def _check_optuna(self, axes: Sequence[SettingValues]) -> None:
        if find_spec("optuna") is None:
            where, remedy = "--sampler optuna: the library optuna", "pip install 'purestep[optuna]'"
            raise ChoiceError(message(where, got="absent", wanted="installed", remedy=remedy))
        if self.halving:
            got, wanted = "with --halving", "without: it learns from scores after the same steps"
            raise ChoiceError(message("--sampler optuna", got=got, wanted=wanted, remedy="leave out one of the two"))
        if all(axis.values for axis in axes):
            got, remedy = "without a range", "give one, e.g. --learning-rate log:1e-4:1e-2"
            raise ChoiceError(message("--sampler optuna", got=got, wanted="one or more", remedy=remedy))


def is_axis(text: str) -> bool:
    """Return whether the value of an option names several values.

    >>> is_axis("log:1e-4:1e-2"), is_axis("0.9,0.99"), is_axis("0.9")
    (True, True, False)
    """
    return text.startswith(("log:", "linear:")) or "," in text


def axis_of(name: str, text: str) -> SettingValues:
    """Return the values that a text names: `0.9,0.99`, `log:LOW:HIGH` (drawn) or `log:LOW:HIGH:COUNT`; also `linear:`.

    Raises: ChoiceError.

    >>> axis_of("gamma", "0.9,0.99").values
    (0.9, 0.99)
    >>> axis_of("learning_rate", "log:0.001:0.1:3").values
    (0.001, 0.01, 0.1)
    """
    where, kind, *rest = flag(name), *text.split(":")
    try:
        if kind not in ("log", "linear"):
            values = tuple(dict.fromkeys(float(part) for part in text.split(",")))
            return SettingValues(name, values)
        low, high = float(rest[0]), float(rest[1])
        count = int(rest[2]) if len(rest) == 3 else 0
        if len(rest) > 3 or not low < high or (kind == "log" and low <= 0.0) or (len(rest) == 3 and count < 2):
            raise ValueError
    except (ValueError, IndexError):
        wanted = "values (0.9,0.99) or log:LOW:HIGH or linear:LOW:HIGH, also with :COUNT"
        remedy = "LOW below HIGH, of log above 0, COUNT 2 or more"
        raise ChoiceError(message(where, got=repr(text), wanted=wanted, remedy=remedy)) from None
    axis = SettingValues(name, (), low, high, kind == "log")
    values = tuple(_within(axis, number / (count - 1)) for number in range(count)) if count else ()
    return SettingValues(name, values, low, high, kind == "log")


def _within(axis: SettingValues, share: float) -> float:
    """Return the value at this share of the range, in 6 digits, so that it can be written as an option."""
    low, high = (math.log(axis.low), math.log(axis.high)) if axis.logarithmic else (axis.low, axis.high)
    value = low + (high - low) * share
    return float(f"{math.exp(value) if axis.logarithmic else value:.6g}")


def extremes(axes: Sequence[SettingValues]) -> Iterator[Point]:
    """Yield settings of one number each, which are valid only if all those to try are: listed values, and ends of ranges.

    >>> list(extremes([axis_of("gamma", "0.5,0.75"), axis_of("clip", "linear:0.1:0.2")]))
    [{'gamma': 0.5}, {'gamma': 0.75}, {'clip': 0.1}, {'clip': 0.2}]
    """
    return ({axis.name: value} for axis in axes for value in axis.values or (axis.low, axis.high))


def setting_count(axes: Sequence[SettingValues], options: Sweep) -> int:
    """Return the number of settings to try.

    >>> setting_count([axis_of("gamma", "0.5,0.75"), axis_of("clip", "0.1,0.2,0.3")], Sweep())
    6
    """
    return math.prod(len(axis.values) for axis in axes) or options.samples


def points(axes: Sequence[SettingValues], options: Sweep) -> list[Point]:
    """Return the settings to try: all combinations where each axis lists values, else `samples` draws.

    >>> points([axis_of("gamma", "0.5,0.75"), axis_of("clip", "0.1,0.2")], Sweep())[1]
    {'gamma': 0.5, 'clip': 0.2}
    """
    names = [axis.name for axis in axes]
    if all(axis.values for axis in axes):
        return [dict(zip(names, values, strict=True)) for values in product(*(axis.values for axis in axes))]
    draw = Random(options.draw)
    return [{axis.name: _drawn(axis, draw.random()) for axis in axes} for _ in range(options.samples)]


def _drawn(axis: SettingValues, share: float) -> float:
    return axis.values[int(share * len(axis.values))] if axis.values else _within(axis, share)

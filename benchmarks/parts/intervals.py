"""Means of independent values, such as those of several seeds, with 95 % intervals by Student's t."""

import math
from collections.abc import Sequence

from attrs import frozen

from purestep.core.intervals import student


@frozen
class Mean:
    """A mean and its 95 % interval, which one value does not have."""

    mean: float
    low: float
    high: float

    def described(self, digits: int) -> dict[str, float]:
        """Return the numbers for a file, which has no infinities."""
        bounds = {"low": self.low, "high": self.high} if math.isfinite(self.low) else {}
        return {name: round(value, digits) for name, value in {"mean": self.mean, **bounds}.items()}

    def text(self) -> str:
        """Return the numbers for a table.

        >>> mean_of([1.0, 2.0]).text(), mean_of([3.0]).text()
        ('1.5 [-4.9, 7.9]', '3.0')
        """
        return f"{self.mean:.1f}" + (f" [{self.low:.1f}, {self.high:.1f}]" if math.isfinite(self.low) else "")

    def side(self) -> str:
        """Return the position of the interval."""
        if self.low > 0.0:
            return "above 0"
        return "below 0" if self.high < 0.0 else "0 inside"


def mean_of(values: Sequence[float]) -> Mean:
    """Return m -+ t s / sqrt(n), with s^2 the variance by n - 1 and t Student's 97.5 % quantile.

    >>> mean_of([2.0, 4.0, 6.0])
    Mean(mean=4.0, low=-0.9686..., high=8.9686...)
    """
    number, mean = len(values), math.fsum(values) / len(values)
    if number == 1:
        return Mean(mean, -math.inf, math.inf)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1))
    half = student(number) * deviation / math.sqrt(number)
    return Mean(mean, mean - half, mean + half)

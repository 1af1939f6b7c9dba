"""Settings that Optuna's TPE sampler asks for in batches. The study is in memory: asked and told again, it is the same one.

Needs the extra `optuna`.
"""

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from .hugging_face.optional import library

DIGITS = 6  # of a drawn number, so that it can be written as an option


class SweptRange(Protocol):
    """A number to choose: one of `values`, or from a range where there are none."""

    @property
    def name(self) -> str:
        """Return the name of the number."""
        ...

    @property
    def values(self) -> tuple[float, ...]:
        """Return the listed values."""
        ...

    @property
    def low(self) -> float:
        """Return the lower end of the range."""
        ...

    @property
    def high(self) -> float:
        """Return the upper end of the range."""
        ...

    @property
    def logarithmic(self) -> bool:
        """Return whether the range is even in the logarithm."""
        ...


def proposals(
    axes: Sequence[SweptRange], batches: Sequence[int], *, seed: int
) -> Generator[list[dict[str, float]], Sequence[float], None]:
    """Yield batches of settings, and take the scores of each: higher is better, and -inf is the lowest.

    The settings of a batch are asked for one after the other, as if those without a score had low ones ("constant liar"), so
    that they differ. The same axes, batches, seed and scores give the same settings. Raises: ModuleNotFoundError.
    """
    optuna = library("optuna", extra="optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {axis.name: _distribution(optuna.distributions, axis) for axis in axes}
    ranges = {axis.name for axis in axes if not axis.values}
    for batch in batches:
        asked = [study.ask(space) for _ in range(batch)]
        scores = yield [
            {name: float(f"{value:.{DIGITS}g}") if name in ranges else value for name, value in trial.params.items()}
            for trial in asked
        ]
        for trial, score in zip(asked, scores, strict=True):
            study.tell(trial, score)


def _distribution(of: Any, axis: SweptRange) -> Any:
    if axis.values:
        return of.CategoricalDistribution(axis.values)
    return of.FloatDistribution(axis.low, axis.high, log=axis.logarithmic)

"""Metrics: an algorithm gives the names it declares, and none that a trainer counts itself."""

from torch import Tensor

from ..algorithms.algorithm import Algorithm, Metrics
from ..core.errors import ChoiceError, ShapeError, StructureError, message

COUNTS = ("episodes", "return_sum", "length_sum", "finite")
WHERE = "trainer: the algorithm's metrics"


def all_names(algorithm: Algorithm) -> tuple[str, ...]:
    """The names of a trainer's metrics: the algorithm's, then COUNTS. Raises: ChoiceError for a name that stands twice.

    >>> all_names(Algorithm(init=id, update=id, metrics=("loss",)))
    ('loss', 'episodes', 'return_sum', 'length_sum', 'finite')
    """
    names = (*algorithm.metrics, *COUNTS)
    for name in algorithm.metrics:
        if names.count(name) > 1:
            got = f"{name!r}, {'which a trainer counts itself' if name in COUNTS else 'twice'}"
            raise ChoiceError(message(WHERE, got=got, wanted="names of its own", remedy="rename it"))
    return names


def as_declared(algorithm: Algorithm, metrics: Metrics) -> None:
    """Raises unless an update gave each metric that the algorithm declares, as a number, and no other.

    Raises: StructureError, ShapeError.

    >>> as_declared(Algorithm(init=id, update=id, metrics=("a",)), {"b": 1})
    Traceback (most recent call last):
    purestep.core.errors.StructureError: trainer: the algorithm's metrics is ['b'], wanted ['a']; declare what `update` gives
    """
    given, wanted = sorted(metrics), sorted(algorithm.metrics)
    if given != wanted:
        raise StructureError(message(WHERE, got=given, wanted=wanted, remedy="declare what `update` gives"))
    for name in wanted:
        value, remedy = metrics[name], "make it a tensor without axes, e.g. by .mean()"
        if not isinstance(value, Tensor):
            raise StructureError(
                message(f"{WHERE}: {name}", got=type(value).__name__, wanted="a tensor", remedy=remedy)
            )
        if value.ndim:
            raise ShapeError(message(f"{WHERE}: {name}", got=list(value.shape), wanted="[]", remedy=remedy))

"""Check of metrics: an algorithm returns the names it declares, and none of those that a trainer counts itself."""

from torch import Tensor

from ..algorithms.algorithm import Algorithm, Metrics, TrainState
from ..core.errors import ChoiceError, ShapeError, StructureError, message
from ..core.tree import same_structure

COUNTS = ("episodes", "return_sum", "length_sum", "finite")
WHERE = "trainer: the algorithm's metrics"


def all_names(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the names of a trainer's metrics: the algorithm's, then COUNTS. Raises: ChoiceError for a duplicate name.

    >>> all_names(Algorithm(init=id, update=id, metrics=("loss",)))
    ('loss', 'episodes', 'return_sum', 'length_sum', 'finite')
    """
    if isinstance(algorithm.metrics, str):
        got, remedy = repr(algorithm.metrics), "write a tuple of one name with a comma"
        raise StructureError(message(WHERE, got=got, wanted="a tuple of names", remedy=remedy))
    names = (*algorithm.metrics, *COUNTS)
    for name in algorithm.metrics:
        if names.count(name) > 1:
            got = f"{name!r}, {'which a trainer counts itself' if name in COUNTS else 'twice'}"
            raise ChoiceError(message(WHERE, got=got, wanted="names of its own", remedy="rename it"))
    return names


def as_declared(
    declared: tuple[str, ...], before: TrainState, updated: tuple[TrainState, Metrics]
) -> tuple[TrainState, Metrics]:
    """Return an update's result if its state is like the one before and its metrics are those declared, each a scalar tensor.

    Raises: StructureError, ShapeError.

    >>> state = TrainState(params=(), optimizer=(), step=())
    >>> as_declared(("a",), state, (state, {"b": 1}))
    Traceback (most recent call last):
    purestep.core.errors.StructureError: trainer: the algorithm's metrics is ['b'], wanted ['a']; declare what `update` gives
    """
    if not (isinstance(updated, tuple) and len(updated) == 2 and isinstance(updated[0], TrainState)):
        got, remedy = type(updated).__name__, "return both"
        where = "trainer: what the algorithm's update gives"
        raise StructureError(message(where, got=got, wanted="(TrainState, metrics)", remedy=remedy))
    after, metrics = updated
    same_structure("trainer: the algorithm's state", after, before)
    given, wanted = sorted(metrics), sorted(declared)
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
    return after, metrics

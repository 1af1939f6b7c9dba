"""One call of a reward function in the convention of TRL, and the check of its result. Runs in workers; imports no torch.

    reward(prompts, completions, completion_ids, **columns) -> list[float | None]

plain or `async def`, called by keyword; all arguments are lists of one length. A function without **kwargs gets only those
of its parameters that exist. None and NaN: the function does not apply to that sample.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from attrs import frozen

from ....core.errors import ChoiceError, ShapeError, StructureError, message
from ..module_reference import imported

Score = float | str | None  # a number, an error, or None where the function does not apply
GIVEN = ("prompts", "completions", "completion_ids")  # arguments besides the columns
SEES = ("completions", "completion_ids")  # a reward has a parameter for one of these
EXAMPLE = "e.g. reward(completions, **columns)"
Arguments = Mapping[str, Sequence[Any]]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@frozen
class Unusable:
    """A function that cannot be imported, and the reason."""

    error: str


@frozen
class Reference:
    """A function by its name, MODULE:FUNCTION or FILE.py:FUNCTION. Unpickling imports it, and gives it or `Unusable`."""

    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return import_function, (self.name,)


@cache
def import_function(reference: str) -> Callable[..., Any] | Unusable:
    """Return the function that a reference names, imported, or the reason why there is none, in one line.

    >>> import_function("json:dumps").__name__, import_function("json:dump_all")
    ('dumps', Unusable(error="dump_all is absent, wanted a function of 'json'; name it as the module does"))
    """
    place, _, name = reference.rpartition(":")
    try:
        module = imported("module", place)
    except ChoiceError as error:
        return Unusable(str(error))
    if not hasattr(module, name):
        wanted, remedy = f"a function of {place!r}", "name it as the module does"
        return Unusable(message(name, got="absent", wanted=wanted, remedy=remedy))
    function: Callable[..., Any] = getattr(module, name)
    return function


def call_fault(function: Callable[..., Any] | Unusable, columns: Collection[str] | tuple[()] = ()) -> str:
    """Return why a function cannot be called as a reward, in one line, or "". Without `columns` none is known.

    >>> call_fault(lambda completions, answer: [], ["answer"]), call_fault(lambda **columns: [])
    ('', '')
    >>> call_fault(lambda completions, solution: [], ["answer", "level"])
    "parameter 'solution' is in no column, wanted one of ['answer', 'level']; rename the parameter or the column"
    """
    if isinstance(function, Unusable):
        return function.error
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        got = "without a signature" if callable(function) else f"of type {type(function).__name__}"
        return message("it", got=got, wanted="a function", remedy=EXAMPLE)
    needed = [one for one in parameters if one.default is one.empty]
    for one in needed:
        if one.kind is one.POSITIONAL_ONLY:
            wanted = "one that can be given by keyword"
            return message(f"parameter {one.name!r}", got="positional-only", wanted=wanted, remedy=EXAMPLE)
    named = _by_keyword(function)
    if not _takes_all(function) and not set(named) & set(SEES):
        got, wanted = f"a function of ({', '.join(named)})", f"one with a parameter {' or '.join(SEES)}"
        return message("it", got=got, wanted=wanted, remedy=EXAMPLE)
    absent = [one.name for one in needed if one.name in named and one.name not in (*GIVEN, *columns)]
    if columns and absent:
        wanted, remedy = f"one of {sorted({*columns} - {*GIVEN})}", "rename the parameter or the column"
        return message(f"parameter {absent[0]!r}", got="in no column", wanted=wanted, remedy=remedy)
    return ""


def _by_keyword(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in inspect.signature(function).parameters.values() if one.kind in kinds]


def _takes_all(function: Callable[..., Any]) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def scores(function: Callable[..., Any] | Unusable, arguments: Arguments, run: Run = asyncio.run) -> list[Score]:
    """Return the results of a reward function for each sample; `run` runs the coroutine of an async one.

    A function that cannot be called with these arguments gives each sample the reason.
    Raises: any exception of the function; StructureError, ShapeError for a result that is no list of as many numbers.

    >>> scores(lambda completions: [1, None, float("inf")], {"completions": ["a", "b", "c"], "level": [1, 1, 2]})
    [1.0, None, 'infinite, wanted a number or None']
    """
    count = len(arguments["completions"])
    wrong = call_fault(function, [*arguments])
    if wrong or isinstance(function, Unusable):
        return [wrong] * count
    named = [*arguments] if _takes_all(function) else [one for one in _by_keyword(function) if one in arguments]
    made = function(**{name: arguments[name] for name in named})
    return _numbers(run(_awaited(made)) if inspect.isawaitable(made) else made, count)


async def _awaited(made: Any) -> Any:
    return await made


@cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


def worker_scores(function: Callable[..., Any] | Unusable, arguments: Arguments) -> list[Score]:
    """Return `scores`, with coroutines run in the one event loop of this process: clients that a module holds stay usable."""
    return scores(function, arguments, lambda coroutine: _runner().run(coroutine))


def thread_scores(function: Callable[..., Any] | Unusable, arguments: Arguments) -> list[Score]:
    """Return `scores` of a copy of the arguments: a function that writes to them changes no row."""
    return scores(function, deepcopy(arguments))


def _numbers(made: Any, count: int) -> list[Score]:
    values = made.tolist() if hasattr(made, "tolist") else made  # of an array or tensor
    if not isinstance(values, list | tuple):
        got, remedy = type(made).__name__, "return one for each completion"
        raise StructureError(message("its result", got=got, wanted="a list of numbers", remedy=remedy))
    if len(values) != count:
        got, wanted, remedy = f"{len(values)} numbers", f"{count}, one a completion", "None where none applies"
        raise ShapeError(message("its result", got=got, wanted=wanted, remedy=remedy))
    return [_number(one) for one in values]


def _number(value: Any) -> Score:
    if value is None:
        return None
    wrong = f"{type(value).__name__}, wanted a number or None"
    if isinstance(value, str | bytes):
        return wrong
    try:
        number = float(value)
    except (TypeError, ValueError):
        return wrong
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        return None
    return number if math.isfinite(number) else "infinite, wanted a number or None"

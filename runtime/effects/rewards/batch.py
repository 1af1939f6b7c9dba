"""Scores of a batch by one reward function, with what fails called again in smaller parts.

A call that raises, or returns no list of as many numbers, is made again for each sample alone; one that hangs or kills its
worker for each half, and so on. So a sample that a function fails at costs no other its score. All that is bounded: the calls
of a batch may fail for 12 time limits in all; then its other samples are not tried again.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from attrs import define, field, frozen

from ..tools.calls import RAISED, TIMED_OUT, Perform, Returned, ToolError, ToolFailure
from .function import Arguments, Score

FAILING = 12  # time limits


@frozen
class Caller:
    """A reward function and its way of being called: `perform` calls score(function, arguments), for at most `seconds`."""

    function: Any
    score: Callable[[Any, Arguments], list[Score]]
    perform: Perform
    seconds: float
    alone: bool = False  # one sample a call
    pieces: int = 1  # calls into which a batch is split evenly


@define
class _Attempts:
    """The calls of one batch, and the seconds of those that failed."""

    caller: Caller
    arguments: Arguments
    failing: list[float] = field(factory=list)
    last: ToolFailure = field(factory=lambda: ToolFailure(TIMED_OUT))

    def __call__(self, piece: tuple[int, ...]) -> list[Score] | ToolFailure:
        """Return the scores of some samples, or how their call failed."""
        caller, start = self.caller, time.monotonic()
        if sum(self.failing) >= FAILING * caller.seconds:
            return self.last
        given = {name: [column[index] for index in piece] for name, column in self.arguments.items()}
        try:
            made = caller.perform(caller.score, (caller.function, given), caller.seconds)
        except (
            ToolError,
            OSError,
        ) as error:  # too many calls hang, columns cannot be sent, or no worker can be started
            made = ToolFailure(RAISED, str(error))
        if isinstance(made, Returned):
            found: list[Score] = made.value
            return found
        self.failing.append(min(time.monotonic() - start, caller.seconds))
        self.last = made
        return made


def batch_scores(caller: Caller, arguments: Arguments, workers: int = 1) -> list[Score]:
    """Return the score of each sample: a number, None where the function does not apply, or an error in one line.

    `workers` calls are made at a time. With one piece the numbers are those of one call of the whole batch, if that succeeds.

    >>> def odd(completions):
    ...     return [1 // (int(text) % 2) for text in completions]
    >>> from ..tools.calls import in_threads
    >>> from .function import scores
    >>> batch_scores(Caller(odd, scores, in_threads(), 5.0), {"completions": ["1", "2", "3"]})
    [1.0, 'ZeroDivisionError: integer division or modulo by zero', 1.0]
    """
    count = len(arguments["completions"])
    attempt = _Attempts(caller, arguments)
    found = dict[int, Score]()
    pieces = [(index,) for index in range(count)] if caller.alone else _even(count, caller.pieces)
    with ThreadPoolExecutor(workers) as threads:
        while pieces:
            smaller = list[tuple[int, ...]]()
            for piece, made in zip(pieces, threads.map(attempt, pieces), strict=True):
                if not isinstance(made, ToolFailure):
                    found.update(zip(piece, made, strict=True))
                elif len(piece) == 1:
                    found[piece[0]] = _error(made, caller.seconds)
                else:
                    smaller += _smaller(piece, made.kind)
            pieces = smaller
    return [found[index] for index in range(count)]


def _even(count: int, pieces: int) -> list[tuple[int, ...]]:
    """Return the samples in so many pieces, none empty, whose sizes differ by one at most.

    >>> _even(5, 2), _even(2, 4), _even(0, 2)
    ([(0, 1), (2, 3, 4)], [(0,), (1,)], [])
    """
    cuts = [count * place // pieces for place in range(pieces + 1)]
    return [tuple(range(first, last)) for first, last in pairwise(cuts) if first < last]


def _smaller(piece: tuple[int, ...], kind: str) -> list[tuple[int, ...]]:
    if kind == RAISED:
        return [(index,) for index in piece]
    half = len(piece) // 2
    return [piece[:half], piece[half:]]


def _error(failure: ToolFailure, seconds: float) -> str:
    return f"no result within {seconds:g} s" if failure.kind == TIMED_OUT else failure.error

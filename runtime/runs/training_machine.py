"""Training as a pure machine that decides when to train, to report, to save and to stop.

One command is under way at any time, so that Ctrl-C falls between two of them: the current chunk is finished, saved, and
nothing else is begun. A state whose numbers are not finite is reported and never saved.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import evolve, frozen

from ...core.errors import ChoiceError, message
from ...core.machine import Command, Event, Failed, Interrupted, Machine, Stop

Row = Mapping[str, float]  # the numbers of one iteration; "finite" is 1 where parameters and rewards were


@frozen
class Loop:
    """Progress of a run. Every checkpoint holds it, and the machine needs nothing else to resume."""

    TAG: ClassVar[str] = "loop"
    iterations: int  # in the whole run
    chunk: int  # iterations in one call of the program; divides `iterations`
    every: int  # iterations between two checkpoints; a multiple of `chunk`
    iteration: int = 0  # iterations done
    saved: int = 0  # iterations done at the newest checkpoint
    diverged: int = 0  # the number, from 1, of the first iteration with numbers that are not finite; 0 for none
    interrupted: bool = False


@frozen
class TrainChunk:
    """Command: run this number of iterations."""

    TAG: ClassVar[str] = "train"
    iterations: int


@frozen
class Trained:
    """Event: the iterations are done, with a row of metrics for each."""

    TAG: ClassVar[str] = "trained"
    rows: tuple[Row, ...]


@frozen
class Log:
    """Command: report these rows."""

    TAG: ClassVar[str] = "log"
    rows: tuple[Row, ...]


@frozen
class Logged:
    """Event: the rows were reported."""

    TAG: ClassVar[str] = "logged"


@frozen
class Save:
    """Command: write a checkpoint from which a machine resumes with `loop`."""

    TAG: ClassVar[str] = "save"
    loop: Loop


@frozen
class Saved:
    """Event: the checkpoint of this iteration is on the disk."""

    TAG: ClassVar[str] = "saved"
    iteration: int


FINISHED, INTERRUPTED, DIVERGED = Stop("finished"), Stop("interrupted"), Stop("diverged")


def plan(iterations: int, checkpoints: int) -> Loop:
    """Return a run of at least this number of iterations, in chunks, with this number of checkpoints, evenly spread.

    A chunk is a twentieth of a short run and ten iterations of a long one; the run is rounded up to whole chunks. It depends
    on nothing else, so that a resumed run has the chunks of one that never stopped. A run of no iterations is its first state,
    saved. Raises: ChoiceError.

    >>> plan(977, 10)
    Loop(iterations=980, chunk=10, every=100, iteration=0, saved=0, diverged=0, interrupted=False)
    """
    if iterations < 0 or checkpoints < 1:
        got, wanted = (iterations, checkpoints), "at least (0, 1)"
        raise ChoiceError(message("plan: (iterations, checkpoints)", got=got, wanted=wanted, remedy="raise them"))
    if not iterations:
        return Loop(iterations=0, chunk=1, every=1, saved=-1)
    chunk = max(1, min(10, iterations // 20))
    chunks = math.ceil(iterations / chunk)
    return Loop(iterations=chunks * chunk, chunk=chunk, every=chunk * math.ceil(chunks / checkpoints))


def trainer_machine() -> Machine[Loop]:
    """Return the machine: Started, Trained, Logged, Saved, Interrupted and Failed in; Train, Log, Save and Stop out.

    A failed command gets no answer, so that the driver raises the handler's exception.

    >>> step = trainer_machine().step
    >>> step(Loop(iterations=2, chunk=1, every=2), Trained(({"finite": 1.0},)))[1]
    (Log(rows=({'finite': 1.0},)),)
    >>> step(Loop(iterations=2, chunk=1, every=2, iteration=1), Logged())[1]
    (TrainChunk(iterations=1),)
    """
    return Machine(_step)


def _step(loop: Loop, event: Event) -> tuple[Loop, tuple[Command, ...]]:
    if isinstance(event, Interrupted):
        return evolve(loop, interrupted=True), ()
    if isinstance(event, Failed):
        return loop, ()
    if isinstance(event, Trained):
        return _trained(loop, event.rows), (Log(event.rows),)
    if isinstance(event, Saved):
        loop = evolve(loop, saved=event.iteration)
    return loop, (_next(loop),)


def _trained(loop: Loop, rows: tuple[Any, ...]) -> Loop:
    faulty = [number for number, row in enumerate(rows, loop.iteration + 1) if row["finite"] != 1.0]
    return evolve(loop, iteration=loop.iteration + len(rows), diverged=faulty[0] if faulty else 0)


def _next(loop: Loop) -> Command:
    if loop.diverged:
        return DIVERGED
    finished = loop.iteration >= loop.iterations
    due = finished or loop.interrupted or loop.iteration % loop.every == 0
    if due and loop.iteration > loop.saved:
        return Save(evolve(loop, saved=loop.iteration, interrupted=False))
    if finished:
        return FINISHED
    return INTERRUPTED if loop.interrupted else TrainChunk(loop.chunk)

"""What the handlers of a training run share: the state, the program that moves it, and where its numbers go."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from attrs import define, field

from ...algorithms.algorithm import Metrics
from ..compile import Program
from ..effects.clock import seconds
from ..effects.folder import METRICS, TENSORBOARD
from ..effects.metrics import Sink, jsonl, stride, tensorboard, thin
from ..effects.progress import progress
from ..train import RunState
from .machine import Loop, Row, Train, Trained

Notice = Callable[[str], None]
Run = Callable[[RunState], tuple[RunState, Metrics]]


@define
class World:
    """What the handlers share: where the run stands, and what moves it on."""

    state: RunState
    run: Run
    steps: int  # in the environment, for each iteration
    ready: list[tuple[RunState, Metrics]] = field(factory=list)  # the next chunk, when it is done already
    seconds: float = 0.0  # spent in `run`
    trained: int = 0  # iterations

    def compile_seconds(self) -> float:
        """What compiling, or loading what was compiled before, has taken."""
        return sum(self.run.seconds) if isinstance(self.run, Program) else 0.0

    def warm(self, notice: Notice) -> None:
        """Does the first chunk, and with it what only a first call has to do."""
        if isinstance(self.run, Program):
            known = self.run.artefact is not None and self.run.artefact.exists()
            notice("loading the compiled program" if known else "compiling the program, once for these arguments ...")
        self.ready.append(self._timed())
        if isinstance(self.run, Program):
            self.run.settle()

    def train(self, command: Train) -> Trained:
        """Does a chunk: the handler of `Train`."""
        done = int(self.state.env_steps) // self.steps
        self.state, metrics = self.ready.pop() if self.ready else self._timed()
        self.trained += command.iterations
        return Trained(tuple(rows_of(metrics, done, self.steps)))

    def _timed(self) -> tuple[RunState, Metrics]:
        begin = seconds()
        result = self.run(self.state)
        self.seconds += seconds() - begin
        return result


def rows_of(metrics: Metrics, done: int, steps: int) -> Iterator[dict[str, float]]:
    """A row for each iteration of a chunk, each metric [chunk], `done` iterations of `steps` steps having gone before.

    episode_return and episode_length are means over the episodes that ended in the iteration, NaN where none did.

    >>> metrics = {"episodes": torch.tensor([2.0]), "return_sum": torch.tensor([5.0]), "length_sum": torch.tensor([6.0])}
    >>> next(rows_of(metrics, 3, 100))
    {'iteration': 4.0, 'steps': 400.0, 'episodes': 2.0, 'episode_return': 2.5, 'episode_length': 3.0}
    """
    names = list(metrics)
    for number, numbers in enumerate(torch.stack([metrics[name] for name in names], -1).tolist(), done + 1):
        row = dict(zip(names, numbers, strict=True))
        episodes, returns, lengths = (row.pop(name) for name in ("episodes", "return_sum", "length_sum"))
        yield {
            "iteration": float(number),
            "steps": float(number * steps),
            "episodes": episodes,
            "episode_return": returns / episodes if episodes else math.nan,
            "episode_length": lengths / episodes if episodes else math.nan,
            **row,
        }


@contextmanager
def sinks(run: Path, loop: Loop, steps: int) -> Iterator[list[Sink]]:
    """The metrics file, TensorBoard and the progress display of a run that goes on from `loop`."""
    with ExitStack() as stack:
        file = stack.enter_context(jsonl(run / METRICS))
        board = stack.enter_context(tensorboard(run / TENSORBOARD, resumed_at=loop.iteration * steps))
        bar = stack.enter_context(progress(loop.iterations * steps, show=("episode_return",)))
        every = stride(loop.iterations)
        yield [thin(file, every), thin(finite_part(board), every), remembering(bar, "episode_return")]


def finite_part(sink: Sink) -> Sink:
    """Leaves out the numbers that no curve can show.

    >>> finite_part(print)({"steps": 1.0, "episode_return": math.nan})
    {'steps': 1.0}
    """
    return lambda row: sink({name: value for name, value in row.items() if math.isfinite(value)})


def remembering(sink: Sink, name: str) -> Sink:
    """Shows the last finite number of that name where a row has none.

    >>> sink = remembering(print, "r")
    >>> sink({"r": 2.0}); sink({"r": math.nan})
    {'r': 2.0}
    {'r': 2.0}
    """
    last: dict[str, float] = {}

    def write(row: Row) -> None:
        if math.isfinite(row[name]):
            last[name] = row[name]
        sink({**row, **last})

    return write

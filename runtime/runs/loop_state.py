"""A running compiled training loop: its state, and the program of its iterations."""

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from attrs import define, field

from ...algorithms.algorithm import Metrics
from ...core.tree import to_device
from ..compile import Program, phase
from ..diverged import Fault, first_fault
from ..effects.clock import seconds
from ..effects.reporting.progress import show_waiting
from ..files.cache_folder import remember_seconds, usual_seconds
from ..train import RunState, Trainer
from .logging import RETURN
from .recipe import Notice
from .training_machine import TrainChunk, Trained

UNKEPT = "this process, since the cache folder cannot be written (XDG_CACHE_HOME names another)"
Run = Callable[[RunState], tuple[RunState, Metrics]]
T = TypeVar("T")


@define
class LoopState:
    """State that the handlers share, and the program that advances it."""

    state: RunState
    run: Run
    steps: int  # in the environment, for each iteration
    ready: list[tuple[RunState, Metrics]] = field(factory=list)  # the next chunk, if it is done already
    seconds: float = 0.0  # spent in `run`
    trained: int = 0  # iterations
    before_fault: RunState | tuple[()] = ()  # the state before the chunk with an iteration that was not finite

    def compile_seconds(self) -> float:
        """Return the seconds of compiling, or of loading a compiled program."""
        return sum(self.run.seconds) if isinstance(self.run, Program) else 0.0

    def warm(self, notice: Notice) -> None:
        """Run the first chunk, and with it the compilation."""
        if isinstance(self.run, Program):
            self.ready.append(first_call(self.run, self._timed, notice, self.state.key.device))
        else:
            self.ready.append(self._timed())

    def train(self, command: TrainChunk) -> Trained:
        """Run a chunk: the handler of `Train`."""
        before, done = self.state, self.done(self.state)
        self.state, metrics = self.ready.pop() if self.ready else self._timed()
        self.trained += command.iterations
        rows = tuple(iteration_rows(metrics, done, self.steps))
        # A program with a replay buffer takes the memory of the state that it is given.
        if any(row["finite"] != 1.0 for row in rows) and not (isinstance(self.run, Program) and self.run.donate):
            self.before_fault = before
        return Trained(rows)

    def done(self, state: RunState) -> int:
        """Return the iterations of the run that led to this state."""
        return int(state.env_steps) // self.steps

    def fault(self, trainer: Trainer, iteration: int) -> Fault:
        """Return the first tensor that was not finite in this iteration of the run, by running its chunk again uncompiled."""
        if isinstance(self.before_fault, tuple):
            return Fault()
        return first_fault(trainer, self.before_fault, iteration - self.done(self.before_fault))

    def spent(self) -> tuple[str, ...]:
        """Return the seconds of compiling and of training, and the rate; () where nothing was left to train."""
        if not self.trained:
            return ()
        loaded = " (loaded from the cache)" if isinstance(self.run, Program) and self.run.loaded else ""
        compiling = self.compile_seconds()
        training = self.seconds - compiling
        rate = f"{self.trained * self.steps / training:,.0f} environment steps/s"
        return f"compile {compiling:.1f} s{loaded}", f"train {training:.1f} s", rate

    def _timed(self) -> tuple[RunState, Metrics]:
        begin = seconds()
        state, metrics = self.run(self.state)
        metrics = to_device(metrics, "cpu")  # waits for a GPU
        self.seconds += seconds() - begin
        return state, metrics


def first_call(
    run: Program[..., T], call: Callable[[], T], notice: Notice, device: torch.device, noun: str = "program"
) -> T:
    """Return the result of the call that compiles or loads a program, showing its phase, the seconds and those to expect."""
    known = run.artefact is not None and run.artefact.exists()
    cached = run.backend == "inductor" and device.type == "cpu"
    once = "these arguments" if run.artefact else UNKEPT if cached else "this process"
    notice(f"loading the compiled {noun}" if known else f"compiling the {noun}, once for {once} ...")
    name, begin = f"{run.name} on {device}", seconds()
    doing, usual = ("loading", 0.0) if known else ("compiling", usual_seconds(name))
    with show_waiting(doing, usual, phase=lambda thread: phase(thread) or "first iterations"):
        result = call()
    if not run.loaded:
        remember_seconds(name, seconds() - begin)
    run.settle()
    return result


def iteration_rows(metrics: Metrics, done: int, steps: int) -> Iterator[dict[str, float]]:
    """Yield a row for each iteration of a chunk, each metric [chunk], after `done` iterations of `steps` steps.

    episode_return and episode_length are means over the episodes that ended in the iteration, NaN where none did.

    >>> metrics = {"episodes": torch.tensor([2.0]), "return_sum": torch.tensor([5.0]), "length_sum": torch.tensor([6.0])}
    >>> next(iteration_rows(metrics, 3, 100))
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
            RETURN: returns / episodes if episodes else math.nan,
            "episode_length": lengths / episodes if episodes else math.nan,
            **row,
        }

"""Evaluation of a language model at a task: figures over finished attempts, with an interval. Nothing here trains."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from ...core import keys
from ...core.errors import StructureError, message
from ...core.intervals import wilson as wilson
from ...core.language.episode import total_reward
from ...core.language.requests import Draw, Request, drawn_keys, requests, task_keys
from ...core.language.rollout import ModelTurn, Rollout
from ...core.language.task import EVALUATION, TextTask
from .columns import figure_of, label_of, shares

ACCURACY = "accuracy"  # the figure, 0 or 1, that gets an interval
LOW, HIGH = "accuracy_low", "accuracy_high"
Sample = Callable[[Sequence[Request]], Sequence[Rollout[Any]]]


@frozen(kw_only=True)
class EvaluationResult:
    """Result of an evaluation; shares and means are over all attempts."""

    attempts: int
    reward: float
    turns: float  # model calls
    tokens: float  # sampled by the model
    figures: dict[str, float]  # the task's own, by name; accuracy is followed by the bounds of its 95 % interval
    modes: dict[str, float]  # share of each of the task's labels

    @property
    def accuracy(self) -> float:
        """Return the share of successful attempts, NaN where the task does not define success."""
        return self.figures.get(ACCURACY, math.nan)

    @property
    def accuracy_low(self) -> float:
        """Return the lower bound of the accuracy's 95 % interval."""
        return self.figures.get(LOW, math.nan)

    @property
    def accuracy_high(self) -> float:
        """Return the upper bound of the accuracy's 95 % interval."""
        return self.figures.get(HIGH, math.nan)

    def line(self) -> str:
        """Return the result as one line of text.

        >>> EvaluationResult(attempts=2, reward=0.5, turns=3.0, tokens=9.0, figures={}, modes={}).line()
        'reward 0.500 of 2 tasks, 3.00 turns'
        """
        parts = [f"reward {self.reward:.3f} of {self.attempts} tasks"]
        if ACCURACY in self.figures:
            interval = f"[{self.figures[LOW]:.3f}, {self.figures[HIGH]:.3f}]"
            parts = [f"accuracy {self.accuracy:.3f} {interval} of {self.attempts} tasks", f"reward {self.reward:.3f}"]
        return ", ".join([*parts, f"{self.turns:.2f} turns"])

    def described(self) -> dict[str, Any]:
        """Return the result as JSON values, its figures flat; the inverse of `read_evaluation_result`."""
        held = asdict(self)
        return {**held.pop("figures"), **held}


OWN = ("attempts", "reward", "turns", "tokens", "modes")  # of any task


def read_evaluation_result(held: Any, where: str) -> EvaluationResult:
    """Return the standing that `described` wrote. Raises: StructureError.

    >>> one = EvaluationResult(attempts=2, reward=0.5, turns=3.0, tokens=9.0, figures={"blocks": 2.0}, modes={"max_steps": 1.0})
    >>> read_evaluation_result(one.described(), "evaluation.json") == one
    True
    """
    given: dict[str, Any] = held if isinstance(held, dict) else {}
    modes, numbers = given.get("modes"), {name: value for name, value in given.items() if name != "modes"}
    known = isinstance(modes, dict) and set(OWN) <= given.keys() and type(given["attempts"]) is int
    if not known or not all(type(value) in (int, float) for value in (*numbers.values(), *dict(modes or {}).values())):
        remedy = "bring back the file as it was"
        raise StructureError(message(where, got="no evaluation", wanted=f"numbers for {OWN}", remedy=remedy))
    figures = {name: value for name, value in numbers.items() if name not in OWN}
    return EvaluationResult(
        figures=figures, modes=dict(modes or {}), **{name: given[name] for name in OWN if name != "modes"}
    )


def evaluation_result(task: TextTask, attempts: Sequence[Rollout[Any]], *, diagnosed: bool = False) -> EvaluationResult:
    """Return the result of attempts at a task; `diagnosed` adds the task's diagnostics."""
    number = max(1, len(attempts))
    labels = [label_of(task, attempt) for attempt in attempts]
    asked = {**task.figures, **(task.diagnostics if diagnosed else {})}
    means = {
        name: sum(figure_of(task, name, figure, attempt) for attempt in attempts) / number
        for name, figure in asked.items()
    }
    if ACCURACY in means:
        low, high = wilson(round(means[ACCURACY] * number), len(attempts))
        means |= {LOW: low, HIGH: high}
    said = [[piece.said for piece in attempt.pieces if isinstance(piece, ModelTurn)] for attempt in attempts]
    return EvaluationResult(
        attempts=len(attempts),
        reward=sum(total_reward(attempt.episode) for attempt in attempts) / number,
        turns=sum(map(len, said)) / number,
        tokens=sum(len(one.ids) for calls in said for one in calls) / number,
        figures=means,
        modes=shares(task, labels),
    )


def held_out(number: int, seed: int, *, first: int = 0, draw: Draw | tuple[()] = ()) -> tuple[Request, ...]:
    """Return requests for tasks of the evaluation stream, which training never draws from, from task `first` on.

    They are drawn at random, or by `draw`.

    >>> held_out(2, 0)[0].task[0] % 2, held_out(1, 0, first=1) == held_out(2, 0)[1:]
    (1, True)
    """
    tasks, samples = keys.split(keys.key(seed))
    if isinstance(draw, tuple):
        drawn = task_keys(tasks, EVALUATION, number, first=first)
    else:
        drawn = drawn_keys(draw, tasks, EVALUATION, number, first)
    return requests(drawn, samples, first=first)


def evaluated(task: TextTask, sample: Sample, number: int, seed: int) -> EvaluationResult:
    """Return the result of sampling on held-out tasks."""
    return evaluation_result(task, sample(held_out(number, seed, draw=task.draw)), diagnosed=True)


def rows(one: EvaluationResult) -> dict[str, str]:
    """Return the figures of a standing as text, by their names in a table."""
    shown = {"tasks": f"{one.attempts}"}
    for name, value in one.figures.items():
        if name == ACCURACY:
            shown |= {name: f"{value:.3f}", "  95 % interval": f"{one.figures[LOW]:.3f}-{one.figures[HIGH]:.3f}"}
        elif name not in (LOW, HIGH):
            shown[name.replace("_", " ")] = f"{value:.3f}"
    shown |= {"reward": f"{one.reward:.3f}", "turns": f"{one.turns:.2f}", "tokens said": f"{one.tokens:.1f}"}
    return shown | {f"ended as {mode}": f"{share:.3f}" for mode, share in one.modes.items()}


def table(columns: Mapping[str, EvaluationResult]) -> str:
    """Return standings side by side as text, a row for each figure.

    >>> print(table({"before": EvaluationResult(attempts=2, reward=0.5, turns=3.0, tokens=9.0, figures={}, modes={})}))
                                   before
    tasks                               2
    reward                          0.500
    turns                            3.00
    tokens said                       9.0
    """
    widths = [max(len(name), 11) for name in columns]
    head = " " * 24 + "".join(f"  {name:>{width}}" for name, width in zip(columns, widths, strict=True))
    cells = [rows(one) for one in columns.values()]
    lines = [
        f"{name:24}" + "".join(f"  {each.get(name, ''):>{width}}" for each, width in zip(cells, widths, strict=True))
        for name in dict.fromkeys(name for each in cells for name in each)
    ]
    return "\n".join([head.rstrip(), *lines])

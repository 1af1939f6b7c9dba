"""Evaluation of a language model at a task: figures over finished attempts, with intervals. Nothing here trains."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from attrs import asdict, frozen

from ...core import keys
from ...core.errors import StructureError, message
from ...core.intervals import mean_interval, wilson_of_groups
from ...core.intervals import wilson as wilson
from ...core.language.episode import total_reward
from ...core.language.pass_at_k import mean_pass_at_k, shown_ks
from ...core.language.requests import Draw, Request, drawn_keys, expand, requests, task_keys
from ...core.language.task import EVALUATION, TextTask
from ...core.language.types import ModelTurn, Rollout
from .columns import PASS, figure_of, label_of, shares

ACCURACY = "accuracy"  # the figure, 0 or 1, that gets an interval
LOW, HIGH = "accuracy_low", "accuracy_high"
REWARD_LOW, REWARD_HIGH = "reward_low", "reward_high"
MEDIAN, LONGEST = "tokens_median", "tokens_longest"
ZERO_SPREAD = "zero_spread"
GENERAL = {LOW, HIGH, REWARD_LOW, REWARD_HIGH, MEDIAN, LONGEST, ZERO_SPREAD}  # figures of any task, besides pass@k
Sample = Callable[[Sequence[Request]], Sequence[Rollout[Any]]]


@frozen(kw_only=True)
class EvaluationResult:
    """Result of an evaluation; shares and means are over all attempts.

    `figures` are the task's own, by name, with the 95 % interval of its accuracy; further the interval of the mean reward,
    tokens_median and tokens_longest of an attempt, and, of several attempts at each task, pass@k and zero_spread: the share of
    tasks whose attempts all earned the same.
    """

    attempts: int
    samples: int = 1  # attempts at each task
    reward: float
    turns: float  # model calls
    tokens: float  # sampled by the model
    figures: dict[str, float]
    modes: dict[str, float]  # share of each of the task's labels

    @property
    def tasks(self) -> int:
        """Return the number of tasks."""
        return self.attempts // self.samples

    @property
    def accuracy(self) -> float:
        """Return the share of successful attempts, pass@1; NaN where the task does not define success."""
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
        of = f" of {self.tasks} tasks" + (f" with {self.samples} attempts each" if self.samples > 1 else "")
        parts = [f"reward {self.reward:.3f}{self._interval(REWARD_LOW, REWARD_HIGH)}"]
        if ACCURACY in self.figures:
            most = [f"{PASS}{k} {self.figures[f'{PASS}{k}']:.3f}" for k in shown_ks(self.samples)[-1:] if k > 1]
            parts = [f"accuracy {self.accuracy:.3f}{self._interval(LOW, HIGH)}", *most, *parts]
        return ", ".join([parts[0] + of, *parts[1:], f"{self.turns:.2f} turns"])

    def brief(self) -> str:
        """Return the accuracy, or the mean reward where the task has none.

        >>> EvaluationResult(attempts=2, reward=0.5, turns=3.0, tokens=9.0, figures={}, modes={}).brief()
        'reward 0.500'
        """
        return f"accuracy {self.accuracy:.3f}" if ACCURACY in self.figures else f"reward {self.reward:.3f}"

    def _interval(self, low: str, high: str) -> str:
        return f" [{self.figures[low]:.3f}, {self.figures[high]:.3f}]" if low in self.figures else ""

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
    given: dict[str, Any] = {"samples": 1, **(held if isinstance(held, dict) else {})}
    modes, numbers = given.get("modes"), {name: value for name, value in given.items() if name != "modes"}
    known = isinstance(modes, dict) and set(OWN) <= given.keys()
    whole = known and type(given["attempts"]) is int and type(given["samples"]) is int and given["samples"] > 0
    if not whole or not all(type(value) in (int, float) for value in (*numbers.values(), *dict(modes or {}).values())):
        remedy = "bring back the file as it was"
        raise StructureError(message(where, got="no evaluation", wanted=f"numbers for {OWN}", remedy=remedy))
    fields = ("samples", *OWN)
    figures = {name: value for name, value in numbers.items() if name not in fields}
    return EvaluationResult(
        figures=figures, modes=dict(modes or {}), **{name: given[name] for name in fields if name != "modes"}
    )


def evaluation_result(task: TextTask, attempts: Sequence[Rollout[Any]], *, diagnosed: bool = False) -> EvaluationResult:
    """Return the result of attempts at a task; `diagnosed` adds the task's diagnostics."""
    number = max(1, len(attempts))
    labels = [label_of(task, attempt) for attempt in attempts]
    asked = {**task.figures, **(task.diagnostics if diagnosed else {})}
    values = {name: [figure_of(task, name, figure, attempt) for attempt in attempts] for name, figure in asked.items()}
    groups = dict[int, list[int]]()
    for place, attempt in enumerate(attempts):
        groups.setdefault(attempt.rollout.request.group, []).append(place)
    rewards = [total_reward(attempt.episode) for attempt in attempts]
    by_task = [[rewards[place] for place in places] for places in groups.values()]
    right = [
        round(sum(values[ACCURACY][place] for place in places)) for places in groups.values() if ACCURACY in values
    ]
    said = [[piece.said for piece in attempt.pieces if isinstance(piece, ModelTurn)] for attempt in attempts]
    tokens = [sum(len(one.ids) for one in calls) for calls in said]
    lengths = {MEDIAN: float(median(tokens)), LONGEST: float(max(tokens))} if tokens else {}
    return EvaluationResult(
        attempts=len(attempts),
        samples=min(map(len, groups.values()), default=1),
        reward=sum(rewards) / number,
        turns=sum(map(len, said)) / number,
        tokens=sum(tokens) / number,
        figures={**{name: sum(each) / number for name, each in values.items()}, **of_tasks(by_task, right), **lengths},
        modes=shares(task, labels),
    )


def of_tasks(rewards: Sequence[Sequence[float]], right: Sequence[int] = ()) -> dict[str, float]:
    """Return the figures of tasks with equally many attempts each: from their rewards, and the number of right ones of each.

    They are intervals of 95 %, with the task as the unit, since attempts at one depend on each other; and of several attempts
    zero_spread and pass@k. Of fewer attempts at some tasks than at others there are intervals alone.

    >>> found = of_tasks([[1.0, 0.0], [0.0, 0.0]], [1, 0])
    >>> found["pass@1"], found["pass@2"], found["zero_spread"]
    (0.25, 0.5, 0.5)
    """
    bounds = mean_interval([sum(each) / len(each) for each in rewards])
    found: dict[str, float] = dict(zip((REWARD_LOW, REWARD_HIGH), bounds, strict=False))
    sizes = {len(each) for each in rewards}
    if len(sizes) != 1:
        return found
    (size,) = sizes
    if right:
        found |= dict(zip((LOW, HIGH), wilson_of_groups(right, size), strict=True))
    if size == 1:
        return found
    found |= {f"{PASS}{k}": mean_pass_at_k(right, size, k) for k in shown_ks(size) if right}
    return found | {ZERO_SPREAD: sum(len(set(each)) == 1 for each in rewards) / len(rewards)}


def held_out(
    number: int, seed: int, *, first: int = 0, draw: Draw | tuple[()] = (), attempts: int = 1
) -> tuple[Request, ...]:
    """Return requests for tasks of the evaluation stream, which training never draws from, from task `first` on.

    They are drawn at random, or by `draw`; several attempts at a task are a group.

    >>> held_out(2, 0)[0].task[0] % 2, held_out(1, 0, first=1) == held_out(2, 0)[1:]
    (1, True)
    >>> [(one.id, one.group) for one in held_out(2, 0, attempts=2)]
    [(0, 0), (1, 0), (2, 1), (3, 1)]
    """
    tasks, samples = keys.split(keys.key(seed))
    if isinstance(draw, tuple):
        drawn = task_keys(tasks, EVALUATION, number, first=first)
    else:
        drawn = drawn_keys(draw, tasks, EVALUATION, number, first)
    each = requests(drawn, samples, first=first)
    return each if attempts == 1 else tuple(one for request in each for one in expand(request, attempts, samples))


def evaluate_task(task: TextTask, sample: Sample, number: int, seed: int, attempts: int = 1) -> EvaluationResult:
    """Return the result of sampling on held-out tasks, with so many attempts at each."""
    return evaluation_result(task, sample(held_out(number, seed, draw=task.draw, attempts=attempts)), diagnosed=True)


def figure_rows(one: EvaluationResult) -> dict[str, str]:
    """Return the figures of a standing as text, by their names in a table."""
    shown = {"tasks": f"{one.tasks}"} | ({"attempts at each": f"{one.samples}"} if one.samples > 1 else {})
    passes = {name: f"{value:.3f}" for name, value in one.figures.items() if name.startswith(PASS)}
    for name, value in one.figures.items():
        if name == ACCURACY:
            bounds = {"  95 % interval": _interval(one.figures[LOW], one.figures[HIGH])} if LOW in one.figures else {}
            shown |= {name: f"{value:.3f}", **bounds, **passes}
        elif name not in GENERAL and not name.startswith(PASS):
            shown[name.replace("_", " ")] = f"{value:.3f}"
    shown["reward"] = f"{one.reward:.3f}"
    if REWARD_LOW in one.figures:
        shown["  its 95 % interval"] = _interval(one.figures[REWARD_LOW], one.figures[REWARD_HIGH])
    if ZERO_SPREAD in one.figures:
        shown["tasks of equal rewards"] = f"{one.figures[ZERO_SPREAD]:.3f}"
    shown |= {"turns": f"{one.turns:.2f}", "tokens said": f"{one.tokens:.1f}"}
    lengths = {"  median": MEDIAN, "  longest": LONGEST}
    shown |= {row: f"{one.figures[name]:.1f}" for row, name in lengths.items() if name in one.figures}
    return shown | {f"ended as {mode}": f"{share:.3f}" for mode, share in one.modes.items()}


def _interval(low: float, high: float) -> str:
    return f"{low:.3f}-{high:.3f}" if low >= 0 else f"{low:.3f} to {high:.3f}"


def figure_table(columns: Mapping[str, EvaluationResult]) -> str:
    """Return standings side by side as text, a row for each figure.

    >>> print(figure_table({"before": EvaluationResult(attempts=2, reward=0.5, turns=3.0, tokens=9.0, figures={}, modes={})}))
                                   before
    tasks                               2
    reward                          0.500
    turns                            3.00
    tokens said                       9.0
    """
    cells = [figure_rows(one) for one in columns.values()]
    widths = [max(11, len(name), *map(len, each.values())) for name, each in zip(columns, cells, strict=True)]
    head = " " * 24 + "".join(f"  {name:>{width}}" for name, width in zip(columns, widths, strict=True))
    lines = [
        f"{name:24}" + "".join(f"  {each.get(name, ''):>{width}}" for each, width in zip(cells, widths, strict=True))
        for name in dict.fromkeys(name for each in cells for name in each)
    ]
    return "\n".join([head.rstrip(), *map(str.rstrip, lines)])

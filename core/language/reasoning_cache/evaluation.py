"""Evaluation of runs of cycles, per cycle: accuracy with intervals, content of summaries, tokens; as a line and a table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from ...errors import PurestepError, StructureError, message
from ...intervals import wilson
from ..evaluation import Curve
from ..list_reduction.tasks import carried, read_list
from .cycles import Cycles
from .rollouts import Reward, accuracy_by_cycle, answers_problem
from .state import InferenceProblemState

NAMES = ("evaluation_first", "evaluation_trained", "evaluation_last")  # accuracy at T = 1, training T, last T
COLUMNS = ("accuracy", "accuracy_low", "accuracy_high", "carried", "tokens")
Share = Callable[[InferenceProblemState, int], float]  # (run, turn) -> share of the problem that its summary covers


@frozen(kw_only=True)
class CyclesResult:
    """Evaluation result of runs of cycles; entry T - 1 of each tuple is for cycle T."""

    problems: int
    accuracy: tuple[float, ...]  # share of runs whose reasoning step gives the right answer
    accuracy_low: tuple[float, ...]  # of the 95 % interval
    accuracy_high: tuple[float, ...]
    carried: tuple[float, ...]  # mean share of the list that the summary covers correctly; () if unknown
    tokens: tuple[float, ...]  # mean tokens sampled up to this cycle, of both turn types

    def line(self, trained_on: int) -> str:
        """Return the result in one line, for a model trained on `trained_on` cycles.

        >>> interval = {"accuracy_low": (0.2,), "accuracy_high": (0.8,)}
        >>> one = CyclesResult(problems=4, accuracy=(0.5,), **interval, carried=(1.0,), tokens=(9.0,))
        >>> one.line(3)
        'accuracy 0.500 [0.200, 0.800] at T = 1, of 4 problems'
        """
        shown = [t for t in range(1, len(self.accuracy) + 1) if t in (1, trained_on, len(self.accuracy))]
        return f"accuracy {', '.join(map(self._at, shown))}, of {self.problems} problems"

    def _at(self, cycle: int) -> str:
        low, high = self.accuracy_low[cycle - 1], self.accuracy_high[cycle - 1]
        return f"{self.accuracy[cycle - 1]:.3f} [{low:.3f}, {high:.3f}] at T = {cycle}"

    def figures(self, trained_on: int) -> dict[str, float]:
        """Return the metrics in `NAMES`, for a model trained on `trained_on` cycles."""
        trained = min(trained_on, len(self.accuracy))
        return dict(zip(NAMES, (self.accuracy[0], self.accuracy[trained - 1], self.accuracy[-1]), strict=True))

    def curve(self) -> Curve:
        """Return accuracy over cycles, for a plot."""
        return Curve(mean=self.accuracy, low=self.accuracy_low, high=self.accuracy_high)

    def described(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


def list_share(state: InferenceProblemState, turn: int) -> float:
    """Return the share of a list that the summary of a turn covers correctly.

    >>> from .state import Problem
    >>> problem = Problem(problem_id="0", problem_text="Add: a3 b4", answer="7")
    >>> list_share(InferenceProblemState(problem=problem, summarization_string_store=("a 3",)), 0)
    0.5
    """
    task = read_list(state.problem.problem_text)
    return carried(task, state.summarization_string_store[turn]) / len(task.numbers)


def cycles_result(
    states: Sequence[InferenceProblemState], *, correct: Reward = answers_problem, share: Share | tuple[()] = list_share
) -> CyclesResult:
    """Return the evaluation result of finished runs; with `share=()` the content of summaries is not evaluated.

    >>> from .state import Problem
    >>> problem = Problem(problem_id="0", problem_text="2 + 3?", answer="5")
    >>> run = InferenceProblemState(problem=problem, reasoning_string_complete_store=("hm", "[ANSWER] 5"))
    >>> cycles_result([run], share=()).accuracy
    (0.0, 1.0)
    """
    accuracy = accuracy_by_cycle(states, correct)
    bounds = [wilson(round(value * len(states)), len(states)) for value in accuracy]
    turns = range(len(accuracy))
    return CyclesResult(
        problems=len(states),
        accuracy=accuracy,
        accuracy_low=tuple(low for low, _ in bounds),
        accuracy_high=tuple(high for _, high in bounds),
        carried=()
        if isinstance(share, tuple)
        else tuple(_mean([share(one, turn) for one in states]) for turn in turns),
        tokens=tuple(_mean([_tokens(state, turn) for state in states]) for turn in turns),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _tokens(state: InferenceProblemState, turn: int) -> float:
    results = (*state.reasoning_rollout_store[: turn + 1], *state.summarization_rollout_store[: turn + 1])
    said = [text.said for result in results for text in result.training_texts]
    return float(sum(0 if isinstance(one, tuple) else len(one.ids) for one in said))


def finished_runs(cycles: Cycles) -> tuple[InferenceProblemState, ...]:
    """Return the runs of an evaluation. Raises: PurestepError if some failed for good: the others would be a biased sample.

    >>> from .events import CacheState
    >>> finished_runs(Cycles(number=0, count=0, key=(0, 0), problems=(), schedule=CacheState()))
    ()
    """
    every = [one for result in cycles.found for one in result.attempts]
    failed = [one.failed for one in every if one.failed]
    if failed:
        where, wanted = "evaluation: runs of cycles", "all of them at their end"
        got, remedy = f"{len(failed)} of {len(every)} given up ({failed[0]})", "try again when the model answers"
        raise PurestepError(message(where, got=got, wanted=wanted, remedy=remedy))
    return tuple(one.state for one in every)


def cycle_table(columns: Mapping[str, CyclesResult]) -> str:
    """Return a table of accuracy after each cycle, with its interval, and the share of the list that summaries cover.

    >>> interval = {"accuracy_low": (0.15,), "accuracy_high": (0.85,)}
    >>> one = CyclesResult(problems=4, accuracy=(0.5,), **interval, carried=(0.75,), tokens=(9.0,))
    >>> print(cycle_table({"before": one}))
    cycles  before               carried  tokens
         1  0.500 [0.150,0.850]   0.750       9
    """
    widths = {name: max(len(name), 19) for name in columns}
    head = "cycles  " + "  ".join(f"{name:{widths[name]}}  carried  tokens" for name in columns)
    longest = max((len(one.accuracy) for one in columns.values()), default=0)
    rows = [
        f"{cycle + 1:6}  " + "  ".join(_cell(one, cycle, widths[name]) for name, one in columns.items())
        for cycle in range(longest)
    ]
    return "\n".join([head, *rows])


def _cell(one: CyclesResult, cycle: int, width: int) -> str:
    if cycle >= len(one.accuracy):
        return " " * (width + 17)
    interval = f"{one.accuracy[cycle]:.3f} [{one.accuracy_low[cycle]:.3f},{one.accuracy_high[cycle]:.3f}]"
    share = f"{one.carried[cycle]:6.3f}" if one.carried else f"{'-':>6}"
    return f"{interval:{width}}  {share}  {one.tokens[cycle]:6.0f}"


def read_cycles_result(held: Any, where: str) -> CyclesResult:
    """Return the evaluation result that `described` wrote. Raises: StructureError.

    >>> interval = {"accuracy_low": (0.15,), "accuracy_high": (0.85,)}
    >>> one = CyclesResult(problems=4, accuracy=(0.5,), **interval, carried=(0.75,), tokens=(9.0,))
    >>> read_cycles_result(one.described(), "evaluation.json") == one
    True
    """
    given: dict[str, Any] = held if isinstance(held, dict) else {}
    found = {name: given.get(name) for name in COLUMNS}
    lists = {name: one for name, one in found.items() if isinstance(one, list | tuple) and all(map(_number, one))}
    whole = len(lists) == len(COLUMNS) and type(given.get("problems")) is int
    if not whole:
        remedy, wanted = "bring back the file as it was", f"numbers for ('problems', {str(COLUMNS)[1:]}"
        raise StructureError(message(where, got="no evaluation", wanted=wanted, remedy=remedy))
    lengths = [len(one) for name, one in lists.items() if one or name != "carried"]
    if len(set(lengths)) > 1 or not lengths[0]:
        remedy = "it was damaged"
        raise StructureError(
            message(where, got=f"of {lengths} cycles", wanted="one number for each cycle", remedy=remedy)
        )
    numbers: dict[str, Any] = {name: tuple(map(float, one)) for name, one in lists.items()}
    return CyclesResult(problems=given["problems"], **numbers)


def _number(value: Any) -> bool:
    return type(value) in (int, float)

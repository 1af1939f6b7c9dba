"""How runs of cycles went, cycle by cycle: accuracy with intervals, what summaries carry, tokens; and the problems."""

from collections.abc import Sequence
from typing import Any

from attrs import asdict, frozen

from ...core import keys
from ...core.language.reasoning_lists import Lists
from ...core.language.reasoning_rollouts import accuracy_by_cycle
from ...core.language.reasoning_state import InferenceProblemState, Problem
from ...core.language.reasoning_tasks import carried, list_problem, list_task, read_list
from ...core.language.requests import key_of, task_keys
from ..language.evaluate import wilson


@frozen(kw_only=True)
class Standing:
    """How runs of cycles went; number T - 1 of each tuple is about cycle T."""

    problems: int
    accuracy: tuple[float, ...]  # share whose step of reasoning gives the right answer
    accuracy_low: tuple[float, ...]  # of the 95 % interval
    accuracy_high: tuple[float, ...]
    carried: tuple[float, ...]  # mean share of the list that the summary rightly accounts for
    tokens: tuple[float, ...]  # said by then, of both kinds

    def line(self, trained_on: int) -> str:
        """It in one line, for a model that was trained on so many cycles.

        >>> interval = {"accuracy_low": (0.2,), "accuracy_high": (0.8,)}
        >>> one = Standing(problems=4, accuracy=(0.5,), **interval, carried=(1.0,), tokens=(9.0,))
        >>> one.line(3)
        'accuracy 0.500 [0.200, 0.800] at T = 1, of 4 problems'
        """
        shown = [t for t in range(1, len(self.accuracy) + 1) if t in (1, trained_on, len(self.accuracy))]
        return f"accuracy {', '.join(map(self._at, shown))}, of {self.problems} problems"

    def _at(self, cycle: int) -> str:
        low, high = self.accuracy_low[cycle - 1], self.accuracy_high[cycle - 1]
        return f"{self.accuracy[cycle - 1]:.3f} [{low:.3f}, {high:.3f}] at T = {cycle}"

    def described(self) -> dict[str, Any]:
        """It as JSON has words for."""
        return asdict(self)


def standing(states: Sequence[InferenceProblemState]) -> Standing:
    """How runs that made all their cycles went."""
    accuracy = accuracy_by_cycle(states)
    bounds = [wilson(round(share * len(states)), len(states)) for share in accuracy]
    return Standing(
        problems=len(states),
        accuracy=accuracy,
        accuracy_low=tuple(low for low, _ in bounds),
        accuracy_high=tuple(high for _, high in bounds),
        carried=tuple(_mean([_share(state, turn) for state in states]) for turn in range(len(accuracy))),
        tokens=tuple(_mean([_tokens(state, turn) for state in states]) for turn in range(len(accuracy))),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _share(state: InferenceProblemState, turn: int) -> float:
    task = read_list(state.problem.problem_text)
    return carried(task, state.summarization_string_store[turn]) / len(task.numbers)


def _tokens(state: InferenceProblemState, turn: int) -> float:
    results = (*state.reasoning_rollout_store[: turn + 1], *state.summarization_rollout_store[: turn + 1])
    said = [text.said for result in results for text in result.training_texts]
    return float(sum(0 if isinstance(one, tuple) else len(one.ids) for one in said))


def problems_of(lists: Lists, stream: str, seed: int, number: int, *, first: int = 0) -> tuple[Problem, ...]:
    """So many problems of a stream, from number `first` on.

    >>> one, other = (problems_of(Lists(), stream, 0, 1) for stream in ("training", "evaluation"))
    >>> one == other, problems_of(Lists(), "training", 0, 2)[:1] == one
    (False, True)
    """
    named = task_keys(keys.key(seed), stream, number, first=first)
    return tuple(list_problem(list_task(lists, key_of(words))) for words in named)

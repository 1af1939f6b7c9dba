"""What a language model is worth in a zorplex world: counts over ended attempts, with intervals. Nothing here trains."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from attrs import asdict, frozen

from ...core import keys
from ...core.language.attempt import Attempt, Heard
from ...core.language.diagnosis import FAILURE_MODES, SUCCESS, failure_mode, meant
from ...core.language.episode import total_reward
from ...core.language.requests import Request, requests, task_keys

Z = 1.959963984540054  # of 95 %
Sample = Callable[[Sequence[Request]], Sequence[Attempt[Any]]]


@frozen(kw_only=True)
class Standing:
    """How attempts went; shares and means are over all of them."""

    attempts: int
    accuracy: float
    accuracy_low: float  # of the 95 % interval
    accuracy_high: float
    format: float  # share that ended with an answer
    meant: float  # share whose text means the right answer, read leniently
    reward: float
    turns: float  # model calls
    tool_calls: float
    tokens: float  # that the model said
    modes: dict[str, float]  # share of each way to end

    def line(self) -> str:
        """It in one line.

        >>> standing(()).line()
        'accuracy 0.000 [0.000, 1.000] of 0 tasks, format 0.000, 0.00 turns, 0.00 tool calls'
        """
        interval = f"[{self.accuracy_low:.3f}, {self.accuracy_high:.3f}]"
        held = f"accuracy {self.accuracy:.3f} {interval} of {self.attempts} tasks"
        return f"{held}, format {self.format:.3f}, {self.turns:.2f} turns, {self.tool_calls:.2f} tool calls"

    def described(self) -> dict[str, Any]:
        """It as JSON has words for."""
        return asdict(self)


def wilson(successes: int, attempts: int) -> tuple[float, float]:
    """The 95 % interval of a share, by its score.

    (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.

    >>> tuple(round(bound, 4) for bound in wilson(8, 10))
    (0.4902, 0.9433)
    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if not attempts:
        return 0.0, 1.0
    share, extra = successes / attempts, Z * Z / attempts
    middle = (share + extra / 2) / (1 + extra)
    half = math.sqrt(share * (1 - share) * extra + extra * extra / 4) / (1 + extra)
    return max(0.0, middle - half), min(1.0, middle + half)


def standing(attempts: Sequence[Attempt[Any]]) -> Standing:
    """How attempts at zorplex tasks went."""
    number = max(1, len(attempts))
    plays = [attempt.episode.world for attempt in attempts]
    modes = Counter(map(failure_mode, plays))
    low, high = wilson(modes[SUCCESS], len(attempts))
    said = [[piece.said for piece in attempt.pieces if isinstance(piece, Heard)] for attempt in attempts]
    understood = [
        meant(play.task, one.episode.events) == play.task.answer for play, one in zip(plays, attempts, strict=True)
    ]
    return Standing(
        attempts=len(attempts),
        accuracy=modes[SUCCESS] / number,
        accuracy_low=low,
        accuracy_high=high,
        format=sum(play.answer != () for play in plays) / number,
        meant=sum(understood) / number,
        reward=sum(total_reward(attempt.episode) for attempt in attempts) / number,
        turns=sum(map(len, said)) / number,
        tool_calls=sum(play.calls for play in plays) / number,
        tokens=sum(len(one.ids) for calls in said for one in calls) / number,
        modes={mode: modes[mode] / number for mode in FAILURE_MODES},
    )


def held_out(number: int, seed: int, *, first: int = 0) -> tuple[Request, ...]:
    """Requests for so many tasks of the evaluation stream, which training never draws from, from number `first` on.

    >>> held_out(2, 0)[0].task[0] % 2, held_out(1, 0, first=1) == held_out(2, 0)[1:]
    (1, True)
    """
    tasks, samples = keys.split(keys.key(seed))
    return requests(task_keys(tasks, "evaluation", number, first=first), samples, first=first)


def evaluated(sample: Sample, number: int, seed: int) -> tuple[Standing, tuple[Attempt[Any], ...]]:
    """How whatever samples stands on held-out tasks, and its attempts."""
    attempts = tuple(sample(held_out(number, seed)))
    return standing(attempts), attempts


ROWS: tuple[tuple[str, Callable[[Standing], str]], ...] = (
    ("tasks", lambda s: f"{s.attempts}"),
    ("accuracy", lambda s: f"{s.accuracy:.3f}"),
    ("  95 % interval", lambda s: f"{s.accuracy_low:.3f}-{s.accuracy_high:.3f}"),
    ("format", lambda s: f"{s.format:.3f}"),
    ("right, if read leniently", lambda s: f"{s.meant:.3f}"),
    ("reward", lambda s: f"{s.reward:.3f}"),
    ("turns", lambda s: f"{s.turns:.2f}"),
    ("tool calls", lambda s: f"{s.tool_calls:.2f}"),
    ("tokens said", lambda s: f"{s.tokens:.1f}"),
    *((f"ended as {mode}", lambda s, mode=mode: f"{s.modes[mode]:.3f}") for mode in FAILURE_MODES),
)


def table(columns: dict[str, Standing]) -> str:
    """Standings side by side, a row for each figure.

    >>> print(table({"before": standing(())}).splitlines()[2])
    accuracy                        0.000
    """
    widths = [max(len(name), 11) for name in columns]
    head = " " * 24 + "".join(f"  {name:>{width}}" for name, width in zip(columns, widths, strict=True))
    rows = [
        f"{name:24}" + "".join(f"  {value(one):>{width}}" for one, width in zip(columns.values(), widths, strict=True))
        for name, value in ROWS
    ]
    return "\n".join([head.rstrip(), *rows])

"""What follows a run's training: the evaluation that its recipe calls for, in words, in a file and in a picture.

Its options import no torch; the evaluation does.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from attrs import frozen

from ..runs.arguments import check_whole

Notice = Callable[[str], None]


@frozen
class Playing:
    """Episodes, played by the policy."""

    episodes: int = 100  # of the evaluation at the end

    def check(self, data: str = "") -> None:
        """Refuses what cannot be done. Raises: ChoiceError."""
        check_whole("--episodes", self.episodes, 1)

    def told(self, run: Path, notice: Notice) -> Iterator[str]:
        """Evaluates the run's newest checkpoint; gives the lines to print. Raises: CheckpointError."""
        from . import report  # here: it imports torch

        yield f"evaluation: {report.evaluated(run, episodes=self.episodes).line()}"


@frozen
class Ranking:
    """A ranking of each query among its negatives."""

    candidates: int = 100  # negatives for each query and argument
    split: Literal["valid", "test"] = "test"  # whose facts are ranked
    queries: int = 0  # of the split; 0 means all
    slots: int = 256  # proofs that are tried side by side
    draw: int = 0  # seed of the negatives, and of random ties
    ties: Literal["realistic", "optimistic", "pessimistic", "random"] = "realistic"  # where among equals a query ranks

    def check(self, data: str = "") -> None:
        """Refuses what cannot be done, on these data if they are named. Raises: ChoiceError."""
        for name, low in (("candidates", 1), ("queries", 0), ("slots", 1), ("draw", 0)):
            check_whole(f"--{name}", getattr(self, name), low)
        if self.split == "valid" and data:
            from ..effects.datasets import open_dataset  # here: it imports torch
            from .ranking import check_split

            check_split(self, open_dataset(data))

    def told(self, run: Path, notice: Notice) -> Iterator[str]:
        """Ranks with the run's newest checkpoint and draws a proof; gives the lines to print. Raises: CheckpointError."""
        from .ranking import told  # here: it imports torch

        yield from told(self, run, notice)


Closing = Playing | Ranking


def closing_of(recipe: str) -> Closing:
    """What follows a run of the recipe, with its own defaults."""
    return Ranking() if recipe == "prove" else Playing()

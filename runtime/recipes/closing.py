"""What follows a run's training: the evaluation that its recipe calls for, in words and in a file."""

from pathlib import Path
from typing import Any, Literal

import torch
from attrs import asdict, frozen

from ...core import keys
from ..effects import folder
from ..effects.manifest import describe
from ..logic.rank import Standing, asked, scorer, standing
from . import prove, report, session
from .arguments import check_whole


@frozen
class Playing:
    """Episodes, played by the policy."""

    episodes: int = 100  # of the evaluation at the end

    def check(self) -> None:
        """Raises: ChoiceError."""
        check_whole("--episodes", self.episodes, 1)

    def tell(self, run: Path) -> str:
        """Evaluates the run's newest checkpoint. Raises: CheckpointError."""
        return report.evaluated(run, episodes=self.episodes).line()


@frozen
class Ranking:
    """A ranking of each query among its negatives."""

    candidates: int = 100  # negatives for each query and argument
    split: Literal["valid", "test"] = "test"  # whose facts are ranked
    queries: int = 0  # of the split; 0 means all
    slots: int = 256  # proofs that are tried side by side
    draw: int = 0  # seed of the negatives

    def check(self) -> None:
        """Raises: ChoiceError."""
        for name, low in (("candidates", 1), ("queries", 0), ("slots", 1), ("draw", 0)):
            check_whole(f"--{name}", getattr(self, name), low)

    def tell(self, run: Path) -> str:
        """Ranks with the run's newest checkpoint; writes evaluation.json. Raises: CheckpointError, ChoiceError."""
        self.check()
        where = session.newest(run)
        plan = session.planned(describe(where).metadata)
        state, loop = session.restore(where, plan)
        result = self.ranked(plan.arguments, state.learner.params)
        numbers = {name: float(getattr(result.ranking, name)) for name in RANKED}
        about = {"iteration": loop.iteration, **asdict(self)}
        counted = {name: value for name, value in asdict(result, recurse=False).items() if name != "ranking"}
        folder.write_json(run / folder.EVALUATION, {**about, **numbers, **counted})
        return result.line()

    def ranked(self, arguments: prove.Prove, params: Any) -> Standing:
        """The standing of these params."""
        made = prove.opened(arguments)
        every = asked(made, getattr(made.dataset, self.split), self.candidates, keys.key(self.draw), self.queries)
        compiled = arguments.process.backend != "none"
        score = scorer(made, prove.model_of(arguments, made), slots=self.slots, compiled=compiled)
        with torch.no_grad():
            return standing(score(params, every))


RANKED = ("mean_reciprocal_rank", "hits_at_1", "hits_at_3", "hits_at_10")
Closing = Playing | Ranking


def closing_of(recipe: str) -> Closing:
    """What follows a run of the recipe, with its own defaults."""
    return Ranking() if recipe == "prove" else Playing()

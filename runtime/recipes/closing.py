"""What follows a run's training: the evaluation that its recipe calls for, in words, in a file and in a picture."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch
from attrs import asdict, frozen

from ...core import keys
from ...core.errors import ChoiceError, message
from ...core.logic.state import ProofState
from ..compile import Program
from ..effects import folder
from ..effects.clock import seconds
from ..effects.datasets import open_dataset
from ..logic.dataset import Dataset
from ..logic.rank import Standing, asked, scorer, standing
from . import prove, report
from .arguments import check_whole
from .explain import Prover, deepest, prover_of
from .world import Notice

RANKED = ("mean_reciprocal_rank", "hits_at_1", "hits_at_3", "hits_at_10")


@frozen
class Playing:
    """Episodes, played by the policy."""

    episodes: int = 100  # of the evaluation at the end

    def check(self, data: str = "") -> None:
        """Refuses what cannot be done. Raises: ChoiceError."""
        check_whole("--episodes", self.episodes, 1)

    def told(self, run: Path, notice: Notice) -> Iterator[str]:
        """Evaluates the run's newest checkpoint; gives the lines to print. Raises: CheckpointError."""
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
            self._check_split(open_dataset(data))

    def told(self, run: Path, notice: Notice) -> Iterator[str]:
        """Ranks with the run's newest checkpoint and draws a proof; gives the lines to print. Raises: CheckpointError."""
        prover = prover_of(run)
        notice_left_out("of the training's proofs", *lost_in_training(prover.worlds), notice)
        yield f"evaluation: {self.ranked(prover, notice).line()}"
        found = deepest(prover)
        if found:
            yield f"proof: {found.picture}"
        else:
            notice("no picture of a proof: none of the first test queries was proven")

    def ranked(self, prover: Prover, notice: Notice) -> Standing:
        """The standing of what was learnt; writes evaluation.json. Raises: ChoiceError."""
        self.check()
        result, rate = self._standing(prover)
        numbers = {name: float(getattr(result.ranking, name)) for name in RANKED}
        about = {"iteration": prover.iteration, "options": asdict(self)}
        counted = {name: value for name, value in asdict(result, recurse=False).items() if name != "ranking"}
        folder.write_json(prover.run / folder.EVALUATION, {**about, **numbers, **counted})
        every = f"of {result.queries + result.candidates:,} proofs tried"
        notice_left_out(every, result.too_long, result.too_many, notice)
        notice(f"ranked {rate:,.0f} candidates a second, compilation apart")
        return result

    def _standing(self, prover: Prover) -> tuple[Standing, float]:
        """How what was learnt ranks, and how many candidates were tried in a second, compilation apart."""
        made, arguments = prover.made, prover.arguments
        self._check_split(made.dataset)
        every = asked(made, getattr(made.dataset, self.split), self.candidates, keys.key(self.draw), self.queries)
        compiled = arguments.process.backend != "none"
        score = scorer(made, prove.model_of(arguments, made), slots=self.slots, compiled=compiled)
        begin = seconds()
        with torch.no_grad():
            told = score(prover.params, every)
        spent = seconds() - begin - sum(score.run.seconds if isinstance(score.run, Program) else ())
        result = standing(told, ties=self.ties, key=keys.fold_in(keys.key(self.draw), 1))
        return result, (result.queries + result.candidates) / spent

    def _check_split(self, dataset: Dataset) -> None:
        if not getattr(dataset, self.split):
            where, remedy = f"{dataset.name}: {self.split}", "rank another --split"
            raise ChoiceError(message(where, got="empty", wanted="facts to rank", remedy=remedy))


def lost_in_training(worlds: ProofState) -> tuple[int, int]:
    """In how many proofs of a training states were left out for their length, and in how many for their number."""
    too_long = worlds.were_too_long.sum() + (worlds.too_long > 0).sum()
    return int(too_long), int(worlds.were_too_many.sum() + (worlds.too_many > 0).sum())


def notice_left_out(proofs: str, too_long: int, too_many: int, notice: Notice) -> None:
    """Says in how many proofs states were left out for want of room, and what makes room."""
    if too_long:
        notice(f"{too_long:,} {proofs} met states of more goals than --atoms, which were left out")
    if too_many:
        notice(f"{too_many:,} {proofs} met more states than --successors or --facts, of which some were left out")


Closing = Playing | Ranking


def closing_of(recipe: str) -> Closing:
    """What follows a run of the recipe, with its own defaults."""
    return Ranking() if recipe == "prove" else Playing()

"""What a trained policy is worth: episodes played with the newest checkpoint of a run."""

from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from ...core import keys
from ..effects.manifest import describe
from ..evaluate import evaluate
from . import session
from .common import policy

Choice = Literal["mode", "sample"]
LONGEST = 1000  # steps; no environment with a name has longer episodes
APART = 2**31  # keys of evaluations are those of no training


@frozen
class Evaluation:
    """What came of an evaluation; evaluation.json holds the same."""

    episodes: int
    iteration: int  # of the checkpoint
    seed: int
    action: str  # "mode" or "sample"
    mean_return: float
    return_deviation: float
    lowest_return: float
    highest_return: float
    mean_length: float

    def line(self) -> str:
        """It in one line."""
        span = f"from {self.lowest_return:.1f} to {self.highest_return:.1f}"
        returns = f"mean return {self.mean_return:.1f} ± {self.return_deviation:.1f} ({span})"
        return f"evaluation: {self.episodes} episodes, {returns}, mean length {self.mean_length:.0f}"


def evaluated(run: Path, *, episodes: int = 100, seed: int = 0, action: Choice = "mode") -> Evaluation:
    """Plays whole episodes with the policy of the newest checkpoint; writes evaluation.json into the run's folder.

    Raises: CheckpointError, ChoiceError.
    """
    where = session.newest(run)
    plan = session.planned(describe(where).metadata)
    state, loop = session.restore(where, plan)
    model, params = policy(plan.pipeline, state)
    play = evaluate(plan.pipeline.env, model, episodes=episodes, steps=LONGEST, action=action)
    played: Any = play(params, keys.fold_in(keys.key(seed), APART))
    raise NotImplementedError(played)

"""What a trained policy is worth: whole episodes, played with the newest checkpoint of a run."""

from pathlib import Path
from typing import Any, Literal

import torch
from attrs import asdict, frozen
from torch import Tensor

from ...core import keys
from ...core.env import Env, batched
from ...core.keys import Key
from ...core.policy import ActorCritic
from ...core.steps import ended
from ..effects import folder
from ..effects.manifest import describe
from . import session
from .arguments import check_whole
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
    check_whole("--episodes", episodes, 1)
    where = session.newest(run)
    plan = session.planned(describe(where).metadata)
    state, loop = session.restore(where, plan)
    model, params = policy(plan.pipeline, state)
    key = keys.fold_in(keys.key(seed), APART)
    returns, lengths = played(plan.pipeline.env, model, params, key, episodes=episodes, action=action)
    result = Evaluation(
        episodes=episodes,
        iteration=loop.iteration,
        seed=seed,
        action=action,
        mean_return=float(returns.mean()),
        return_deviation=float(returns.std(correction=0)),
        lowest_return=float(returns.min()),
        highest_return=float(returns.max()),
        mean_length=float(lengths.mean()),
    )
    folder.write_json(run / folder.EVALUATION, asdict(result))
    return result


def played(
    env: Env[Any, Any], model: ActorCritic, params: Any, key: Key, *, episodes: int, action: Choice
) -> tuple[Tensor, Tensor]:
    """Returns and lengths of so many episodes of one world, side by side: float64 [episodes] each.

    An episode counts up to its first end, or to step LONGEST.
    """
    worlds = batched(env, episodes)
    reset_key, key = keys.split(key)
    state, told = worlds.reset(env.params, reset_key)
    returns, lengths = torch.zeros(2, episodes, dtype=torch.float64)
    going = torch.ones(episodes, dtype=torch.bool)
    for _ in range(LONGEST):
        action_key, step_key, key = keys.split(key, 3)
        distribution, _, _ = model.apply(params, told.observation, ())
        chosen = distribution.mode() if action == "mode" else distribution.sample(keys.split(action_key, episodes))
        state, told = worlds.step(env.params, state, chosen, step_key)
        returns, lengths = returns + torch.where(going, told.reward, 0.0), lengths + going
        going = going & ~ended(told.terminated, told.truncated)
        if not bool(going.any()):
            break
    return returns, lengths

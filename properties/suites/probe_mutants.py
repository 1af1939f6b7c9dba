"""Learners that no longer learn, each with one edit."""

import torch
from torch import Tensor

from ...algorithms.algorithm import Algorithm, TrainState
from ...core.record import replace
from ...core.steps import Trajectory
from .update_mutants import Result, around


@around
def mixes_worlds(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Is off by one in the batch."""
    return algorithm.update(state, replace(trajectory, observation=trajectory.observation.roll(1, 1)), key)


@around
def ends_everywhere(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Never looks beyond a step."""
    return algorithm.update(state, replace(trajectory, terminated=torch.ones_like(trajectory.terminated)), key)


@around
def mixes_actions(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Is off by one in the actions."""
    return algorithm.update(state, replace(trajectory, action=1 - trajectory.action), key)


@around
def centres_rewards(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Normalises what must not be normalised: a constant reward becomes 0."""
    centred = trajectory.reward - trajectory.reward.mean()
    return algorithm.update(state, replace(trajectory, reward=centred), key)


@around
def mixes_rewards(algorithm: Algorithm, state: TrainState, trajectory: Trajectory, key: Tensor) -> Result:
    """Is off by one in the rewards."""
    return algorithm.update(state, replace(trajectory, reward=trajectory.reward.roll(1, 1)), key)

"""Normalisation of the learner's input: statistics that are constant during a rollout and updated after it."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen

from ..core import normalize
from ..core.errors import ChoiceError, StructureError, message
from ..core.record import record, replace
from ..core.spaces import Box, Space
from ..core.steps import Trajectory


@frozen
class Normalizer:
    """Pure functions of explicit statistics; to freeze them, do not call `update`."""

    init: Callable[[Space, int, torch.device], Any]  # observation space, worlds, device
    observe: Callable[[Any, Any], Any]  # statistics, observation [*, ...] -> the same shape
    scale: Callable[[Any, Trajectory], Trajectory]  # a trajectory [T, B] -> the learner's input
    update: Callable[[Any, Trajectory], Any]  # statistics, trajectory [T, B] as it was played


def check_normalizer(normalizer: Normalizer) -> Normalizer:
    """Return the argument if it is a Normalizer. Raises: StructureError.

    >>> check_normalizer(identity()).observe((), 3)
    3
    """
    if not isinstance(normalizer, Normalizer):
        got, remedy = repr(normalizer), "make it with running()"
        raise StructureError(message("trainer: normalizer", got=got, wanted="a Normalizer", remedy=remedy))
    return normalizer


def identity() -> Normalizer:
    """Return a normaliser that scales nothing and has no statistics.

    >>> identity().observe((), torch.ones(2))
    tensor([1., 1.])
    """
    return Normalizer(
        init=lambda space, worlds, device: (),
        observe=lambda statistics, observation: observation,
        scale=lambda statistics, trajectory: trajectory,
        update=lambda statistics, trajectory: statistics,
    )


@record
class RunningScales:
    """Statistics of `running`."""

    observation: Any  # normalize.Statistics, or () when observations stay as they are
    reward: Any  # normalize.RewardScale, or ()
    gamma: Any  # [] float64, the discount of the returns by which rewards are scaled; () without


def running(*, observations: bool = True, rewards: bool = True, gamma: float = 0.99, clip: float = 10.0) -> Normalizer:
    """Scale observations to mean 0 and variance 1, and divide rewards by the standard deviation of discounted returns.

    Both follow everything seen so far, as in the PPO2 code of OpenAI baselines, except that statistics are constant within
    a rollout. Raises: ChoiceError when the observation is not one box of numbers.

    >>> scales = running().init(Box(-1.0, 1.0, (2,)), 3, torch.device("cpu"))
    >>> running().observe(scales, torch.tensor([0.5, 20.0]))
    tensor([ 0.5000, 10.0000])
    """

    def init(space: Space, worlds: int, device: torch.device) -> RunningScales:
        if observations and not isinstance(space, Box):
            got, remedy = type(space).__name__, "pass observations=False"
            raise ChoiceError(message("running: observation space", got=got, wanted="Box", remedy=remedy))
        shape = space.shape if isinstance(space, Box) else ()
        return RunningScales(
            observation=normalize.statistics(shape, device=device) if observations else (),
            reward=normalize.reward_scale((worlds,), device=device) if rewards else (),
            gamma=torch.tensor(gamma, dtype=torch.float64, device=device) if rewards else (),
        )

    def observe(scales: RunningScales, observation: Any) -> Any:
        return normalize.normalize(scales.observation, observation, clip=clip) if observations else observation

    def scale(scales: RunningScales, trajectory: Trajectory) -> Trajectory:
        scaled = replace(
            trajectory,
            observation=observe(scales, trajectory.observation),
            next_observation=observe(scales, trajectory.next_observation),
        )
        if not rewards:
            return scaled
        return replace(scaled, reward=normalize.scale_rewards(scales.reward, trajectory.reward, clip=clip))

    def update(scales: RunningScales, trajectory: Trajectory) -> RunningScales:
        after = scales
        if observations:
            after = replace(after, observation=normalize.update(scales.observation, trajectory.observation))
        if rewards:
            ends = trajectory.terminated, trajectory.truncated
            reward = normalize.update_reward_scale(scales.reward, trajectory.reward, *ends, gamma=scales.gamma)
            after = replace(after, reward=reward)
        return after

    return Normalizer(init=init, observe=observe, scale=scale, update=update)

"""Vector environments and their wrappers: autoreset, final observations, statistics."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from .bug import Bug

Array = NDArray[Any]
Make = Callable[[], gymnasium.Env[Any, Any]]


class NextStepEnvs(VectorEnv[Array, Array, Array]):
    """Steps envs one by one; one that has ended is reset in the step that follows, whose reward is 0."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, makers: Sequence[Make]) -> None:
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.ended = np.zeros(self.num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        self.forget()
        observed = [env.reset(seed=one, options=options)[0] for env, one in zip(self.envs, seeds, strict=True)]
        return np.stack(observed), {}

    def forget(self) -> None:
        self.ended[:] = False

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        rows = [self.row(i, action) for i, action in enumerate(actions)]
        observed, rewards, terminated, truncated = (np.array(column) for column in zip(*rows, strict=True))
        self.ended = terminated | truncated
        return observed, rewards.astype(np.float64), terminated, truncated, {}

    def row(self, i: int, action: Any) -> tuple[Any, float, bool, bool]:
        if self.ended[i]:
            return self.envs[i].reset()[0], 0.0, False, False
        obs, reward, terminated, truncated, _ = self.envs[i].step(action)
        return obs, float(reward), terminated, truncated


class EarlyReset(NextStepEnvs):
    """Steps envs one by one; one that has ended is reset in the step that follows, whose reward is 0."""

    def row(self, i: int, action: Any) -> tuple[Any, float, bool, bool]:
        obs, reward, terminated, truncated, _ = self.envs[i].step(action)
        if terminated or truncated:
            obs = self.envs[i].reset()[0]
        return obs, float(reward), terminated, truncated


class RemembersEnds(NextStepEnvs):
    """Steps envs one by one; one that has ended is reset in the step that follows, whose reward is 0."""

    def forget(self) -> None:
        """Ends are set by steps."""


class OneBuffer(NextStepEnvs):
    """Steps envs one by one; one that has ended is reset in the step that follows, whose reward is 0."""

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        observed, rewards, terminated, truncated, info = super().step(actions)
        first = np.lib.stride_tricks.as_strided(observed, observed.shape, (0, *observed.strides[1:]))
        return first.copy(), rewards, terminated, truncated, info


class EpisodeStatistics(VectorWrapper):
    """Returns and lengths of episodes, in `info["episode"]` of the step that ends them; resets are steps of their own."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.returns, self.lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, int)
        self.before = np.zeros(env.num_envs, bool)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.returns[:], self.lengths[:], self.before[:] = 0.0, 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observed, rewards, terminated, truncated, info = self.env.step(actions)
        self.returns += rewards
        self.lengths += self.counted()
        ended = terminated | truncated
        if ended.any():
            info = {**info, "episode": {"r": self.returns * ended, "l": self.lengths * ended}}
        self.returns[ended], self.lengths[ended] = 0.0, 0
        self.before = ended
        return observed, rewards, terminated, truncated, info

    def counted(self) -> Array:
        return np.ones(self.num_envs, int)


class EpisodeStatisticsFixed(EpisodeStatistics):
    """A step that resets is none of the episode."""

    def counted(self) -> Array:
        return (~self.before).astype(int)


class NormalizeReward(VectorWrapper):
    """Rewards by the deviation of the discounted returns so far, for envs that reset within the step."""

    def __init__(self, env: VectorEnv[Any, Any, Any], gamma: float = 0.99) -> None:
        super().__init__(env)
        self.gamma, self.accumulated, self.before = gamma, np.zeros(env.num_envs), np.zeros(env.num_envs, bool)
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.accumulated[:], self.before[:] = 0.0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observed, rewards, terminated, truncated, info = self.env.step(actions)
        for value in self.added(rewards, terminated | truncated):
            self.count += 1
            delta = value - self.mean
            self.mean += delta / self.count
            self.m2 += delta * (value - self.mean)
        scale = np.sqrt(self.m2 / max(1, self.count) + 1e-8)
        return observed, rewards / scale, terminated, truncated, info

    def added(self, rewards: Array, ended: Array) -> Array:
        active = ~self.before
        self.accumulated[active] = self.accumulated[active] * self.gamma + rewards[active]
        found = self.accumulated[active].copy()
        self.accumulated[ended & self.before] = 0.0
        self.before = ended
        return found


class NormalizeRewardFixed(NormalizeReward):
    """Every step counts, and the step that ends an episode ends its return."""

    def added(self, rewards: Array, ended: Array) -> Array:
        self.accumulated = self.accumulated * self.gamma + rewards
        found = self.accumulated.copy()
        self.accumulated[ended] = 0.0
        return found


def makers(count: int = 2) -> list[Make]:
    """CartPoles with a limit of 5 steps."""
    return [lambda: gymnasium.make("CartPole-v1", max_episode_steps=5) for _ in range(count)]


def walked(make: Any) -> object:
    """Observations and rewards over an end, of one env of two."""
    envs = make(makers())
    envs.reset(seed=0)
    rows = [envs.step(np.array([step % 2, 1 - step % 2])) for step in range(8)]
    return [(obs[1].tolist(), rewards[1]) for obs, rewards, *_ in rows[:5]]


def restarted(make: Any) -> object:
    """The reward of the first step after a reset by hand."""
    envs = make(makers(1))
    envs.reset(seed=0)
    for _ in range(5):
        envs.step(np.array([1]))
    envs.reset(seed=0)
    return envs.step(np.array([1]))[1]


def lengths(make: Any) -> object:
    """Lengths of the first episodes, each of which has 5 steps."""
    envs = make(SyncVectorEnv(makers(1)))
    envs.reset(seed=0)
    infos = [envs.step(np.array([step % 2]))[4] for step in range(18)]
    return [int(info["episode"]["l"][0]) for info in infos if "episode" in info]


def returns(make: Any) -> object:
    """How many returns were counted in 12 steps of 2 envs."""
    envs = make(SyncVectorEnv(makers(), autoreset_mode=AutoresetMode.SAME_STEP))
    envs.reset(seed=0)
    for step in range(12):
        envs.step(np.array([step % 2, step % 2]))
    return envs.count, envs.mean


BUGS = [
    Bug(
        "resets_one_step_early",
        "https://github.com/Farama-Foundation/Gymnasium/issues/914",
        "vector_envs",
        "An env that ends is reset at once, so that its last observation is never seen in next-step mode.",
        EarlyReset,
        NextStepEnvs,
        walked,
    ),
    Bug(
        "reset_keeps_ends",
        "https://github.com/Farama-Foundation/Gymnasium/pull/1112",
        "vector_envs",
        "A reset by hand leaves the marks of ended envs, so that the next step resets them again.",
        RemembersEnds,
        NextStepEnvs,
        restarted,
    ),
    Bug(
        "one_observation_for_all",
        "https://github.com/sail-sg/envpool/pull/325",
        "vector_envs",
        "All envs give the observation of the first, since rows have no stride.",
        OneBuffer,
        NextStepEnvs,
        walked,
    ),
    Bug(
        "reset_counted_as_step",
        "https://github.com/Farama-Foundation/Gymnasium/issues/1017",
        "vector_envs",
        "The step that resets counts towards the next episode's length.",
        EpisodeStatistics,
        EpisodeStatisticsFixed,
        lengths,
    ),
    Bug(
        "first_reward_left_out",
        "https://github.com/Farama-Foundation/Gymnasium/pull/1668",
        "vector_envs",
        "In same-step mode the first reward of each episode is left out, and returns run on into the next.",
        NormalizeReward,
        NormalizeRewardFixed,
        returns,
    ),
]

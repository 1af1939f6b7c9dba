"""Wrappers of environments: spaces, stacks, repeats, statistics."""

from collections import deque
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .bug import Bug

Array = NDArray[Any]
Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class RescaleAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """Actions in [low, high] for an env with any finite box of actions."""

    def __init__(self, env: gymnasium.Env[Any, Any], low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        self.low, self.high = low, high

    def action(self, action: Array) -> Array:
        box = self.env.action_space
        assert isinstance(box, spaces.Box)
        share = (np.asarray(action) - self.low) / (self.high - self.low)
        return (box.low + share * (box.high - box.low)).astype(box.dtype)


class RescaleActionFixed(RescaleAction):
    """Says so in its space."""

    def __init__(self, env: gymnasium.Env[Any, Any], low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env, low, high)
        assert isinstance(env.action_space, spaces.Box)
        self.action_space = spaces.Box(low, high, env.action_space.shape, np.float32)


class StackFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The last `size` observations, the newest last; after a reset all are the first."""

    def __init__(self, env: gymnasium.Env[Any, Any], size: int = 3) -> None:
        super().__init__(env)
        box = env.observation_space
        assert isinstance(box, spaces.Box)
        low, high = np.stack([box.low] * size), np.stack([box.high] * size)
        self.observation_space = spaces.Box(low, high, dtype=box.dtype.type)
        self.size = size
        self.frames: deque[Array] = deque(maxlen=size)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.fill(obs)
        return np.stack(self.frames), info

    def fill(self, obs: Array) -> None:
        for _ in range(self.size - 1):
            self.frames.append(np.zeros_like(obs))
        self.frames.append(obs)

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.frames.append(obs)
        return np.stack(self.frames), reward, terminated, truncated, info


class StackFramesFixed(StackFrames):
    """Repeats the first."""

    def fill(self, obs: Array) -> None:
        for _ in range(self.size):
            self.frames.append(obs)


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action, adding rewards, until the episode ends."""

    def __init__(self, env: gymnasium.Env[Any, Any], repeat: int = 3) -> None:
        super().__init__(env)
        self.repeat, self.ended = repeat, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.begin()
        return self.env.reset(seed=seed, options=options)

    def begin(self) -> None:
        """What a reset forgets."""

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        total, count = float(reward), 1
        while count < self.repeat and not (terminated or truncated or self.ended):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total, count = total + float(reward), count + 1
        self.ended = self.ended or terminated or truncated
        return obs, total, terminated, truncated, info


class ActionRepeatFixed(ActionRepeat):
    """A reset begins again."""

    def begin(self) -> None:
        self.ended = False


class RecordReturns(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds return, discounted return and length of an episode to the info of its last step."""

    def __init__(self, env: gymnasium.Env[Any, Any], gamma: float = 0.9) -> None:
        super().__init__(env)
        self.gamma = gamma

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.total, self.discounted, self.length = 0.0, 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Step:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.count(float(reward))
        if terminated or truncated:
            info = {**info, "episode": {"r": self.total, "dr": self.discounted, "l": self.length}}
        return obs, reward, terminated, truncated, info

    def count(self, reward: float) -> None:
        self.length += 1
        self.total += reward
        self.discounted += self.gamma**self.length * reward


class RecordReturnsFixed(RecordReturns):
    """The first reward is not discounted."""

    def count(self, reward: float) -> None:
        self.discounted += self.gamma**self.length * reward
        self.total += reward
        self.length += 1


def repeated(make: Any) -> object:
    """How many steps of the env each step takes, over two episodes."""
    inner = gymnasium.make("CartPole-v1")
    env, rewards = make(inner), []
    for _ in range(2):
        env.reset(seed=0)
        ended = False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(0)
            ended = terminated or truncated
            rewards.append(reward)
    return rewards


def recorded(make: Any) -> object:
    """The statistics of an episode."""
    env = make(gymnasium.make("CartPole-v1"))
    env.reset(seed=0)
    while True:
        _, _, terminated, truncated, info = env.step(0)
        if terminated or truncated:
            return info["episode"]


BUGS = [
    Bug(
        "space_not_rescaled",
        "https://github.com/Farama-Foundation/Gymnasium/issues/568",
        "wrappers",
        "Actions are rescaled, but the action space remains that of the env.",
        RescaleAction,
        RescaleActionFixed,
        lambda make: make(gymnasium.make("Pendulum-v1")).action_space.high,
    ),
    Bug(
        "stack_begins_with_zeros",
        "https://github.com/Farama-Foundation/Gymnasium/issues/829",
        "wrappers",
        "After a reset the stack holds zeros, where the first observation is to be repeated.",
        StackFrames,
        StackFramesFixed,
        lambda make: make(gymnasium.make("CartPole-v1")).reset(seed=0)[0],
    ),
    Bug(
        "repeats_in_first_episode_only",
        "https://github.com/danijar/dreamerv3/pull/67",
        "wrappers",
        "The flag that ends repeats is never cleared: after the first episode no action is repeated.",
        ActionRepeat,
        ActionRepeatFixed,
        repeated,
    ),
    Bug(
        "first_reward_discounted",
        "https://github.com/Farama-Foundation/MO-Gymnasium/pull/100",
        "wrappers",
        "The length is counted before the discount is taken, so that the return is discounted once too often.",
        RecordReturns,
        RecordReturnsFixed,
        recorded,
    ),
]

"""Environments and wrappers."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class ChainEnv(gym.Env):
    """Left or right along a chain; the right end pays."""

    def __init__(self, length=6):
        self.length = length
        self.observation_space = spaces.Discrete(length)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """At the left end."""
        super().reset(seed=seed)
        self.at = 0
        return self.at, {}

    def step(self, action):
        """One place."""
        self.at = max(0, self.at - 1) if action == 0 else self.at + 1
        over = self.at == self.length - 1
        return self.at, 1.0 if over else 0.0, over, False, {}


class PointMass(gym.Env):
    """Pushed towards the origin; cut after fifty steps."""

    def __init__(self):
        self.observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, seed=None, options=None):
        """Somewhere near."""
        super().reset(seed=seed)
        self.x, self.v, self.t = self.np_random.uniform(-1, 1), 0.0, 0
        return np.array([self.x, self.v], dtype=np.float32), {}

    def step(self, action):
        """A step of Euler's."""
        self.v = float(np.clip(self.v + 0.1 * float(np.clip(action[0], -1, 1)), -10, 10))
        self.x = float(np.clip(self.x + 0.1 * self.v, -10, 10))
        self.t += 1
        return np.array([self.x, self.v], dtype=np.float32), -abs(self.x), False, self.t >= 50, {}


class BanditEnv(gym.Env):
    """Arms with unlike chances; the constructor needs them."""

    def __init__(self, probabilities):
        self.probabilities = list(probabilities)
        self.action_space = spaces.Discrete(len(self.probabilities))
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def reset(self, seed=None, options=None):
        """Nothing to see."""
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        """One pull."""
        won = self.np_random.random() < self.probabilities[int(action)]
        return np.zeros(1, np.float32), float(won), True, False, {}


class ScaleReward(gym.RewardWrapper):
    """Times a number."""

    def __init__(self, env, scale=0.1):
        super().__init__(env)
        self.scale = scale

    def reward(self, reward):
        """Scaled."""
        return float(reward) * self.scale


class NormalizedBox(gym.ActionWrapper):
    """Actions in [-1, 1] for any bounds."""

    def __init__(self, env):
        super().__init__(env)
        self.low, self.high = env.action_space.low, env.action_space.high
        self.action_space = spaces.Box(-1.0, 1.0, env.action_space.shape, np.float32)

    def action(self, action):
        """Stretched."""
        return (self.low + (np.asarray(action) + 1) * 0.5 * (self.high - self.low)).astype(np.float32)


class StickyAction(gym.Wrapper):
    """Repeats the action of the step before with some probability."""

    def __init__(self, env, repeat_probability=0.25):
        super().__init__(env)
        self.repeat_probability, self.last = repeat_probability, None

    def reset(self, **kwargs):
        """Forgets the last action."""
        self.last = None
        return self.env.reset(**kwargs)

    def step(self, action):
        """The action, or the last."""
        if self.last is not None and self.unwrapped.np_random.random() < self.repeat_probability:
            action = self.last
        self.last = action
        return self.env.step(action)


class TimePenalty(gym.Wrapper):
    """Takes a little from each reward."""

    def __init__(self, env, penalty):
        super().__init__(env)
        self.penalty = penalty

    def step(self, action):
        """One step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward) - self.penalty, terminated, truncated, info


def make_chain():
    """A chain with a limit."""
    return gym.wrappers.TimeLimit(ChainEnv(), max_episode_steps=20)

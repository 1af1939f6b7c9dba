"""Environments, wrappers and vector environments of users."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv


class GridWorld(gym.Env):
    """Walks to a corner."""

    def __init__(self, size=5):
        self.size = size
        self.observation_space = spaces.Box(0, size - 1, (2,), np.int64)
        self.action_space = spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.integers(0, self.size - 1, 2)
        return self.at.copy(), {}

    def step(self, action):
        move = [(1, 0), (-1, 0), (0, 1), (0, -1)][int(action)]
        self.at = np.clip(self.at + move, 0, self.size - 1)
        done = bool((self.at == self.size - 1).all())
        return self.at.copy(), float(done), done, False, {}


def make_env():
    return gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))


class SkipFrames(gym.Wrapper):
    """Repeats an action."""

    def __init__(self, env, skip=4):
        super().__init__(env)
        self.skip = skip

    def step(self, action):
        total = 0.0
        for _ in range(self.skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


class ScaledObservation(gym.ObservationWrapper):
    """To [-1, 1]."""

    def __init__(self, env):
        super().__init__(env)
        low, high = env.observation_space.low, env.observation_space.high
        self.centre, self.half = (low + high) / 2, (high - low) / 2
        self.observation_space = spaces.Box(-1, 1, env.observation_space.shape, np.float32)

    def observation(self, obs):
        return ((obs - self.centre) / self.half).astype(np.float32)


class SignReward(gym.RewardWrapper):
    """-1, 0 or 1."""

    def reward(self, reward):
        return float(np.sign(reward))


def make_vec_env(num_envs: int = 4) -> SyncVectorEnv:
    """Envs beside each other."""
    return SyncVectorEnv([make_env for _ in range(num_envs)])


class TinyVectorEnv(gym.vector.VectorEnv):
    """Counts to five in each of its envs."""

    def __init__(self, num_envs=3):
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 5, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}

    def reset(self, *, seed=None, options=None):
        self.t, self.done = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        return self.t[:, None].copy(), {}

    def step(self, actions):
        self.t = np.where(self.done, 0, self.t + 1).astype(np.float32)
        rewards = np.where(self.done, 0.0, 1.0)
        self.done = self.t >= 5
        return self.t[:, None].copy(), rewards, self.done.copy(), np.zeros(self.num_envs, bool), {}

"""Environments: seeds that do nothing, observations outside their space."""

import random
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .bug import Bug

Array = NDArray[Any]


class Hover(gymnasium.Env[Array, Array]):
    """Keeps a drone at a height; the start is random."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, max_steps: int = 30) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.max_steps = max_steps
        self.rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.seeded(seed)
        self.state, self.time = self.rng.uniform(-0.5, 0.5, 2).astype(np.float32), 0
        return self.state.copy(), {}

    def seeded(self, seed: int | None) -> None:
        super().reset()

    def step(self, action: Array) -> tuple[Array, SupportsFloat, bool, bool, dict[str, Any]]:
        speed = self.state[1] + 0.1 * float(action[0]) + 0.01 * self.rng.normal()
        self.state = np.array([self.state[0] + 0.1 * speed, speed], np.float32)
        self.time += 1
        height = float(self.state[0])
        return self.state.copy(), -abs(height), abs(height) > 2, self.time >= self.max_steps, {}


class HoverFixed(Hover):
    """Draws from the generator that the seed sets."""

    def seeded(self, seed: int | None) -> None:
        gymnasium.Env.reset(self, seed=seed)
        self.rng = self.np_random


class Flappy(gymnasium.Env[Array, int]):
    """A bird that falls, and gaps that it has to pass."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)

    def gap(self) -> float:
        return random.uniform(-1, 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.height, self.distance, self.hole, self.passed = 0.0, 5, self.gap(), 0
        return self.seen(), {}

    def seen(self) -> Array:
        return np.array([self.height, self.distance, self.hole], np.float32)

    def step(self, action: int) -> tuple[Array, SupportsFloat, bool, bool, dict[str, Any]]:
        self.height += 0.3 if action == 1 else -0.2
        self.distance -= 1
        crashed = abs(self.height) > 3 or (self.distance == 0 and abs(self.height - self.hole) > 0.8)
        if self.distance == 0:
            self.distance, self.hole, self.passed = 5, self.gap(), self.passed + (not crashed)
        return self.seen(), 0.0 if crashed else 1.0, crashed, self.passed >= 10, {}


class FlappyFixed(Flappy):
    """The env's own generator."""

    def gap(self) -> float:
        return float(self.np_random.uniform(-1, 1))


class Waypoints(gymnasium.Env[Array, Array]):
    """Flies to points; `cost` adds the distance to the observation."""

    metadata = {"render_modes": []}  # noqa: RUF012
    size = 4

    def __init__(self, cost: bool = True) -> None:
        self.cost = cost
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.size,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def seen(self) -> Array:
        offset = self.target - self.position
        parts = [self.position, offset, [np.linalg.norm(offset)]] if self.cost else [self.position, offset]
        return np.concatenate(parts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.target, self.time = np.zeros(2), self.np_random.uniform(-1, 1, 2), 0
        return self.seen(), {}

    def step(self, action: Array) -> tuple[Array, SupportsFloat, bool, bool, dict[str, Any]]:
        self.position = self.position + 0.1 * np.clip(np.asarray(action, np.float64), -1, 1)
        self.time += 1
        distance = float(np.linalg.norm(self.target - self.position))
        return self.seen(), -distance, distance < 0.05, self.time >= 50, {}


class WaypointsFixed(Waypoints):
    """The space has room for what is added."""

    size = 5


def first(make: Any) -> object:
    """Whether one seed gives one first observation."""
    return bool(np.array_equal(make().reset(seed=3)[0], make().reset(seed=3)[0]))


def course(make: Any) -> object:
    """The first hole with a seed, whatever the global generator is at."""
    env = make()
    random.seed(1)
    one = env.reset(seed=3)[0]
    random.seed(2)
    return bool(np.array_equal(one, env.reset(seed=3)[0]))


def contained(make: Any) -> object:
    """Whether the first observation lies in its space."""
    env = make()
    return bool(env.observation_space.contains(env.reset(seed=0)[0]))


BUGS = [
    Bug(
        "seed_ignored",
        "https://github.com/learnsyslab/gym-pybullet-drones/pull/300",
        "envs",
        "`reset` does not pass on its seed, so that episodes cannot be repeated.",
        Hover,
        HoverFixed,
        first,
    ),
    Bug(
        "global_generator",
        "https://github.com/markub3327/flappy-bird-gymnasium/pull/1",
        "envs",
        "The course is drawn from the global generator instead of the env's own.",
        Flappy,
        FlappyFixed,
        course,
    ),
    Bug(
        "space_too_small",
        "https://github.com/rickstaa/stable-gym/issues/279",
        "envs",
        "The observation has more entries than its space.",
        Waypoints,
        WaypointsFixed,
        contained,
    ),
]

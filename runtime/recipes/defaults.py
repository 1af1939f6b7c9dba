"""What each recipe starts from in each environment: only what differs from the classes' own defaults stands here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ...core.env_names import ENV_NAMES
from ...core.errors import choose
from ..runs.arguments import changed
from .arguments import Experience
from .settings import A2C, PPO, Reinforce

A = TypeVar("A")
Changes = Mapping[str, Any]

PPO_CHANGES: Mapping[str, Changes] = {
    "cartpole": {"learning_rate": 2e-3, "gamma": 0.98, "gae_lambda": 0.9},
    "acrobot": {"envs": 8, "learning_rate": 1e-3},
    "pendulum": {
        "steps": 1_000_000,
        "envs": 16,
        "horizon": 256,
        "gamma": 0.9,
        "learning_rate": 1e-3,
        "entropy_coefficient": 0.0,
        "epochs": 10,
        "minibatches": 8,
        "normalize": "rewards",
    },
    "mountain_car": {"steps": 1_000_000, "envs": 16, "normalize": "both"},
    "mountain_car_continuous": {"envs": 16, "horizon": 256, "normalize": "both"},
}
A2C_CHANGES: Mapping[str, Changes] = {
    "cartpole": {"learning_rate": 5e-3, "envs": 16, "horizon": 16},
    "acrobot": {"learning_rate": 1e-3, "envs": 16, "horizon": 16},
    "pendulum": {
        "steps": 1_000_000,
        "envs": 16,
        "horizon": 16,
        "gamma": 0.9,
        "gae_lambda": 0.9,
        "learning_rate": 1e-3,
        "entropy_coefficient": 0.0,
        "normalize": "rewards",
    },
}
REINFORCE_CHANGES: Mapping[str, Changes] = {
    "cartpole": {"learning_rate": 5e-3, "envs": 8, "horizon": 64},
}
SOLVED: Mapping[str, float] = {  # the mean return at which Gymnasium's registry counts an environment as solved
    "cartpole": 475.0,
    "acrobot": -100.0,
    "mountain_car": -110.0,
    "mountain_car_continuous": 90.0,
}


def _defaults(kind: Callable[[Experience], A], table: Mapping[str, Changes], env: str) -> A:
    choose("--env", env, dict.fromkeys(ENV_NAMES))
    return changed(kind(Experience(env=env)), table.get(env, {}))


ppo_defaults: Callable[[str], PPO] = partial(_defaults, PPO, PPO_CHANGES)
a2c_defaults: Callable[[str], A2C] = partial(_defaults, A2C, A2C_CHANGES)
reinforce_defaults: Callable[[str], Reinforce] = partial(_defaults, Reinforce, REINFORCE_CHANGES)

"""Our worlds, and what goes around them, obey their laws."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.wrappers import TransformObservation, TransformReward

from purestep.core.env import Env, auto_reset, episode_statistics, time_limit
from purestep.core.envs import (
    acrobot,
    cartpole,
    gridworld,
    mountain_car,
    mountain_car_continuous,
    pendulum,
    probe_discount,
    tabular,
    tabular_mdp,
)
from purestep.properties import (
    auto_reset_laws,
    check,
    env_laws,
    env_suite,
    gym_laws,
    memory_laws,
    time_limit_laws,
    vector_env_laws,
    wrapper_laws,
)
from purestep.properties.framework.compare import EXACT
from purestep.properties.suites.gym_vector import vectored
from purestep.runtime.rollout import rollout

from ..support.copying import NESTED, copying
from .core.kernel import kernel_laws

LIMIT = 4
exact_laws = env_suite(tolerance=EXACT)


def random_walk() -> Env[Any, Any]:
    """Four cells in a row; a push succeeds three times in four, and the right end may end the episode."""
    states = torch.arange(4)
    right = torch.nn.functional.one_hot((states + 1).clamp(max=3), 4)
    left = torch.nn.functional.one_hot((states - 1).clamp(min=0), 4)
    pushes = torch.stack([0.75 * left + 0.25 * right, 0.25 * left + 0.75 * right], 1)
    ending = torch.tensor([0.0, 0.0, 0.0, 0.5])
    return tabular(tabular_mdp(pushes, pushes.sum(-1), termination=ending, initial=torch.ones(4)))


def scaled(env: Any) -> Any:
    """Return an environment with bounded observations and small rewards."""
    bounded = TransformObservation(env, np.tanh, env.observation_space)
    return TransformReward(bounded, lambda reward: float(reward) / 16)


test_memory = check(memory_laws(), rollout)
test_cartpole = check(env_laws, cartpole())
test_nested_actions = check(env_laws, copying(NESTED))
test_pendulum_with_limit = check(env_laws, time_limit(pendulum(), LIMIT))
test_gridworld = check(exact_laws, gridworld(["S.G", "..."]))
test_random_walk = check(exact_laws, random_walk())
test_probe = pytest.mark.slow(check(exact_laws, probe_discount()))
test_statistics_around_reset = check(
    exact_laws,
    episode_statistics(auto_reset(time_limit(random_walk(), LIMIT))),
    skip={"compiled_is_eager": "its parts are compiled above and in the tests of train"},
)

test_acrobot = pytest.mark.slow(check(env_laws, acrobot()))
test_mountain_car = pytest.mark.slow(check(env_laws, mountain_car()))
test_mountain_car_continuous = pytest.mark.slow(check(env_laws, mountain_car_continuous()))

inner = time_limit(cartpole(), LIMIT)
test_auto_reset_pooled = check(auto_reset_laws(inner), auto_reset(inner))
test_auto_reset_select = check(auto_reset_laws(inner), auto_reset(inner, "select"))
test_auto_reset_of_chance = check(auto_reset_laws(random_walk()), auto_reset(random_walk()))
test_time_limit = check(time_limit_laws(cartpole(), LIMIT), inner)
test_time_limit_of_one = check(time_limit_laws(random_walk(), 1), time_limit(random_walk(), 1))
test_kernel = check(kernel_laws(), tabular)

test_gymnasium = check(gym_laws(steps=12), "FrozenLake-v1")  # others: python -m benchmarks.wild
test_gymnasium_vector = check(vector_env_laws("FrozenLake-v1"), vectored("FrozenLake-v1", "DISABLED"))
test_gymnasium_wrapper = check(
    wrapper_laws("Pendulum-v1", reward=lambda reward: reward / 16, observation=np.tanh, steps=8), scaled
)

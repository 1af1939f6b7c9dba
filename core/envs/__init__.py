"""Environments, one file each, and the table of named environments."""

from collections.abc import Callable, Mapping
from typing import Any

from ..env import Env, time_limit
from ..errors import choose
from .acrobot import acrobot
from .cartpole import cartpole
from .gridworld import gridworld
from .mountain_car import mountain_car, mountain_car_continuous
from .pendulum import pendulum
from .probes import probe_action, probe_both, probe_constant, probe_discount, probe_observation
from .tabular import TabularMDP, tabular, tabular_mdp

__all__ = [
    "ENVS",
    "TabularMDP",
    "acrobot",
    "cartpole",
    "gridworld",
    "make",
    "mountain_car",
    "mountain_car_continuous",
    "pendulum",
    "probe_action",
    "probe_both",
    "probe_constant",
    "probe_discount",
    "probe_observation",
    "tabular",
    "tabular_mdp",
]

ENVS: Mapping[str, Callable[[], Env[Any, Any]]] = {
    "cartpole": lambda: time_limit(cartpole(), 500),
    "pendulum": lambda: time_limit(pendulum(), 200),
    "acrobot": lambda: time_limit(acrobot(), 500),
    "mountain_car": lambda: time_limit(mountain_car(), 200),
    "mountain_car_continuous": lambda: time_limit(mountain_car_continuous(), 999),
    "gridworld": lambda: time_limit(gridworld(), 100),
    "probe_constant": probe_constant,
    "probe_observation": probe_observation,
    "probe_discount": probe_discount,
    "probe_action": probe_action,
    "probe_both": probe_both,
}


def make(name: str) -> Env[Any, Any]:
    """Return the named env, with its usual time limit and without auto-reset. Raises: ChoiceError.

    >>> make("cartpole").action_space
    Discrete(n=2)
    """
    return choose("make: env", name, ENVS)()

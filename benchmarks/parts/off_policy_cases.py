"""The cases of `benchmarks.off_policy`: rejax's settings of an algorithm on an environment, and the same in our words."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen


@frozen(kw_only=True)
class Case:
    """An algorithm on an environment for a number of steps, in `envs` environments that each make `horizon` steps at a time."""

    algorithm: str
    env: str
    steps: int
    envs: int
    rate: float
    norm: float = 10.0  # the largest norm of a gradient
    horizon: int = 1
    activation: str = "silu"
    model: Mapping[str, Any] = {}  # of purestep
    purestep: Mapping[str, Any]
    rejax: Mapping[str, Any]
    stable_baselines3: Mapping[str, Any] = {}  # run only where there are some


NAMES = {
    "cartpole": "CartPole-v1",
    "acrobot": "Acrobot-v1",
    "pendulum": "Pendulum-v1",
    "mountain_car_continuous": "MountainCarContinuous-v0",
}
EPSILON = {"eps_start": 1.0, "eps_end": 0.05, "exploration_fraction": 0.5}
Q_NETWORK = {"num_envs": 10, "batch_size": 100, "max_grad_norm": 10.0, "num_epochs": 5, "gamma": 0.99}
BATCHES = {"batch_size": 100, "updates": 5, "gamma": 0.99, "exploration_steps": 50_000}
PQN: Mapping[str, Any] = {
    "algorithm": "pqn",
    "steps": 524_288,
    "envs": 16,
    "horizon": 128,
    "rate": 3e-4,
    "activation": "relu",
    "model": {"is_normalized": True},
    "purestep": {
        "gamma": 0.99,
        "q_lambda": 0.9,
        "epochs": 5,
        "minibatches": 16,
        "exploration": 0.05,
        "exploration_steps": 262_144,
    },
    "rejax": {
        "num_envs": 16,
        "num_steps": 128,
        "num_minibatches": 16,
        "num_epochs": 5,
        "max_grad_norm": 10.0,
        "gamma": 0.99,
        "td_lambda": 0.9,
        **EPSILON,
    },
}
CASES: Mapping[str, Case] = {
    "dqn-cartpole": Case(
        algorithm="dqn",
        env="cartpole",
        steps=100_000,
        envs=10,
        rate=1e-3,
        model={"is_dueling": True},
        purestep={
            **BATCHES,
            "replay_size": 50_000,
            "learning_starts": 5_000,
            "target_period": 1,
            "target_rate": 0.02,
            "loss": "squared",
        },
        rejax={
            **Q_NETWORK,
            **EPSILON,
            "agent": "DuelingQNetwork",
            "agent_kwargs": {"activation": "swish"},
            "buffer_size": 50_000,
            "fill_buffer": 5_000,
            "polyak": 0.98,
            "ddqn": True,
        },
        stable_baselines3={"learning_starts": 5_000, "buffer_size": 50_000, "batch_size": 100, "train_freq": 2},
    ),
    "dqn-acrobot": Case(
        algorithm="dqn",
        env="acrobot",
        steps=100_000,
        envs=10,
        rate=1e-3,
        model={"is_dueling": True},
        purestep={**BATCHES, "replay_size": 10_000, "learning_starts": 1_000, "target_period": 100, "loss": "squared"},
        rejax={
            **Q_NETWORK,
            **EPSILON,
            "agent": "DuelingQNetwork",
            "agent_kwargs": {"activation": "swish"},
            "buffer_size": 10_000,
            "fill_buffer": 1_000,
            "target_update_freq": 200,
            "ddqn": True,
        },
    ),
    "pqn-cartpole": Case(env="cartpole", **PQN),
    "pqn-acrobot": Case(env="acrobot", **PQN),
    "iqn-acrobot": Case(
        algorithm="iqn",
        env="acrobot",
        steps=100_000,
        envs=10,
        rate=3e-4,
        purestep={
            **BATCHES,
            "replay_size": 100_000,
            "learning_starts": 1_000,
            "target_period": 250,
            "levels": 64,
            "target_levels": 64,
            "exploration": 0.01,
            "target": "max",
        },
        rejax={
            **Q_NETWORK,
            **EPSILON,
            "eps_end": 0.01,
            "agent_kwargs": {"activation": "swish"},
            "buffer_size": 100_000,
            "fill_buffer": 1_000,
            "target_update_freq": 500,
        },
    ),
    "sac-pendulum": Case(
        algorithm="sac",
        env="pendulum",
        steps=10_000,
        envs=1,
        rate=1e-2,
        norm=1e9,
        purestep={"replay_size": 10_000, "learning_starts": 256, "batch_size": 256, "target_rate": 0.02},
        rejax={
            "agent_kwargs": {"activation": "swish"},
            "num_envs": 1,
            "buffer_size": 10_000,
            "fill_buffer": 256,
            "batch_size": 256,
            "num_epochs": 1,
            "polyak": 0.98,
            "normalize_observations": True,
        },
        stable_baselines3={"learning_starts": 256, "buffer_size": 10_000, "batch_size": 256, "tau": 0.02},
    ),
    "td3-pendulum": Case(
        algorithm="td3",
        env="pendulum",
        steps=10_000,
        envs=1,
        rate=1e-3,
        norm=100.0,
        purestep={
            "replay_size": 10_000,
            "learning_starts": 1_000,
            "batch_size": 100,
            "target_rate": 0.05,
            "exploration": 0.15,  # in half ranges of 2
            "exploration_steps": 1_000,
            "smoothing": 0.1,
            "smoothing_limit": 0.25,
        },
        rejax={
            "actor_kwargs": {"activation": "swish"},
            "critic_kwargs": {"activation": "swish"},
            "num_envs": 1,
            "buffer_size": 10_000,
            "fill_buffer": 1_000,
            "batch_size": 100,
            "num_epochs": 1,
            "polyak": 0.95,
            "max_grad_norm": 100.0,
            "exploration_noise": 0.3,
            "target_noise": 0.2,
            "target_noise_clip": 0.5,
            "policy_delay": 2,
            "normalize_observations": True,
        },
        stable_baselines3={"learning_starts": 1_000, "buffer_size": 10_000, "batch_size": 100, "tau": 0.05},
    ),
    "sac-mountain_car_continuous": Case(
        algorithm="sac",
        env="mountain_car_continuous",
        steps=50_000,
        envs=32,
        rate=5e-3,
        norm=1e9,
        purestep={
            "replay_size": 10_000,
            "learning_starts": 256,
            "batch_size": 256,
            "updates": 32,
            "target_rate": 0.01,
        },
        rejax={
            "agent_kwargs": {"activation": "swish"},
            "num_envs": 32,
            "buffer_size": 10_000,
            "fill_buffer": 256,
            "batch_size": 256,
            "num_epochs": 32,
            "polyak": 0.99,
        },
    ),
    "td3-mountain_car_continuous": Case(
        algorithm="td3",
        env="mountain_car_continuous",
        steps=10_000,
        envs=1,
        rate=2e-3,
        activation="relu",
        purestep={
            "replay_size": 10_000,
            "learning_starts": 1_000,
            "batch_size": 100,
            "gamma": 0.98,
            "target_rate": 0.005,
            "exploration": 0.2,
            "exploration_steps": 1_000,
        },
        rejax={
            "actor_kwargs": {"activation": "relu"},
            "critic_kwargs": {"activation": "relu"},
            "num_envs": 1,
            "buffer_size": 10_000,
            "fill_buffer": 1_000,
            "batch_size": 100,
            "num_epochs": 1,
            "gamma": 0.98,
            "polyak": 0.995,
            "max_grad_norm": 10.0,
            "exploration_noise": 0.2,
            "target_noise": 0.2,
            "target_noise_clip": 0.5,
            "policy_delay": 2,
        },
    ),
}

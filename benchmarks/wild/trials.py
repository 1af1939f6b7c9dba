"""Suites on the functions of one package, run in that package's environment: `python -m benchmarks.wild.trials NAME`.

A subject of another form than its suite asks for goes through `purestep.properties.adapters`, or is adapted in a few lines
here; the conventions are those that the package documents. Each result is printed as one line of JSON.
"""

import functools
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from purestep.properties import (
    aggregate_laws,
    chat_template_laws,
    distribution_laws,
    estimator_laws,
    group_laws,
    gym_laws,
    kl_laws,
    lambda_return_laws,
    loss_laws,
    n_step_laws,
    normalizer_laws,
    optimizer_laws,
    policy_laws,
    replay_laws,
    reward_function_laws,
    schedule_laws,
    target_laws,
    token_gae_laws,
    value_loss_laws,
    vector_env_laws,
    verify,
    wrapper_laws,
)
from purestep.properties.adapters import jax as jax_adapters
from purestep.properties.adapters import stable_baselines3 as sb3
from purestep.properties.adapters import torchrl as torchrl_adapters
from purestep.properties.adapters import verl as verl_adapters
from purestep.properties.adapters.jax import to_arrays, to_tensor
from purestep.properties.adapters.pettingzoo import joint
from purestep.properties.framework.law import Suite
from purestep.properties.suites.distribution import classes
from purestep.properties.suites.gym import registered
from purestep.properties.suites.gym_vector import vectored

Trial = tuple[str, Callable[[], Suite], Any]
ENUMERATED = {"expected_advantage", "gradient_is_exact"}  # laws of the bootstrap convention that need float64 inside


def streams() -> Suite:
    """Laws of estimators that are pure functions of one stream in float32."""
    return estimator_laws() - ENUMERATED


def pytorch() -> Iterator[Trial]:
    from torch import distributions as d
    from torch.optim import lr_scheduler as rates

    families: dict[str, tuple[Callable[..., Any], float, float]] = {
        "Normal": (lambda a, b: d.Normal(a, b.exp()), -math.inf, math.inf),
        "Laplace": (lambda a, b: d.Laplace(a, b.exp()), -math.inf, math.inf),
        "Gumbel": (lambda a, b: d.Gumbel(a, b.exp()), -math.inf, math.inf),
        "LogNormal": (lambda a, b: d.LogNormal(a, b.exp()), 0.0, math.inf),
        "Gamma": (lambda a, b: d.Gamma(1 + a.exp(), b.exp()), 0.0, math.inf),
        "Weibull": (lambda a, b: d.Weibull(b.exp(), 1.5 + a / 4), 0.0, math.inf),
        "Beta": (lambda a, b: d.Beta(0.5 + a.tanh() / 4, 1 + b.square()), 0.0, 1.0),
        "Kumaraswamy": (lambda a, b: d.Kumaraswamy(1 + a.exp(), 1 + b.exp()), 0.0, 1.0),
    }
    for name, (make, low, high) in families.items():
        yield name, lambda low=low, high=high: distribution_laws(low=low, high=high, event=False), make
    yield (
        "Weibull of concentration 1/2",  # much of its mass is so close to 0 that quadrature has no nodes there
        lambda: distribution_laws(low=0.0, event=False) - {"density_integrates_to_1", "entropy"},
        lambda a, b: d.Weibull((a + b).exp(), 0.5),
    )
    rules: dict[str, tuple[Any, dict[str, Any]]] = {
        "adam": (torch.optim.Adam, {}),
        "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
        "adamax": (torch.optim.Adamax, {}),
        "sgd": (torch.optim.SGD, {"momentum": 0.5}),
        "rmsprop": (torch.optim.RMSprop, {}),
        "adagrad": (torch.optim.Adagrad, {}),
    }
    for rule, (make, settings) in rules.items():
        yield (
            f"{make.__name__} {settings or ''}".strip(),
            lambda rule=rule, settings=settings: optimizer_laws(rule, **settings),
            lambda params, lr, make=make, settings=settings: make(params, lr=lr, **settings),
        )

    def at_epoch(n: int) -> float:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        schedule = rates.CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=3)
        schedule.step(n)
        return float(schedule.get_last_lr()[0])

    yield (
        "CosineAnnealingLR",
        lambda: schedule_laws(start=1.0, end=0.0, steps=10, shape="cosine", constant_after=False),
        lambda optimizer: rates.CosineAnnealingLR(optimizer, 10),
    )
    yield (
        "LinearLR",
        lambda: schedule_laws(start=0.5, end=1.0, steps=8, shape="linear"),
        lambda optimizer: rates.LinearLR(optimizer, 0.5, 1.0, 8),
    )
    for restart in (4, 40, 121):  # (3^k - 1) / 2
        options = {"monotone": False, "constant_after": False, "jump": 1.0, "argument": "int"}
        yield (
            f"CosineAnnealingWarmRestarts.step({restart})",
            lambda restart=restart, options=options: schedule_laws(start=1.0, end=1.0, steps=restart, **options),
            at_epoch,
        )


def gymnasium() -> Iterator[Trial]:
    import gymnasium as package
    import numpy as np
    from gymnasium import wrappers as w
    from gymnasium.wrappers.utils import RunningMeanStd

    names = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1")
    for name in (*names, "Blackjack-v1", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"):
        yield name, lambda: gym_laws(steps=16), name
    for name in ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"):
        yield f"{name}, observations written into", lambda: gym_laws(steps=12, writable=True), name
    for name in ("CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1"):
        for mode in ("SAME_STEP", "NEXT_STEP", "DISABLED"):
            one = registered(name, 9)
            yield f"SyncVectorEnv {name} {mode}", lambda one=one: vector_env_laws(one, steps=12), vectored(one, mode)

    class Clock(package.Env[Any, Any]):
        """An observation is the time, so that the larger of two is the later one."""

        observation_space, action_space = package.spaces.Box(0, 6, (1,)), package.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.time = 0
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            self.time += 1
            return np.full(1, self.time, np.float32), 1.0, self.time == 6, False, {}

    around: dict[str, tuple[Callable[[], Suite], Any]] = {
        "FrameStackObservation": (
            lambda: wrapper_laws("CartPole-v1", stack=3),
            lambda env: w.FrameStackObservation(env, 3),
        ),
        "RescaleAction": (
            lambda: wrapper_laws("Pendulum-v1", action=lambda action: 2 * action),
            lambda env: w.RescaleAction(env, np.float32(-1), np.float32(1)),
        ),
        "ClipReward": (
            lambda: wrapper_laws("Pendulum-v1", reward=lambda reward: np.clip(reward, -1, 0.5)),
            lambda env: w.ClipReward(env, -1, 0.5),
        ),
        "ReshapeObservation": (
            lambda: wrapper_laws("Pendulum-v1", observation=lambda seen: seen.reshape(3, 1)),
            lambda env: w.ReshapeObservation(env, (3, 1)),
        ),
        "RecordEpisodeStatistics": (lambda: wrapper_laws("CartPole-v1"), w.RecordEpisodeStatistics),
        "Autoreset": (lambda: wrapper_laws("CartPole-v1"), w.Autoreset),
        "MaxAndSkipObservation": (lambda: wrapper_laws(Clock, repeat=4), lambda env: w.MaxAndSkipObservation(env, 4)),
        "StickyAction with 0": (lambda: wrapper_laws("CartPole-v1"), lambda env: w.StickyAction(env, 0.0)),
    }
    for name, (suite, wrap) in around.items():
        yield name, suite, wrap
    yield (
        "RunningMeanStd",
        lambda: normalizer_laws(arrays="numpy", prior=1e-4),
        lambda shape: RunningMeanStd(shape=shape),
    )


def minigrid() -> Iterator[Trial]:
    import minigrid as package

    del package
    for name in ("Empty-5x5", "DoorKey-5x5", "FourRooms", "LavaGapS5", "MemoryS7", "KeyCorridorS3R1"):
        yield name, lambda: gym_laws(steps=12), f"MiniGrid-{name}-v0"


def stable_baselines3() -> Iterator[Trial]:
    from gymnasium import spaces
    from stable_baselines3.common import buffers, policies
    from stable_baselines3.common import distributions as d
    from stable_baselines3.common.running_mean_std import RunningMeanStd

    yield "ReplayBuffer", replay_laws, sb3.replay_buffer(buffers.ReplayBuffer)
    several = sb3.replay_buffer(buffers.NStepReplayBuffer, n_steps=3, gamma=0.5)
    yield "NStepReplayBuffer", lambda: replay_laws(n=3, gamma=0.5), several
    yield "RolloutBuffer", estimator_laws, sb3.rollout_buffer(buffers.RolloutBuffer)
    yield "DiagGaussianDistribution", distribution_laws, sb3.gaussian(d.DiagGaussianDistribution)
    bounded = sb3.gaussian(d.SquashedDiagGaussianDistribution)
    yield "SquashedDiagGaussianDistribution", lambda: distribution_laws(low=-1, high=1), bounded
    outcomes = sb3.categorical(d.CategoricalDistribution)
    yield "CategoricalDistribution", lambda: distribution_laws(outcomes=torch.arange), outcomes
    statistics = sb3.statistics(RunningMeanStd)
    yield "RunningMeanStd", lambda: normalizer_laws(arrays="numpy", prior=1e-4), statistics
    seen = spaces.Box(-1, 1, (3,)), spaces.Discrete(5)
    for observation, action in ((seen[0], spaces.Discrete(4)), (seen[0], spaces.Box(-1, 1, (2,))), (seen[1], seen[1])):
        policy = policies.ActorCriticPolicy(observation, action, lambda _: 1e-3)
        name = f"ActorCriticPolicy, {type(observation).__name__} to {type(action).__name__}"
        yield name, lambda policy=policy: policy_laws(**sb3.spaces(policy)), sb3.actor_critic(policy)


def pettingzoo() -> Iterator[Trial]:
    from pettingzoo.butterfly import cooperative_pong_v6, knights_archers_zombies_v11
    from pettingzoo.classic import rps_v2

    yield "rps_v2", lambda: gym_laws(steps=24), joint(rps_v2.parallel_env)
    own = {"observations_stay"}  # it returns new images, so that there is none that a step could change
    yield "cooperative_pong_v6", lambda: gym_laws(steps=24) - own, joint(cooperative_pong_v6.parallel_env)
    yield "knights_archers_zombies_v11", lambda: gym_laws(steps=24), joint(knights_archers_zombies_v11.parallel_env)


def sb3_contrib() -> Iterator[Trial]:
    from sb3_contrib.common.maskable.distributions import MaskableCategoricalDistribution

    def masked(logits: Tensor, mask: Tensor) -> Any:
        made = MaskableCategoricalDistribution(logits.shape[-1]).proba_distribution(logits)
        made.apply_masking(mask.numpy())
        return made

    exact = {"illegal_is_impossible"}  # a gradient of 3e-17 for an illegal action is no fault
    yield "MaskableCategoricalDistribution", lambda: distribution_laws(outcomes=classes, masked=True) - exact, masked


def torchrl() -> Iterator[Trial]:
    import torchrl.objectives.value.functional as values
    from torchrl.data import ReplayBuffer
    from torchrl.envs.custom.pendulum import PendulumEnv
    from torchrl.modules.distributions import IndependentNormal, TruncatedNormal
    from torchrl.objectives import ClipPPOLoss

    def adapted(function: Any, state: bool = True) -> Any:
        def estimator(
            r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
        ) -> Tensor:
            columns = [part.unsqueeze(-1) for part in ((v, after, r) if state else (after, r))]
            ends = [part.unsqueeze(-1) for part in (term | trunc, term)]
            found = function(gamma, lambda_, *columns, *ends)
            return (found[0] if isinstance(found, tuple) else found).squeeze(-1)

        return estimator

    for name in ("generalized_advantage_estimate", "td_lambda_advantage_estimate"):
        yield name, streams, adapted(getattr(values, name))
        yield f"vec_{name}", streams, adapted(getattr(values, f"vec_{name}"))
    for name in ("td_lambda_return_estimate", "vec_td_lambda_return_estimate"):
        yield name, lambda: lambda_return_laws() - {"expected_target"}, adapted(getattr(values, name), False)
    yield "IndependentNormal", distribution_laws, lambda mean, log_std: IndependentNormal(mean, log_std.exp())
    yield (
        "TruncatedNormal",
        lambda: distribution_laws(low=-1, high=1),
        lambda mean, log_std: TruncatedNormal(mean, log_std.exp()),
    )
    yield "ReplayBuffer", replay_laws, torchrl_adapters.replay_buffer(ReplayBuffer)
    yield "ClipPPOLoss", loss_laws, torchrl_adapters.clipped_loss(ClipPPOLoss)
    yield "PendulumEnv", lambda: gym_laws(steps=12), torchrl_adapters.gym_env(PendulumEnv)


def skrl() -> Iterator[Trial]:
    from skrl.agents.torch.ppo.ppo import compute_gae
    from skrl.resources.preprocessors.torch import RunningStandardScaler

    def gae(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        rewards, values, terminated, truncated = (part.reshape(-1, 1) for part in (r, v, term, trunc))
        returns, _ = compute_gae(
            rewards=rewards, values=values, terminated=terminated, truncated=truncated, last_values=after[-1:],
            discount_factor=gamma, lambda_coefficient=lambda_,
        )  # fmt: skip
        return returns[:, 0] - v

    class Statistics:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.scaler, self.shape = RunningStandardScaler(shape or 1), shape

        def update(self, batch: Tensor) -> None:
            self.scaler(batch.reshape(len(batch), -1), train=True)

        mean = property(lambda self: self.scaler.running_mean.reshape(self.shape))
        var = property(lambda self: self.scaler.running_variance.reshape(self.shape))

    yield "compute_gae", streams, gae
    yield "RunningStandardScaler", lambda: normalizer_laws(prior=1.0), Statistics


def rsl_rl() -> Iterator[Trial]:
    from rsl_rl.modules.normalization import EmpiricalNormalization

    class Statistics:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.found, self.shape = EmpiricalNormalization(list(shape) or 1), shape
            self.found.train()

        def update(self, batch: Tensor) -> None:
            self.found.update(batch.float().reshape(len(batch), -1))

        mean = property(lambda self: self.found.mean.reshape(self.shape))
        var = property(lambda self: self.found.std.reshape(self.shape) ** 2)

    yield "EmpiricalNormalization", lambda: normalizer_laws(tolerance=1e-3), Statistics


def tianshou() -> Iterator[Trial]:
    import numpy as np
    from tianshou.algorithm.algorithm_base import Algorithm
    from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer
    from tianshou.utils.statistics import RunningMeanStd

    def gae(
        r: Tensor, v: Tensor, after: Tensor, term: Tensor, trunc: Tensor, *, gamma: float, lambda_: float
    ) -> Tensor:
        rows = ReplayBuffer(len(r))
        for t in range(len(r)):
            ends = {"terminated": bool(term[t]), "truncated": bool(trunc[t])}
            rows.add(Batch(obs=0, act=0, rew=float(r[t]), obs_next=0, info={}, **ends))
        batch, indices = rows.sample(0)
        _, found = Algorithm.compute_episodic_return(batch, rows, indices, after.numpy(), v.numpy(), gamma, lambda_)
        return torch.as_tensor(found).to(r.dtype)

    class Statistics:
        def __init__(self, shape: tuple[int, ...]) -> None:
            self.found = RunningMeanStd(np.zeros(shape), np.ones(shape))

        def update(self, batch: Any) -> None:
            self.found.update(batch)

        mean = property(lambda self: self.found.mean)
        var = property(lambda self: self.found.var)

    class Replay:
        def __init__(self, capacity: int, make: Any = ReplayBuffer, **options: Any) -> None:
            self.rows = make(capacity, **options)

        def add(self, step: Any) -> None:
            row = {name: float(value) for name, value in step.items()}
            parts = {"obs": row["observation"], "act": row["action"], "rew": row["reward"], "info": {}}
            ends = {name: bool(row[name]) for name in ("terminated", "truncated")}
            self.rows.add(Batch(**parts, **ends, obs_next=row["next_observation"]))

        def sample(self, count: int) -> Any:
            found, index = self.rows.sample(count)
            names = {"observation": "obs", "action": "act", "reward": "rew", "next_observation": "obs_next"}
            names |= {name: name for name in ("terminated", "truncated", "weight") if name in found}
            return {"index": index, **{name: torch.as_tensor(found[theirs]) for name, theirs in names.items()}}

        def update_priorities(self, index: Tensor, priority: Tensor) -> None:
            self.rows.update_weight(torch.as_tensor(index).numpy(), priority / 16)  # a factor cancels in both laws

        def __len__(self) -> int:
            return len(self.rows)

    def prioritised(norm: bool) -> Any:
        options = {"alpha": 0.5, "beta": 1.0, "weight_norm": norm}
        return lambda capacity: Replay(capacity, PrioritizedReplayBuffer, **options)

    yield "compute_episodic_return", streams, gae
    yield "RunningMeanStd", lambda: normalizer_laws(arrays="numpy"), Statistics
    yield "ReplayBuffer", replay_laws, Replay
    for norm in (True, False):
        name = f"PrioritizedReplayBuffer(weight_norm={norm})"
        yield name, lambda: replay_laws(alpha=0.5, beta=1.0), prioritised(norm)


def d3rlpy() -> Iterator[Trial]:
    import numpy as np
    from d3rlpy import preprocessing
    from d3rlpy.dataset import BasicTrajectorySlicer, BasicTransitionPicker, Episode

    def fitted(scaler: Any, episodes: list[Any], slices: bool) -> Any:
        if slices:
            scaler.fit_with_trajectory_slicer(episodes, BasicTrajectorySlicer())
        else:
            scaler.fit_with_transition_picker(episodes, BasicTransitionPicker())
        return scaler

    class Statistics:
        """Each batch is an episode; observation scalers see all coordinates, reward scalers one at a time."""

        def __init__(self, shape: tuple[int, ...], rewards: bool, slices: bool) -> None:
            self.shape, self.rewards, self.slices, self.batches = shape, rewards, slices, list[Any]()

        def update(self, batch: Tensor) -> None:
            self.batches.append(batch.float().numpy().reshape(len(batch), -1))

        def scalers(self) -> list[Any]:
            flat = [(np.zeros((len(rows), 1), np.float32), rows) for rows in self.batches]
            if not self.rewards:
                episodes = [Episode(rows, actions, actions, True) for actions, rows in flat]
                return [fitted(preprocessing.StandardObservationScaler(), episodes, self.slices)]
            width = self.batches[0].shape[1]
            columns_ = [[Episode(a, a, rows[:, i : i + 1], True) for a, rows in flat] for i in range(width)]
            return [fitted(preprocessing.StandardRewardScaler(), episodes, self.slices) for episodes in columns_]

        def _joined(self, name: str) -> Tensor:
            parts = [torch.as_tensor(getattr(scaler, name)).reshape(-1) for scaler in self.scalers()]
            return torch.cat(parts).reshape(self.shape)

        mean = property(lambda self: self._joined("mean"))
        var = property(lambda self: self._joined("std") ** 2)

    for rewards, name in ((False, "StandardObservationScaler"), (True, "StandardRewardScaler")):
        for slices, fit in ((False, "fit_with_transition_picker"), (True, "fit_with_trajectory_slicer")):
            made = functools.partial(Statistics, rewards=rewards, slices=slices)
            yield f"{name}.{fit}", lambda: normalizer_laws(tolerance=1e-4), made


def rlax() -> Iterator[Trial]:
    import jax
    import rlax as package

    jax.config.update("jax_enable_x64", True)

    def squashed(mean: Tensor, log_std: Tensor) -> Any:
        made, outputs = package.squashed_gaussian(), to_arrays(mean, log_std)

        def sample() -> Tensor:
            key = jax.random.key(int(torch.randint(2**31, ())))
            return to_tensor(made.sample(key, *outputs, None), mean)

        return SimpleNamespace(
            sample=sample,
            log_prob=lambda action: to_tensor(made.logprob(*to_arrays(action), *outputs, None), mean),
            entropy=lambda: to_tensor(made.entropy(*outputs), mean),
        )

    gae = package.truncated_generalized_advantage_estimation
    yield "truncated_generalized_advantage_estimation", estimator_laws, jax_adapters.advantages(gae)
    yield "lambda_returns", lambda_return_laws, jax_adapters.lambda_returns(package.lambda_returns)
    n_steps = jax_adapters.n_step_returns(package.n_step_bootstrapped_returns)
    yield "n_step_bootstrapped_returns", n_step_laws, n_steps
    for name, kind in (("q_learning", "max"), ("double_q_learning", "double")):
        target = jax_adapters.q_target(getattr(package, name))
        yield name, lambda kind=kind: target_laws(kind, endings="terminated"), target
    graph = {"gradient_is_the_slope"}  # another library's
    bounded = {"reaches_both_bounds"}  # its mean is bounded by a tanh of its own
    yield "squashed_gaussian", lambda: distribution_laws(low=-1, high=1, sizes=(1,)) - graph - bounded, squashed


def optax() -> Iterator[Trial]:
    import jax
    import optax as package

    jax.config.update("jax_enable_x64", True)
    rules: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "adam": ("adam", package.adam, {}),
        "adamw": ("adamw", lambda lr: package.adamw(lr, weight_decay=0.1), {"weight_decay": 0.1}),
        "sgd with momentum": ("sgd", lambda lr: package.sgd(lr, momentum=0.5), {"momentum": 0.5}),
        "lion": ("lion", lambda lr: package.lion(lr, weight_decay=0.0), {}),
        "adamax": ("adamax", package.adamax, {}),
        "clip_by_global_norm": (
            "sgd",
            lambda lr: package.chain(package.clip_by_global_norm(1.0), package.sgd(lr)),
            {"clip_norm": 1.0},
        ),
    }
    for name, (rule, make, settings) in rules.items():
        suite = functools.partial(optimizer_laws, rule, **settings)
        yield name, suite, jax_adapters.optimizer(make)
    curves: dict[str, tuple[Any, dict[str, Any]]] = {
        "linear_schedule": (
            package.linear_schedule(1.0, 0.25, 8),
            {"start": 1.0, "end": 0.25, "steps": 8, "shape": "linear"},
        ),
        "cosine_decay_schedule": (
            package.cosine_decay_schedule(1.0, 8),
            {"start": 1.0, "end": 0.0, "steps": 8, "shape": "cosine"},
        ),
        "warmup_cosine_decay_schedule": (
            package.warmup_cosine_decay_schedule(0.0, 1.0, 4, 12, 0.25),
            {"start": 0.0, "peak": 1.0, "end": 0.25, "warmup": 4, "steps": 12, "shape": "cosine"},
        ),
        "linear_onecycle_schedule": (
            package.linear_onecycle_schedule(20, 1.0, 0.25, 0.75, 4.0, 8.0),
            {"start": 0.25, "peak": 1.0, "end": 1 / 32, "warmup": 5, "steps": 20},
        ),
        "cosine_onecycle_schedule": (
            package.cosine_onecycle_schedule(20, 1.0, 0.25, 4.0, 8.0),
            {"start": 0.25, "peak": 1.0, "end": 1 / 32, "warmup": 5, "steps": 20, "shape": "cosine"},
        ),
    }
    straight = {"warms_up"}  # a law of straight lines; onecycle rises as a cosine
    for name, (curve, options) in curves.items():
        own = straight if name == "cosine_onecycle_schedule" else set[str]()
        yield (
            name,
            lambda options=options, own=own: schedule_laws(**options, argument="int") - own,
            lambda n, curve=curve: float(curve(n)),
        )


def verl() -> Iterator[Trial]:
    from verl.trainer.ppo import core_algos as package

    for mode in verl_adapters.MODES:
        words = verl_adapters.weights(package.agg_loss, mode=mode)
        reduction = verl_adapters.aggregation(package.agg_loss, mode=mode)
        yield f"agg_loss {mode}", lambda words=words: aggregate_laws(**words), reduction
    for name in ("grpo", "grpo_vectorized", "rloo", "rloo_vectorized"):
        function = getattr(package, f"compute_{name}_outcome_advantage")
        claims = verl_adapters.group(function)
        yield function.__name__, lambda claims=claims: group_laws(**claims), verl_adapters.group_advantage(function)
    yield "compute_gae_advantage_return", token_gae_laws, verl_adapters.token_gae(package.compute_gae_advantage_return)
    vanilla = verl_adapters.policy_loss(package.compute_policy_loss_vanilla)
    yield "compute_policy_loss_vanilla", lambda: loss_laws(mean=True, dual_clip=3.0), vanilla
    values = verl_adapters.value_loss(package.compute_value_loss)
    claims = verl_adapters.value_claims(package.compute_value_loss)
    yield "compute_value_loss", lambda: value_loss_laws(**claims), values
    kinds: dict[str, dict[str, Any]] = {
        "k1": {"never_negative": False},
        "k2": {"unbiased": False},
        "k3": {},
        "k3+": {"gradient": "divergence"},
    }
    for kind, declared in kinds.items():
        penalty = verl_adapters.kl(package.kl_penalty, kind=kind)
        yield f"kl_penalty {kind}", lambda declared=declared: kl_laws(**declared), penalty


def trl() -> Iterator[Trial]:
    import importlib.util
    from pathlib import Path

    from transformers.utils.chat_template_utils import render_jinja_template
    from trl import rewards

    thought = [{"completion": "<think>\na\n</think>\n5"}, {"completion": "5"}]
    solved = [{"completion": text, "solution": "$5$"} for text in (r"It is \boxed{5}", r"\boxed{6}")]
    for name, rows in (
        ("think_format_reward", thought),
        ("accuracy_reward", solved),
        ("reasoning_accuracy_reward", solved),
    ):
        suite = reward_function_laws(rows, low=0.0, high=1.0, messages=True)
        yield name, lambda suite=suite: suite, getattr(rewards, name)
    spec = importlib.util.find_spec("trl")
    folder = Path(str(spec and spec.origin)).parent / "chat_templates"
    for path in sorted(folder.glob("*_training.jinja")):
        if path.name.startswith(("idefics3", "llava", "smolvlm")):
            continue  # their contents are lists of parts

        def render(messages: Any, prompt: bool, text: str = path.read_text()) -> Any:
            options = {"chat_template": text, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
            return render_jinja_template([messages], **options)[0][0]

        yield f"chat template {path.stem}", lambda: chat_template_laws(system=False), render


def reasoning_gym() -> Iterator[Trial]:
    import reasoning_gym as package

    names = (
        "coin_flip",
        "prime_factorization",
        "game_of_life",
        "chain_sum",
        "gcd",
        "countdown",
        "spell_backward",
        "maze",
    )
    for name in (*names, "leg_counting", "sudoku", "base_conversion", "polynomial_equations"):
        data = package.create_dataset(name, size=2, seed=1)
        rows = [{"completion": str(data[place]["answer"]), "entry": data[place]} for place in range(2)]

        def reward(completions: list[str], entry: list[Any], data: Any = data) -> list[float]:
            return [data.score_answer(text, one) for text, one in zip(completions, entry, strict=True)]

        yield name, lambda rows=rows: reward_function_laws(rows, low=0.0, high=1.0), reward


def gymnax() -> Iterator[Trial]:
    import gymnax as package
    import jax
    import numpy as np

    made: dict[str, Any] = {}

    class Space:
        """A space of gymnax with the names and rules of Gymnasium's."""

        def __init__(self, space: Any) -> None:
            self.space, self.dtype = space, np.dtype(space.dtype)

        def contains(self, value: Any) -> bool:
            return bool(self.space.contains(value)) and value.dtype == self.dtype and value.shape == self.space.shape

    class World:
        """An environment of gymnax with the methods of Gymnasium's; its key is the state of a generator."""

        def __init__(self, name: str) -> None:
            if name not in made:
                env, params = package.make(name)
                made[name] = env, params, jax.jit(env.reset), jax.jit(env.step)
            self.env, self.params, self._reset, self._step = made[name]
            self.observation_space = Space(self.env.observation_space(self.params))
            self.action_space = self._actions()
            self.key = jax.random.key(0)

        def _actions(self) -> Any:
            from gymnasium import spaces

            space = self.env.action_space(self.params)
            discrete = hasattr(space, "n")
            return spaces.Discrete(int(space.n)) if discrete else spaces.Box(space.low, space.high, space.shape)

        def _next(self) -> Any:
            self.key, key = jax.random.split(self.key)
            return key

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.key = self.key if seed is None else jax.random.key(seed)
            seen, self.state = self._reset(self._next(), self.params)[:2]
            return np.asarray(seen), {}

        def step(self, action: Any) -> Any:
            seen, self.state, reward, *rest = self._step(self._next(), self.state, action, self.params)
            ends = [bool(part) for part in rest[:-1]]
            return np.asarray(seen), float(reward), ends[0], ends[-1] if len(ends) > 1 else False, {}

        def close(self) -> None:
            pass

    for name in ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Catch-bsuite", "DeepSea-bsuite"):
        yield name, lambda: gym_laws(steps=6), lambda name=name: World(name)


TRIALS: dict[str, Callable[[], Iterator[Trial]]] = {
    "torch": pytorch,
    "gymnasium": gymnasium,
    "minigrid": minigrid,
    "stable-baselines3": stable_baselines3,
    "sb3-contrib": sb3_contrib,
    "pettingzoo": pettingzoo,
    "torchrl": torchrl,
    "skrl": skrl,
    "rsl-rl-lib": rsl_rl,
    "tianshou": tianshou,
    "d3rlpy": d3rlpy,
    "rlax": rlax,
    "optax": optax,
    "trl": trl,
    "verl": verl,
    "reasoning-gym": reasoning_gym,
    "gymnax": gymnax,
}


def main(name: str) -> None:
    """Print the results of a package's trials, one line of JSON each."""
    warnings.simplefilter("ignore")
    for title, suite, subject in TRIALS[name]():
        start, laws = time.process_time(), suite()
        report = verify(laws, subject)
        failed = {result.law.name: result.line()[:300] for result in report.failures}
        row = {"function": title, "suite": laws.name, "laws": len(laws), "failed": failed}
        print(json.dumps({**row, "seconds": round(time.process_time() - start, 1)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347)."""

import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..core import keys
from ..core.errors import ShapeError, choose, message
from ..core.keys import Key
from ..core.optim import Optimizer, apply_updates, global_norm
from ..core.policy import ActorCritic
from ..core.record import record, replace, select, take, tensor
from ..core.scan import scan
from ..core.steps import Trajectory
from ..core.tree import tree_map
from .advantages import gae
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import Number
from .kl import k3
from .policy_losses import ppo_clip
from .value_losses import clipped, squared

METRICS = ("policy_loss", "value_loss", "entropy", "approximate_kl", "clip_fraction", "gradient_norm", "applied")


@record
class Sample:
    """What the loss reads of a transition. Leading axes: a whole batch [N], or a minibatch."""

    observation: Any  # [*, ...]
    action: Tensor  # [*, ...]
    behaviour_log_prob: Tensor = tensor("*", "float")
    behaviour_value: Tensor = tensor("*", "float")  # V before the update
    advantage: Tensor = tensor("*", "float")
    target: Tensor = tensor("*", "float")  # advantage + behaviour_value


@frozen
class _Loss:
    """The numbers of the objective."""

    clip: Number | tuple[Number, Number]
    value_clip: Number
    value_coefficient: Number
    entropy_coefficient: Number
    normalize: bool


def normalized(advantage: Tensor) -> Tensor:
    """(A - mean) / (std + 1e-8) over all entries; std with divisor N, so that one entry gives 0: [*].

    >>> normalized(torch.tensor([1.0, 3.0]))
    tensor([-1.,  1.])
    """
    centred = advantage - advantage.mean()
    return centred / (centred.square().mean().sqrt() + 1e-8)


def ppo(
    model: ActorCritic,
    optimizer: Optimizer,
    *,
    gamma: Number = 0.99,
    lambda_: Number = 0.95,
    clip: Number | tuple[Number, Number] = 0.2,
    value_clip: Number = math.inf,
    epochs: int = 4,
    minibatches: int = 4,
    value_coefficient: Number = 0.5,
    entropy_coefficient: Number = 0.01,
    advantages: str = "minibatch",
    target_kl: Number = math.inf,
) -> Algorithm:
    """PPO for a feed-forward model and trajectories [T, B].

    L = mean(ppo_clip(log pi(a), A) + value_coefficient value_loss - entropy_coefficient H(pi)),    A = gae,    G = v + A

    over minibatches of T B / minibatches rows, each row once in each of `epochs` permutations. value_loss is `squared`, or
    `clipped` where `value_clip` is finite. `advantages` says over what they are normalised: "minibatch", "batch" or "none".
    Once the k3 estimate of KL(behaviour, current) on a minibatch exceeds `target_kl`, neither it nor any later one is
    applied in this update. A truncation and the last row bootstrap from next_observation, a termination does not.
    Clipping the gradient and annealing the learning rate belong to the optimiser (`chain`).

    Metrics, means over the minibatches: policy_loss, value_loss, entropy, approximate_kl, clip_fraction, gradient_norm,
    and applied, the fraction of minibatches that were.
    Raises: ShapeError (rows that minibatches do not divide), ChoiceError.
    Source: Schulman et al. 2017, arXiv:1707.06347; details: Huang et al. 2022, "The 37 implementation details of PPO".

    >>> from purestep.core.optim import adam, chain, clip_by_global_norm
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> algorithm = ppo(model, chain(clip_by_global_norm(0.5), adam(2.5e-4)), epochs=10)
    >>> int(algorithm.init(keys.key(0)).step)
    0
    """
    over = choose(
        "ppo: advantages", advantages, {"minibatch": (False, True), "batch": (True, False), "none": (False, False)}
    )
    whole, each = over
    numbers = _Loss(clip, value_clip, value_coefficient, entropy_coefficient, normalize=each)
    minibatch = _minibatch_update(model, optimizer, numbers, target_kl)

    def init(key: Key) -> TrainState:
        params = model.init(key)
        step = torch.zeros((), dtype=torch.int64, device=key.device)
        return TrainState(params=params, optimizer=optimizer.init(params), step=step)

    def update(state: TrainState, trajectory: Trajectory, key: Key) -> tuple[TrainState, Metrics]:
        samples = prepare(model, state.params, trajectory, gamma=gamma, lambda_=lambda_, normalize=whole)
        rows = order(key, samples.advantage.shape[0], epochs=epochs, minibatches=minibatches)
        applies = torch.ones_like(state.step, dtype=torch.bool)
        carry = (state.params, state.optimizer, applies)
        # Numbers are shuffled at once, each read once; observations, which may be large, for each minibatch as it comes.
        shuffled = take(replace(samples, observation=()), rows)
        (params, optimizer_state, _), figures = scan(
            lambda c, x: minibatch(c, replace(x[1], observation=take(samples.observation, x[0]))),
            carry,
            (rows, shuffled),
            output=samples.advantage,
        )
        after = TrainState(params=params, optimizer=optimizer_state, step=state.step + 1)
        return after, dict(zip(METRICS, figures.mean(0).unbind(), strict=True))

    return Algorithm(init=init, update=update, metrics=METRICS)


def prepare(
    model: ActorCritic, params: Any, trajectory: Trajectory, *, gamma: Number, lambda_: Number, normalize: bool = False
) -> Sample:
    """The rows an update learns from, time and batch joined: trajectory [T, B] -> Sample [T B].

    Values are those of `params`, in one call for observation and one for next_observation.

    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> no, seen = torch.zeros(3, 1, dtype=torch.bool), torch.zeros(3, 1, 2)
    >>> played = Trajectory(observation=seen, action=torch.zeros(3, 1, dtype=torch.int64), reward=torch.ones(3, 1),
    ...                     terminated=no, truncated=no, next_observation=seen, behaviour_log_prob=torch.zeros(3, 1))
    >>> prepare(model, model.init(keys.key(0)), played, gamma=0.5, lambda_=1.0).advantage
    tensor([1.7500, 1.5000, 1.0000])
    """
    _, values, _ = model.apply(params, trajectory.observation, ())
    _, next_values, _ = model.apply(params, trajectory.next_observation, ())
    ends = trajectory.terminated, trajectory.truncated
    advantage = gae(trajectory.reward, values, next_values, *ends, gamma=gamma, lambda_=lambda_)
    samples = Sample(
        observation=trajectory.observation,
        action=trajectory.action,
        behaviour_log_prob=trajectory.behaviour_log_prob,
        behaviour_value=values,
        advantage=normalized(advantage) if normalize else advantage,
        target=values + advantage,
    )
    return tree_map(lambda leaf: leaf.flatten(0, 1), samples)


def order(key: Key, rows: int, *, epochs: int, minibatches: int) -> Tensor:
    """Which rows each minibatch reads: `epochs` permutations, cut: int64 [epochs * minibatches, rows / minibatches].

    Raises: ShapeError.

    >>> sorted(order(keys.key(0), 4, epochs=1, minibatches=2).flatten().tolist())
    [0, 1, 2, 3]
    """
    if rows % minibatches:
        remedy = "change the number of envs, steps or minibatches"
        raise ShapeError(
            message("ppo: rows", got=rows, wanted=f"a multiple of {minibatches} minibatches", remedy=remedy)
        )
    return keys.permutation(keys.split(key, epochs), rows).reshape(epochs * minibatches, rows // minibatches)


def _objective(model: ActorCritic, numbers: _Loss) -> Callable[[Any, Sample], tuple[Tensor, tuple[Tensor, ...]]]:
    def loss(params: Any, sample: Sample) -> tuple[Tensor, tuple[Tensor, ...]]:
        distribution, value, _ = model.apply(params, sample.observation, ())
        log_prob = distribution.log_prob(sample.action)
        advantage = normalized(sample.advantage) if numbers.normalize else sample.advantage
        policy_loss = ppo_clip(log_prob, sample.behaviour_log_prob, advantage, clip=numbers.clip).mean()
        if isinstance(numbers.value_clip, float) and math.isinf(numbers.value_clip):
            value_loss = squared(value, sample.target).mean()
        else:
            value_loss = clipped(value, sample.behaviour_value, sample.target, clip=numbers.value_clip).mean()
        entropy = distribution.entropy().mean()
        total = policy_loss + numbers.value_coefficient * value_loss - numbers.entropy_coefficient * entropy
        log_ratio = (log_prob - sample.behaviour_log_prob).detach()
        divergence = k3(sample.behaviour_log_prob, log_prob).mean()
        figures = policy_loss, value_loss, entropy, divergence, _outside(log_ratio, numbers.clip)
        return total, tuple(figure.detach() for figure in figures)

    return loss


def _outside(log_ratio: Tensor, clip: Number | tuple[Number, Number]) -> Tensor:
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    ratio = torch.exp(log_ratio)
    return ((ratio < 1 - low) | (ratio > 1 + high)).to(ratio.dtype).mean()


def _minibatch_update(model: ActorCritic, optimizer: Optimizer, numbers: _Loss, target_kl: Number) -> Any:
    gradient = torch.func.grad(_objective(model, numbers), has_aux=True)
    unlimited = isinstance(target_kl, float) and math.isinf(target_kl)

    def step(carry: tuple[Any, Any, Tensor], sample: Sample) -> tuple[tuple[Any, Any, Tensor], Tensor]:
        params, optimizer_state, applies = carry
        gradients, figures = gradient(params, sample)
        updates, new_state = optimizer.update(gradients, optimizer_state, params)
        new_params = apply_updates(params, updates)
        if not unlimited:
            applies = applies & (figures[3] <= target_kl)
            new_params = select(applies, new_params, params)
            new_state = select(applies, new_state, optimizer_state)
        figures = (*figures, global_norm(gradients), applies.to(figures[0].dtype))
        return (new_params, new_state, applies), torch.stack(figures)

    return step

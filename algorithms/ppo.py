"""Proximal policy optimisation with a clipped objective (Schulman et al. 2017, arXiv:1707.06347).

In reading order: `ppo` and its settings, an update (`ppo_learner`), advantages (`prepare_samples`), epochs (`minibatch_rows`),
a minibatch, the loss. A model with memory is trained on whole sequences in the place of rows. A variant of PPO differs in its
surrogate: the log-probs against which a ratio is taken, and the weight of a row's loss.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ..core import keys
from ..core.distributions import Distribution
from ..core.errors import ShapeError, message
from ..core.keys import Key
from ..core.optim.interface import Optimizer, check_optimizer
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.policy import ActorCritic, apply_to_sequences, check_model, recalled, values_replayed
from ..core.record import record, replace, select, take, tensor
from ..core.scan import scan
from ..core.steps import Remembered, Trajectory, ended
from ..core.tree import leaves, tree_map
from .actor_critic import initial_state
from .advantages import gae
from .algorithm import Algorithm, Metrics, TrainState
from .hyperparameters import (
    Clip,
    Coefficient,
    Count,
    Fraction,
    Limit,
    Number,
    Numbers,
    Weight,
    current_numbers,
    given_as_tensors,
    numbers_of,
)
from .kl import k3
from .losses import clipped, ppo_clip, squared, total_loss

METRICS = ("policy_loss", "value_loss", "entropy", "approximate_kl", "clip_fraction", "gradient_norm", "applied")
FIGURES = METRICS.index("gradient_norm")  # number of metrics that the loss returns


@record
class PPOSample:
    """The inputs of the loss from a transition. Leading axes: a whole batch [N], or a minibatch.

    Of a model with memory they are those of a sequence: B of them, or a minibatch, behind which comes the time axis [T].
    """

    observation: Any  # [*, ...]
    action: Any  # [*, ...]
    behaviour_log_prob: Tensor = tensor("*", "float")
    behaviour_value: Tensor = tensor("*", "float")  # V before the update
    advantage: Tensor = tensor("*", "float")
    target: Tensor = tensor("*", "float")  # advantage + behaviour_value
    anchor: Any = ()  # [*] extra input of a surrogate other than PPO's own
    sequence: Any = ()  # a `PPOSequence` for a model with memory, else ()


@record
class PPOSequence:
    """Further inputs of the loss of a model with memory, from a sequence. Leading axes: those of the sequences."""

    ended: Tensor  # [*, T] bool  whether an episode ended after the step
    memory: Any  # [*, ...]  before the first step
    fresh: Any  # [*, ...]  at the beginning of an episode


# (log_prob, sample, advantage, numbers) -> its loss [*], the log-probs against which it clips [*], its own metrics []
Surrogate = Callable[[Tensor, PPOSample, Tensor, Numbers], tuple[Tensor, Tensor, tuple[Tensor, ...]]]
# (params, trajectory [T, B] or `Remembered`, updates done, numbers) -> [T B], or [B, T]
Prepare = Callable[[Any, Any, Tensor, Numbers], PPOSample]
# (distribution over the rows' actions, their values [*], the rows) -> a further loss of each [*]
Term = Callable[[Distribution, Tensor, PPOSample], Tensor]
Objective = Callable[[Any, PPOSample], tuple[Tensor, tuple[Tensor, ...]]]  # (params, rows) -> loss [], metrics
Carry = tuple[Any, Any, Tensor]  # params, state of the optimiser, whether updates are still applied
MinibatchStep = Callable[[Carry, PPOSample], tuple[Carry, Tensor]]


def ppo(
    model: ActorCritic,
    optimizer: Optimizer,
    term: Term | None = None,
    *,
    gamma: Fraction = 0.99,  # what a reward is worth one step later
    gae_lambda: Fraction = 0.95,  # 0 trusts the value function, 1 the rewards
    clip: Clip = 0.2,  # how far a probability may move, as a ratio
    value_clip: Limit = math.inf,  # how far a value may move
    epochs: Count = 4,  # passes over each batch
    minibatches: Count = 4,  # steps of the optimiser in each pass; divides envs x horizon, and with memory envs
    value_coefficient: Weight = 0.5,  # weight of the value loss
    entropy_coefficient: Coefficient = 0.01,  # weight of the policy's entropy
    advantages: Literal["minibatch", "batch", "none"] = "minibatch",  # over what they are normalised
    target_kl: Limit = math.inf,  # once the policy has moved that far, the rest of an update is left out
) -> Algorithm:
    """PPO for trajectories [T, B], also of a model with memory.

    L = mean(ppo_clip(log pi(a), A) + value_coefficient value_loss - entropy_coefficient H(pi)),    A = gae,    G = v + A

    over minibatches of T B / minibatches rows, each row once in each of `epochs` permutations. value_loss is `squared`, or
    `clipped` if `value_clip` is finite. `advantages` is the scope of their normalisation: "minibatch", "batch" or "none".
    Once the k3 estimate of KL(behaviour, current) on a minibatch exceeds `target_kl`, this minibatch and all later ones
    are skipped in this update. A truncation and the last row bootstrap from next_observation, a termination does not.
    Clipping the gradient and annealing the learning rate belong to the optimiser (`chain`). The mean of a `term` of your own,
    such as a divergence from another policy, is added to L, and to the metrics by that name.

    A model with memory is trained on whole sequences: a minibatch is the T steps of B / minibatches environments, each sequence
    played again from the memory that the rollout began it with, and from `fresh` where an episode ended. The gradient flows
    back through all its steps. Values and advantages are computed once, in the same way, before the epochs.

    Metrics, means over the minibatches: policy_loss, value_loss, entropy, approximate_kl, clip_fraction, gradient_norm,
    and applied, the fraction of minibatches that were not skipped.
    Raises: ShapeError (number of rows, or of sequences, not divisible by minibatches), ChoiceError.
    Source: Schulman et al. 2017, arXiv:1707.06347; details: Huang et al. 2022, "The 37 implementation details of PPO".

    >>> from purestep.core import keys
    >>> from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> algorithm = ppo(model, chain(clip_by_global_norm(0.5), adam(2.5e-4)), epochs=10)
    >>> int(algorithm.init(keys.key(0)).step)
    0
    """
    numbers = numbers_of(ppo, locals())
    whole_batch = advantages == "batch"

    def samples_of(params: Any, trajectory: Trajectory | Remembered, step: Tensor, numbers: Numbers) -> PPOSample:
        gamma, lambda_ = numbers["gamma"], numbers["gae_lambda"]
        return prepare_samples(model, params, trajectory, gamma=gamma, lambda_=lambda_, normalize=whole_batch)

    return ppo_learner(
        model,
        optimizer,
        numbers,
        _surrogate,
        samples_of,
        METRICS if term is None else (*METRICS, "term"),
        epochs=epochs,
        minibatches=minibatches,
        normalize=advantages == "minibatch",
        memory=True,
        term=term,
    )


def _surrogate(
    log_prob: Tensor, sample: PPOSample, advantage: Tensor, numbers: Numbers
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    loss = ppo_clip(log_prob, sample.behaviour_log_prob, advantage, clip=clip_of(numbers))
    return loss, sample.behaviour_log_prob, ()


def ppo_learner(
    model: ActorCritic,
    optimizer: Optimizer,
    numbers: Numbers,
    surrogate: Surrogate,
    samples_of: Prepare,
    metrics: tuple[str, ...],
    *,
    epochs: int,
    minibatches: int,
    normalize: bool = False,
    memory: bool = False,
    term: Term | None = None,
) -> Algorithm:
    """Return the algorithm of PPO's passes over minibatches, with any surrogate.

    `numbers` (clip, value_coefficient, entropy_coefficient, perhaps value_clip and target_kl, and those of the surrogate) are
    in the state, so that changing one compiles nothing anew; the surrogate and `samples_of` get them as their last argument.
    With `normalize` a minibatch's advantages are scaled to mean 0 and deviation 1. `metrics` are METRICS, in which divergence
    and clip fraction are against the surrogate's own log-probs, followed by the names of the surrogate's own metrics, and of a
    `term`, a loss that is added. `memory` says whether `samples_of` accepts a `Remembered`: see `prepare_samples`.

    >>> from purestep.core.optim.optimizers import sgd
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> from .losses import policy_gradient
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> numbers = {"gamma": 0.99, "clip": 0.2, "value_coefficient": 0.5, "entropy_coefficient": 0.0}
    >>> plain = lambda log_prob, sample, advantage, numbers: (policy_gradient(log_prob, advantage), log_prob.detach(), ())
    >>> samples_of = lambda params, trajectory, step, numbers: prepare_samples(
    ...     model, params, trajectory, gamma=numbers["gamma"], lambda_=1.0)
    >>> learner = ppo_learner(model, sgd(0.1), numbers, plain, samples_of, METRICS, epochs=1, minibatches=1)
    >>> int(learner.init(keys.key(0)).step)
    0
    """
    check_model(model)
    check_optimizer(optimizer)
    names, fixed = tuple(numbers), given_as_tensors(numbers)
    apply, optimize = model.apply, optimizer.update
    where = "ppo: envs of a model with memory" if leaves(model.memory) else "ppo: rows"

    def update(state: TrainState, trajectory: Trajectory | Remembered, key: Key) -> tuple[TrainState, Metrics]:
        now = current_numbers("ppo", names, state.numbers, fixed)
        samples = samples_of(state.params, trajectory, state.step, now)
        rows = minibatch_rows(key, samples.advantage.shape[0], epochs=epochs, minibatches=minibatches, where=where)
        minibatch = _minibatch_step(_objective(apply, surrogate, normalize, now, term), optimize, now)
        applies = torch.ones_like(state.step, dtype=torch.bool)
        carry = (state.params, state.optimizer, applies)
        # Numbers are shuffled all at once; observations, which may be large, are gathered for one minibatch at a time.
        shuffled = take(replace(samples, observation=()), rows)
        (params, optimizer_state, _), figures = scan(
            lambda c, x: minibatch(c, replace(x[1], observation=take(samples.observation, x[0]))),
            carry,
            (rows, shuffled),
            output=samples.advantage,
        )
        after = replace(state, params=params, optimizer=optimizer_state, step=state.step + 1)
        return after, dict(zip(metrics, figures.mean(0).unbind(), strict=True))

    begin = initial_state(model, optimizer, numbers)
    return Algorithm(init=begin, update=update, metrics=metrics, memory=memory)


def prepare_samples(
    model: ActorCritic,
    params: Any,
    trajectory: Trajectory | Remembered,
    *,
    gamma: Number,
    lambda_: Number,
    normalize: bool = False,
) -> PPOSample:
    """Return the training rows of an update, time and batch axes flattened: trajectory [T, B] -> Sample [T B].

    Values are those of `params`, in one call for observation and one for next_observation. Of a model with memory, whose
    trajectory comes as a `Remembered`, the rows are sequences, and the values those of the memories after each step: [B, T].
    Raises: StructureError for a trajectory that is not the one or the other.

    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.core.spaces import Box, Discrete
    >>> model = actor_critic_mlp(Box(-1.0, 1.0, (2,)), Discrete(2))
    >>> no, seen = torch.zeros(3, 1, dtype=torch.bool), torch.zeros(3, 1, 2)
    >>> played = Trajectory(observation=seen, action=torch.zeros(3, 1, dtype=torch.int64), reward=torch.ones(3, 1),
    ...                     terminated=no, truncated=no, next_observation=seen, behaviour_log_prob=torch.zeros(3, 1))
    >>> prepare_samples(model, model.init(keys.key(0)), played, gamma=0.5, lambda_=1.0).advantage
    tensor([1.7500, 1.5000, 1.0000])
    """
    steps = recalled("ppo", model, trajectory)
    values, next_values = values_replayed(model, params, trajectory)
    ends = steps.terminated, steps.truncated
    advantage = gae(steps.reward, values, next_values, *ends, gamma=gamma, lambda_=lambda_)
    samples = PPOSample(
        observation=steps.observation,
        action=steps.action,
        behaviour_log_prob=steps.behaviour_log_prob,
        behaviour_value=values,
        advantage=normalize_advantages(advantage) if normalize else advantage,
        target=values + advantage,
    )
    if not isinstance(trajectory, Remembered):
        return tree_map(lambda leaf: leaf.flatten(0, 1), samples)
    sequence = PPOSequence(ended=ended(*ends).transpose(0, 1), memory=trajectory.memory, fresh=trajectory.fresh)
    return replace(_transposed(samples), sequence=sequence)


def _transposed(sample: PPOSample) -> PPOSample:
    """Return the sample with its first two axes exchanged: [T, B] from [B, T], or the other way round."""
    return tree_map(lambda leaf: leaf.transpose(0, 1), sample)


def normalize_advantages(advantage: Tensor) -> Tensor:
    """Return (A - mean) / (std + 1e-8) over all entries; std with divisor N, so that one entry gives 0: [*].

    >>> normalize_advantages(torch.tensor([1.0, 3.0]))
    tensor([-1.,  1.])
    """
    centred = advantage - advantage.mean()
    return centred / (centred.square().mean().sqrt() + 1e-8)


def minibatch_rows(key: Key, rows: int, *, epochs: int, minibatches: int, where: str = "ppo: rows") -> Tensor:
    """Return the rows of each minibatch: `epochs` permutations, split: int64 [epochs * minibatches, rows / minibatches].

    Raises: ShapeError.

    >>> sorted(minibatch_rows(keys.key(0), 4, epochs=1, minibatches=2).flatten().tolist())
    [0, 1, 2, 3]
    """
    if rows % minibatches:
        remedy = "change the number of envs, steps or minibatches"
        raise ShapeError(message(where, got=rows, wanted=f"a multiple of {minibatches} minibatches", remedy=remedy))
    return keys.permutation(keys.split(key, epochs), rows).reshape(epochs * minibatches, rows // minibatches)


def _minibatch_step(objective: Objective, optimize: Callable[..., tuple[Any, Any]], numbers: Numbers) -> MinibatchStep:
    """Return the step (carry, minibatch) -> (carry, metrics [M]); the carry says whether steps are still applied."""
    gradient = torch.func.grad(objective, has_aux=True)

    def step(carry: Carry, sample: PPOSample) -> tuple[tuple[Any, Any, Tensor], Tensor]:  # Dynamo reads no alias here
        params, optimizer_state, applies = carry
        gradients, figures = gradient(params, sample)
        updates, new_state = optimize(gradients, optimizer_state, params)
        new_params = apply_updates(params, updates)
        if "target_kl" in numbers:
            applies = applies & (figures[3] <= numbers["target_kl"])
            new_params = select(applies, new_params, params)
            new_state = select(applies, new_state, optimizer_state)
        common, own = figures[:FIGURES], figures[FIGURES:]
        figures = (*common, global_norm(gradients), applies.to(figures[0].dtype), *own)
        return (new_params, new_state, applies), torch.stack(figures)

    return step


def _objective(
    apply: Callable[..., Any], surrogate: Surrogate, normalize: bool, numbers: Numbers, term: Term | None = None
) -> Objective:
    """Return the loss of a minibatch: (params, rows) -> (mean loss [], metrics)."""

    def loss(params: Any, sample: PPOSample) -> tuple[Tensor, tuple[Tensor, ...]]:
        if isinstance(sample.sequence, PPOSequence):
            past, sample = sample.sequence, _transposed(replace(sample, sequence=()))
            over = past.ended.transpose(0, 1)
            distribution, value = apply_to_sequences(apply, params, sample.observation, over, past.memory, past.fresh)
        else:
            distribution, value, _ = apply(params, sample.observation, ())
        log_prob = distribution.log_prob(sample.action)
        advantage = normalize_advantages(sample.advantage) if normalize else sample.advantage
        policy_losses, anchor, own = surrogate(log_prob, sample, advantage, numbers)
        policy_loss = policy_losses.mean()
        if "value_clip" in numbers:
            value_loss = clipped(value, sample.behaviour_value, sample.target, clip=numbers["value_clip"]).mean()
        else:
            value_loss = squared(value, sample.target).mean()
        entropy = distribution.entropy().mean()
        total = total_loss(policy_loss, value_loss, entropy, numbers)
        if term is not None:
            further = term(distribution, value, sample).mean()
            total, own = total + further, (*own, further)
        log_ratio = (log_prob - anchor).detach()
        divergence = k3(anchor, log_prob).mean()
        figures = policy_loss, value_loss, entropy, divergence, _outside(log_ratio, clip_of(numbers)), *own
        return total, tuple(figure.detach() for figure in figures)

    return loss


def _outside(log_ratio: Tensor, clip: Number | tuple[Number, Number]) -> Tensor:
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    ratio = torch.exp(log_ratio)
    return ((ratio < 1 - low) | (ratio > 1 + high)).to(ratio.dtype).mean()


def clip_of(numbers: Numbers) -> Number | tuple[Number, Number]:
    """Return the clip of `numbers`: one number, or how far below and how far above 1.

    >>> clip_of({"clip_low": 0.2, "clip_high": 0.3})
    (0.2, 0.3)
    """
    return numbers["clip"] if "clip" in numbers else (numbers["clip_low"], numbers["clip_high"])

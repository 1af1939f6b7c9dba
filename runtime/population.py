"""`population = vmap(trainer)`: many seeds, and many settings of the optimiser, as one program."""

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

from ..core.errors import ShapeError, choose, message
from ..core.keys import Key, check_key
from ..core.optim import optimizers
from ..core.record import replace
from .evaluate import Evaluate, Evaluation, trained
from .normalizer import RunningScales
from .train import RunState, Trainer


def population(one: Trainer) -> Trainer:
    """Return a trainer of S independent runs: `init(keys [S, 2])`, and a state and metrics whose every leaf is [S, ...].

    Member i is the run of `one` from keys[i]: bit for bit at first, and within rounding after each iteration, since
    the matrix products of all members are one. `train(population(one), n)` is then a scan of vmapped iterations, which
    gives metrics [n, S]. `steps` is still that of one member. `init` raises: ShapeError, DtypeError.

    >>> from purestep.algorithms.a2c import a2c
    >>> from purestep.core import keys
    >>> from purestep.core.envs import make
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.runtime.train import train, trainer
    >>> env = make("probe_both")
    >>> model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    >>> many = population(trainer(env, model, a2c(model, optimizers.sgd(0.1)), envs=2, horizon=3))
    >>> seeds = torch.stack([keys.key(seed) for seed in range(5)])
    >>> state, metrics = train(many, 2)(with_hyperparameters(many.init(seeds), {"learning_rate": torch.rand(5)}))
    >>> metrics["entropy"].shape
    torch.Size([2, 5])
    """
    members = torch.vmap(one.init)

    def init(key: Key) -> RunState:
        check_key("population: init", key)
        if key.ndim != 2:
            remedy = "pass a key for each member"
            raise ShapeError(message("population: init: key", got=list(key.shape), wanted="[S, 2]", remedy=remedy))
        state: RunState = members(key)
        return state

    return attrs.evolve(one, init=init, iterate=torch.vmap(one.iterate), play=(), single=one)


def with_hyperparameters(state: RunState, changes: Mapping[str, float | Tensor]) -> RunState:
    """Return the state with some hyper-parameters changed: one number for all members, or one each, [S].

    They are those of the optimiser (learning_rate, max_norm, ...) and the numbers of the algorithm (gamma, gae_lambda, ...);
    `gamma` is also that of a normaliser of rewards. A `program` serves all their values.
    Raises: ChoiceError (a name that neither has), ShapeError.

    >>> from purestep.algorithms.a2c import a2c
    >>> from purestep.core import keys
    >>> from purestep.core.envs import make
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.runtime.train import trainer
    >>> env = make("probe_both")
    >>> model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    >>> many = population(trainer(env, model, a2c(model, optimizers.sgd(0.1)), envs=2, horizon=3))
    >>> begun = many.init(keys.split(keys.key(0), 2))
    >>> state = with_hyperparameters(begun, {"learning_rate": torch.tensor([0.5, 0.25]), "gamma": 0.5})
    >>> optimizers.hyperparameters(state.learner.optimizer)["learning_rate"]
    tensor([0.5000, 0.2500], dtype=torch.float64)
    >>> state.learner.numbers["gamma"]
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    learner, scales = state.learner, state.normalizer
    numbers, optimizer = dict(learner.numbers or {}), optimizers.hyperparameters(learner.optimizer)
    for name in changes:
        choose("with_hyperparameters: name", name, {**optimizer, **numbers})
    new = {name: optimizers.like(name, value, numbers[name]) for name, value in changes.items() if name in numbers}
    others = {name: value for name, value in changes.items() if name in optimizer}
    learner = replace(
        learner,
        optimizer=optimizers.with_hyperparameters(learner.optimizer, others),
        numbers={**numbers, **new} if new else learner.numbers,
    )
    if isinstance(scales, RunningScales) and isinstance(scales.gamma, Tensor) and "gamma" in new:
        scales = replace(scales, gamma=new["gamma"])
    return replace(state, learner=learner, normalizer=scales)


def each(evaluate: Evaluate) -> Evaluate:
    """Return `evaluate` for all members: a population's state, or params [S, ...] and statistics [S, ...] -> Evaluation [S, E].

    A key [2] gives all of them the same episodes; keys [S, 2] give each its own.

    >>> from purestep.core import keys
    >>> from purestep.core.envs import make
    >>> from purestep.core.policy import actor_critic_mlp
    >>> from purestep.runtime.evaluate import evaluate
    >>> env = make("probe_discount")
    >>> model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    >>> params = torch.vmap(model.init)(keys.split(keys.key(0), 3))
    >>> each(evaluate(env, model, episodes=2, steps=9))(params, (), keys.key(1)).returns.shape
    torch.Size([3, 2])
    """

    def run(params: Any, statistics: Any, key: Any = ()) -> Evaluation:
        params, statistics, key = trained(params, statistics, key)
        axis = 0 if key.ndim > 1 else None
        played: Evaluation = torch.vmap(evaluate, in_dims=(0, 0, axis))(params, statistics, key)
        return played

    return run

"""A network gets one leading axis wherever it is applied: in validation, a rollout, an update, an evaluation, a program."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.imitation import Demonstrations, imitation_loss
from purestep.algorithms.ppo import ppo
from purestep.algorithms.reinforce import reinforce
from purestep.core import keys
from purestep.core.env import Env, time_limit
from purestep.core.networks import functional
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import ActorCritic, apply_to_steps, categorical_head, scalar, separate
from purestep.core.spaces import Box, Discrete
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import population
from purestep.runtime.train import folded, train, trainer
from purestep.runtime.validate_learner import validate_learner


class Sight(nn.Module):
    """A convolution over images [*, 1, 4, 4], which takes one leading axis or none."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 4, f"an image with {x.ndim - 3} leading axes"
        made: Tensor = self.layers(x)
        return made


def dots() -> Env[Any, Any]:
    """A picture of noise; the action 1 pays its first pixel."""

    def reset(params: Any, key: Tensor) -> tuple[Tensor, TimeStep]:
        picture = keys.normal(key, (1, 4, 4))
        return picture, first(picture)

    def step(params: Any, state: Tensor, action: Tensor, key: Tensor) -> tuple[Tensor, TimeStep]:
        picture = keys.normal(key, (1, 4, 4))
        return picture, following(picture, state[0, 0, 0] * action, torch.zeros((), dtype=torch.bool))

    space = Box(-9.0, 9.0, (1, 4, 4))
    return time_limit(Env(params=(), reset=reset, step=step, observation_space=space, action_space=Discrete(2)), 5)


def seeing() -> ActorCritic:
    torch.manual_seed(0)
    return separate(categorical_head(functional(Sight(2))), scalar(functional(Sight(1))))


ALGORITHMS: dict[str, Callable[[ActorCritic], Algorithm]] = {
    "ppo": lambda model: ppo(model, sgd(0.1), epochs=1, minibatches=2),
    "a2c": lambda model: a2c(model, sgd(0.1)),
    "reinforce": lambda model: reinforce(model, sgd(0.1)),
    "decoupled_ppo": lambda model: decoupled_ppo(model, sgd(0.1), epochs=1, minibatches=2),
}


@pytest.mark.parametrize("make", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_convolution_is_validated_played_updated_and_evaluated(make: Callable[[ActorCritic], Algorithm]) -> None:
    env, model = dots(), seeing()
    algorithm = make(model)
    validate_learner(model, algorithm, torch.zeros(1, 4, 4), env.action_space)
    one = trainer(env, model, algorithm, envs=3, horizon=4)
    state, metrics = train(one, 2)(one.init(keys.key(0)))
    assert metrics["finite"].tolist() == [1.0, 1.0]
    begun = model.init(keys.key(0))
    assert all(not torch.equal(a, b) for a, b in zip(leaves(state.learner.params), leaves(begun), strict=True))
    played = evaluate(env, model, episodes=3, steps=5)(state.learner.params, (), keys.key(1))
    assert played.lengths.tolist() == [5, 5, 5]


def test_a_convolution_in_a_population_and_an_imitation() -> None:
    env, model = dots(), seeing()
    many = population(trainer(env, model, a2c(model, sgd(0.1)), envs=3, horizon=4))
    _, metrics = train(many, 1)(many.init(keys.split(keys.key(0), 2)))
    assert metrics["finite"].tolist() == [[1.0, 1.0]]
    shown = Demonstrations(observation=torch.zeros(6, 1, 4, 4), action=torch.zeros(6, dtype=torch.int64))
    assert imitation_loss(model, model.init(keys.key(0)), shown).ndim == 0


@pytest.mark.slow
def test_a_convolution_in_a_program() -> None:
    env, model = dots(), seeing()
    one = trainer(env, model, ALGORITHMS["ppo"](model), envs=3, horizon=4)
    run = folded(one, 2)
    state, metrics = program(run)(one.init(keys.key(0)))
    wanted, same = run(one.init(keys.key(0)))
    torch.testing.assert_close(leaves(state.learner.params), leaves(wanted.learner.params), rtol=1e-4, atol=1e-5)
    assert metrics["finite"].tolist() == same["finite"].tolist() == [1.0, 1.0]


def test_steps_are_applied_as_rows_and_come_back_as_steps() -> None:
    model = seeing()
    params, seen = model.init(keys.key(0)), keys.normal(keys.key(1), (4, 3, 1, 4, 4))
    distribution, values = apply_to_steps(model.apply, params, seen)
    flat, value, _ = model.apply(params, seen.flatten(0, 1), ())
    assert torch.equal(values, value.reshape(4, 3))
    assert torch.equal(distribution.log_prob(torch.zeros(12, dtype=torch.int64)), flat.log_prob(torch.zeros(12).long()))

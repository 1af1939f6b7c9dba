"""Actions of every space: a policy acts with them, is trained and evaluated, and learns to copy what it sees."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.ppo import ppo
from purestep.algorithms.reinforce import reinforce
from purestep.core import keys
from purestep.core.distributions import Product
from purestep.core.errors import PurestepError
from purestep.core.optim.optimizers import adam
from purestep.core.policy import ActorCritic, actor_critic_mlp, flat
from purestep.core.recurrent import recurrent_actor_critic
from purestep.core.spaces import (
    Discrete,
    MultiDiscrete,
    Space,
    Tuple,
    contains,
    sample,
)
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.evaluate import evaluate
from purestep.runtime.identity import identity
from purestep.runtime.train import train, trainer
from purestep.runtime.trained_policy import policy
from purestep.runtime.validate import validate

from ...support.copying import NESTED, SPACES, STEPS, copying

ALGORITHMS: dict[str, Callable[[ActorCritic], Algorithm]] = {
    "ppo": lambda model: ppo(model, adam(1e-3), epochs=1, minibatches=2),
    "a2c": lambda model: a2c(model, adam(1e-3)),
    "reinforce": lambda model: reinforce(model, adam(1e-3)),
    "decoupled_ppo": lambda model: decoupled_ppo(model, adam(1e-3), epochs=1, minibatches=2, proximal="recomputed"),
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_space_is_played_trained_and_evaluated(name: str, algorithm: str) -> None:
    env = validate(copying(SPACES[name]))
    model = flat(actor_critic_mlp(env.observation_space, env.action_space, (8,)))
    iteration = trainer(env, model, ALGORITHMS[algorithm](model), envs=4, horizon=2)
    state, metrics = iteration.iterate(iteration.init(keys.key(0)))
    assert all(bool(leaf.isfinite().all()) for leaf in leaves((state.learner.params, metrics)))
    for action in ("mode", "sample"):
        told = evaluate(env, model, episodes=3, steps=STEPS, action=action)(state, keys.key(1))
        assert bool(told.ended.all())
    found = policy(env, model, state).action(sample(env.observation_space, keys.split(keys.key(2), 5)))
    assert bool(contains(env.action_space, found).all())


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_a_policy_with_memory_acts_with_a_tree(algorithm: str) -> None:
    env = copying(NESTED)
    model = recurrent_actor_critic(env.observation_space, env.action_space, (8,), size=8)
    iteration = trainer(env, model, ALGORITHMS[algorithm](model), envs=4, horizon=2)
    state, _ = iteration.iterate(iteration.init(keys.key(0)))
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(state.learner.params))


@pytest.mark.parametrize("name", ["numbers", "nested"])
def test_only_legal_actions_are_taken(name: str) -> None:
    env = validate(copying(SPACES[name], masked=True))
    model = actor_critic_mlp(env.observation_space, env.action_space, (8,))
    params = model.init(keys.key(0))
    seen = env.reset(env.params, keys.key(1))[1].observation
    distribution, _, _ = model.apply(params, seen, ())
    assert isinstance(distribution, Product) == (name == "nested")
    for one in keys.split(keys.key(2), 20):
        action = distribution.sample(one)
        for got, wanted in zip(leaves(action), leaves(seen["features"]), strict=True):
            assert got.is_floating_point() or torch.equal(got, wanted)
    iteration = trainer(env, model, ALGORITHMS["ppo"](model), envs=4, horizon=2)
    state, _ = iteration.iterate(iteration.init(keys.key(0)))
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(state.learner.params))


@pytest.mark.parametrize(
    ("made_for", "given", "text"),
    [
        (
            Discrete(2),
            MultiDiscrete((2, 2)),
            r"the model's actions is \[\], wanted \[2\]; make the model for the env's",
        ),
        (MultiDiscrete((2, 3)), MultiDiscrete((3, 2)), r"actions is of sizes \(2, 3\), wanted \(3, 2\)"),
        (NESTED, Discrete(2), "actions is a tree of .*, wanted one tensor"),
        (Discrete(2), NESTED, "actions is one tensor, wanted a tree as of Fields"),
        (Tuple((Discrete(2), Discrete(3))), Tuple((Discrete(2), Discrete(2))), "actions.1 is 3 choices, wanted 2"),
    ],
)
def test_a_model_of_other_actions_is_refused(made_for: Space, given: Space, text: str) -> None:
    env = copying(given)
    model = actor_critic_mlp(env.observation_space, made_for, (4,))
    with pytest.raises(PurestepError, match=text):
        trainer(env, model, ALGORITHMS["a2c"](model), envs=2, horizon=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numbers", "nested"])
def test_ppo_compiled_learns_to_copy(name: str) -> None:
    env = copying(SPACES[name])
    model = flat(actor_critic_mlp(env.observation_space, env.action_space, (32,)))
    iteration = trainer(env, model, ppo(model, adam(3e-3), entropy_coefficient=0.0), envs=32, horizon=8)
    run = program(train(iteration, 60))
    state, metrics = run(iteration.init(keys.key(0)))
    del metrics
    told = evaluate(env, model, episodes=64, steps=STEPS)(state, keys.key(1))
    assert float(told.returns.mean()) > 0.9 * STEPS


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("make_model", [actor_critic_mlp, partial(recurrent_actor_critic, cell="transformer", size=8)])
def test_a_program_of_trees_can_be_kept(make_model: Any, masked: bool) -> None:
    def made() -> Any:
        env = copying(NESTED, masked)
        model = make_model(env.observation_space, env.action_space, (8,))
        return identity(trainer(env, model, ALGORITHMS["ppo"](model), envs=4, horizon=2).iterate)

    assert made() == made()

"""Several agents in the trainer: trained, evaluated, resumed, never mixed, and refused with a line."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from purestep import keys
from purestep.algorithms.ppo import ppo
from purestep.core.agents import agent_views, by_agent, by_rows, central_critic, own_parameters
from purestep.core.env import Env, auto_reset, batched
from purestep.core.errors import PurestepError
from purestep.core.optim.optimizers import adam
from purestep.core.policy import ActorCritic, actor_critic_mlp, flat
from purestep.core.recurrent import recurrent_actor_critic
from purestep.core.spaces import Discrete
from purestep.core.steps import following
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import each, population
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.recipes.pipeline import actor_critic_pipeline
from purestep.runtime.rollout import reset_rollout, rollout
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import Trainer, train, trainer
from purestep.runtime.validate import validate

from ...support.agent_worlds import copy_and_invert, paid_apart

KEY = keys.key(0)
GAME = f"{Path(__file__).parents[3]}/examples/two_agents.py:GAME"
SMALL = {"envs": 4, "horizon": 8, "hidden": (4,), "backend": "none"}


def shared(space: Any, actions: Any) -> ActorCritic:
    return actor_critic_mlp(space, actions, (32, 32))


def remembering(space: Any, actions: Any) -> ActorCritic:
    return recurrent_actor_critic(space, actions, (8,), size=8)


def made(env: Env[Any, Any], critic: str = "own", build: Any = shared, own: bool = False) -> tuple[Any, Any, Trainer]:
    viewed = agent_views(env, critic=critic)
    spaces = viewed.observation_space, viewed.action_space
    model = central_critic(build, *spaces) if critic == "all" else build(*spaces)
    model = flat(own_parameters(model, env.agents or 0) if own else model)
    algorithm = ppo(model, adam(2e-2), minibatches=2, entropy_coefficient=0.0)
    return viewed, model, trainer(viewed, model, algorithm, envs=8, horizon=16)


@pytest.mark.parametrize("critic", ["own", "all"])
@pytest.mark.parametrize("own", [False, True])
def test_agents_with_different_parts_learn_a_game_that_needs_all(critic: str, own: bool) -> None:
    viewed, model, iteration = made(copy_and_invert(), critic, own=own)
    state, metrics = train(iteration, 40)(iteration.init(KEY))
    returns = evaluate(viewed, model, episodes=16, steps=8)(state, keys.key(1)).returns
    assert returns.shape == (32,)
    assert float(by_agent(returns, 2).mean()) == 8.0
    assert float(metrics["episodes"][0]) == 8 * 2 * 2  # of each agent: two episodes of eight steps in sixteen


def test_a_program_trains_agents_with_memory_and_a_central_critic() -> None:
    _, _, iteration = made(copy_and_invert(), "all", remembering)
    state = iteration.init(KEY)
    run = program(train(iteration, 20))
    for _ in range(3):
        state, _ = run(state)
    _, metrics = run(state)
    assert float((metrics["return_sum"] / metrics["episodes"])[-1]) > 7.5


def test_a_population_and_a_stop_change_no_bit() -> None:
    viewed, model, iteration = made(copy_and_invert())
    many = population(iteration)
    halfway, _ = train(many, 2)(many.init(keys.split(KEY, 2)))
    after, _ = train(many, 2)(halfway)
    whole, _ = train(many, 4)(many.init(keys.split(KEY, 2)))
    assert all(torch.equal(a, b) for a, b in zip(leaves(after), leaves(whole), strict=True))
    returns = each(evaluate(viewed, model, episodes=3, steps=8))(whole, keys.key(1)).returns
    assert returns.shape == (2, 6)


def test_a_row_has_its_own_agents_rewards_and_observations() -> None:
    env = by_rows(batched(auto_reset(paid_apart()), 2))
    model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    worlds, played = rollout(env, model, 6)(model.init(KEY), reset_rollout(env, KEY), keys.key(1))
    assert leaves(worlds.state)[0].shape[0] == 2
    numbers = torch.arange(1, 4).repeat(2)
    assert torch.equal(played.reward, (played.action * numbers).to(torch.float32))
    assert torch.equal(played.next_observation[..., 0], played.action.to(torch.float32))
    assert torch.equal(played.truncated.sum(0), torch.ones(6, dtype=torch.int64))


def test_each_agent_earns_what_it_is_paid() -> None:
    viewed, model, iteration = made(paid_apart(3))
    state, _ = train(iteration, 20)(iteration.init(KEY))
    returns = evaluate(viewed, model, episodes=4, steps=4)(state, keys.key(1)).returns
    assert by_agent(returns, 3).mean(0).tolist() == [4.0, 8.0, 12.0]


def test_views_are_those_of_the_agents_in_order() -> None:
    env = copy_and_invert(3)
    _, told = agent_views(env, critic="all").reset(env.params, KEY)
    plain = env.reset(env.params, KEY)[1].observation
    assert torch.equal(told.observation["actor"]["own"], plain)
    assert told.observation["actor"]["agent"].tolist() == [0, 1, 2]
    for agent, seen in enumerate(told.observation["critic"]["all"]):
        assert torch.equal(seen, plain[agent].expand(3, 1))
    validate(agent_views(env, critic="all"))


@pytest.mark.parametrize(
    ("recipe", "env", "changes", "line"),
    [
        ("ppo", "cartpole", {"critic": "all"}, "--critic is all, wanted own: the environment has no agents"),
        ("a2c", "cartpole", {"agents": "own"}, "--agents is own, wanted shared: the environment has no agents"),
        (
            "dqn",
            GAME,
            {"critic": "all"},
            "--critic is all, wanted own: dqn has no such critic .*; train it by ppo, a2c",
        ),
    ],
)
def test_flags_of_agents_are_refused_where_they_mean_nothing(recipe: str, env: str, changes: Any, line: str) -> None:
    with pytest.raises(PurestepError, match=line):
        actor_critic_pipeline(changed(RECIPES[recipe].defaults(env), {**SMALL, **changes}))


@pytest.mark.parametrize("changes", [{"memory": "gru"}, {"critic": "all", "agents": "own"}, {"normalize": "both"}])
def test_flags_of_agents_make_a_pipeline(changes: Any) -> None:
    iteration = actor_critic_pipeline(changed(RECIPES["ppo"].defaults(GAME), {**SMALL, **changes})).trainer
    state, metrics = train(iteration, 2)(iteration.init(KEY))
    assert float(metrics["episodes"].sum()) == 2 * 4 * 2  # two agents in each of four environments, 16 steps
    assert int(state.env_steps) == 2 * 4 * 8


def _reward(shape: tuple[int, ...]) -> Any:
    def step(params: Tensor, state: Tensor, action: Tensor, key: Tensor) -> Any:
        return state, following(torch.zeros(2, 1), torch.zeros(shape), torch.zeros((), dtype=torch.bool))

    return step


def _over(params: Tensor, state: Tensor, action: Tensor, key: Tensor) -> Any:
    return state, following(torch.zeros(2, 1), torch.zeros(2), torch.zeros(2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (_reward((3,)), r"step: reward of 2 agents is \[3\], wanted \[\] or \[2\]"),
        (_over, r"terminated of 2 agents is \[2\], wanted \[\]; end an episode for all agents at once"),
    ],
)
def test_an_env_that_breaks_the_contract_is_refused(step: Any, line: str) -> None:
    plain = copy_and_invert()
    env = attrs.evolve(plain, reset=lambda p, key: (torch.zeros(2, 1), plain.reset(p, key)[1]), step=step)
    with pytest.raises(PurestepError, match=line):
        validate(env)


def test_an_env_without_agents_has_no_views() -> None:
    with pytest.raises(PurestepError, match="agent_views: env is one without agents"):
        agent_views(attrs.evolve(copy_and_invert(), agents=None))
    with pytest.raises(PurestepError, match="wanted actor and critic; pass the observation_space of agent_views"):
        central_critic(shared, Discrete(2), Discrete(2))

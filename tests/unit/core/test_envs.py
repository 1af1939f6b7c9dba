"""Every named world, and a tabular one: members of their spaces, one structure, and the same under vmap, scan and compile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Env, auto_reset, batched, halves
from purestep.core.envs import ENVS, make, tabular, tabular_mdp
from purestep.core.errors import ChoiceError
from purestep.core.record import check, is_record, take
from purestep.core.scan import scan
from purestep.core.spaces import contains, sample
from purestep.core.steps import TimeStep, ended
from purestep.core.tree import all_finite, leaves, same_structure, tree_map
from purestep.runtime.compile import program

STEPS, WORLDS = 40, 16
ONE_STEP = 2e-6  # absolute and relative: the rounding of one step in float32, batched or compiled otherwise


def coin() -> Env[Any, Any]:
    """Two states and two actions, of which one is a coin; state 1 may end the episode."""
    transition = torch.tensor([[[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.0, 1.0]]])
    reward = torch.tensor([[1.0, -1.0], [0.0, 2.0]])
    start = torch.tensor([0.5, 0.5])
    return tabular(tabular_mdp(transition, reward, termination=torch.tensor([0.0, 0.25]), initial=start))


WORLD_TABLE: dict[str, Callable[[], Env[Any, Any]]] = {**ENVS, "tabular": coin}
every_world = pytest.mark.parametrize("name", sorted(WORLD_TABLE))
quick = [pytest.param(name, "aot_eager") for name in ("cartpole", "tabular")]
thorough = [pytest.param(name, "inductor", marks=pytest.mark.slow) for name in sorted(WORLD_TABLE)]


def player(env: Env[Any, Any], steps: int) -> Callable[[Tensor], tuple[Any, tuple[Tensor, TimeStep]]]:
    """A function of a key: random actions in `WORLDS` worlds that restart -> last state, all actions and timesteps."""
    worlds = batched(auto_reset(env), WORLDS)
    drawn = halves(worlds)

    def play(seed: Tensor) -> tuple[Any, tuple[Tensor, TimeStep]]:
        begin, act, go = keys.split(seed, 3)
        actions = sample(env.action_space, keys.split(act, steps * WORLDS).reshape(steps, WORLDS, 2))
        noise = torch.vmap(drawn.draw, in_dims=(None, 0))(env.params, keys.split(go, steps))

        def step(state: Any, x: Any) -> tuple[Any, tuple[Tensor, TimeStep]]:
            state, timestep = drawn.step(env.params, state, x[0], x[1])
            return state, (x[0], timestep)

        return scan(step, worlds.reset(env.params, begin)[0], (actions, noise), steps)

    return play


def close(a: Any, b: Any) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        torch.testing.assert_close(x, y, atol=ONE_STEP, rtol=ONE_STEP)


@every_world
def test_observations_and_actions_are_members_of_their_spaces(name: str) -> None:
    env = WORLD_TABLE[name]()
    _, (actions, timesteps) = player(env, STEPS)(keys.key(1))
    assert contains(env.action_space, actions).all()
    assert contains(env.observation_space, timesteps.observation).shape == (STEPS, WORLDS)
    assert contains(env.observation_space, timesteps.observation).all()
    assert contains(env.observation_space, timesteps.next_observation).all()
    assert all_finite(timesteps)
    check(timesteps, (STEPS, WORLDS))
    assert timesteps.reward.dtype == torch.float32


@every_world
def test_reset_tells_nothing_but_the_observation(name: str) -> None:
    env = WORLD_TABLE[name]()
    state, timestep = env.reset(env.params, keys.key(2))
    assert is_record(env.params)
    assert is_record(state)
    check(env.params)
    check(state, ())
    check(timestep, ())
    assert contains(env.observation_space, timestep.observation)
    assert timestep.reward == 0.0
    assert not ended(timestep.terminated, timestep.truncated)
    for seen, following in zip(leaves(timestep.observation), leaves(timestep.next_observation), strict=True):
        assert torch.equal(seen, following)
        assert seen.data_ptr() != following.data_ptr()


@every_world
def test_a_step_keeps_every_structure_shape_and_dtype(name: str) -> None:
    env = WORLD_TABLE[name]()
    state, before = env.reset(env.params, keys.key(3))
    moved, after = env.step(env.params, state, sample(env.action_space, keys.key(4)), keys.key(5))
    same_structure("state", moved, state)
    same_structure("timestep", after, before)
    assert not after.truncated or name == "tabular"


@every_world
def test_many_worlds_are_their_singles(name: str) -> None:
    env = WORLD_TABLE[name]()
    states = torch.vmap(env.reset, in_dims=(None, 0))(env.params, keys.split(keys.key(6), 9))[0]
    actions, step_keys = sample(env.action_space, keys.split(keys.key(7), 9)), keys.split(keys.key(8), 9)
    many = torch.vmap(env.step, in_dims=(None, 0, 0, 0))(env.params, states, actions, step_keys)
    for i in range(9):
        close(
            env.step(env.params, take(states, i), actions[i], step_keys[i]), tree_map(lambda leaf, i=i: leaf[i], many)
        )


@every_world
def test_the_hoisted_halves_are_the_step(name: str) -> None:
    env = WORLD_TABLE[name]()
    state = env.reset(env.params, keys.key(9))[0]
    action, drawn = sample(env.action_space, keys.key(10)), halves(env)
    whole = env.step(env.params, state, action, keys.key(11))
    parts = drawn.step(env.params, state, action, drawn.draw(env.params, keys.key(11)))
    for x, y in zip(leaves(whole), leaves(parts), strict=True):
        assert torch.equal(x, y)


@every_world
def test_a_world_without_chance_draws_nothing_for_its_steps(name: str) -> None:
    env = WORLD_TABLE[name]()
    drawn = leaves(halves(env).draw(env.params, keys.key(0)))
    assert len(drawn) == (1 if name == "tabular" else 0)


@every_world
def test_own_params_give_each_world_its_own_physics(name: str) -> None:
    """With equal copies of the params, n worlds of their own params are the n worlds that share one."""
    env = WORLD_TABLE[name]()
    copies = tree_map(lambda leaf: torch.stack([leaf] * 3), env.params)
    own, shared = batched(env, 3, own_params=True), batched(env, 3)
    state, first = own.reset(copies, keys.key(12))
    close((state, first), shared.reset(env.params, keys.key(12)))
    actions = sample(env.action_space, keys.split(keys.key(13), 3))
    close(own.step(copies, state, actions, keys.key(14)), shared.step(env.params, state, actions, keys.key(14)))


@pytest.mark.parametrize(("name", "backend"), quick + thorough)
@pytest.mark.slow
def test_one_graph_holds_resets_and_a_scan_of_steps(name: str, backend: str, compiled: Any) -> None:
    env = WORLD_TABLE[name]()
    drawn, reset = halves(env), torch.vmap(env.reset, in_dims=(None, 0))
    step = torch.vmap(drawn.step, in_dims=(None, 0, 0, 0))

    def play(begin: Tensor, actions: Tensor, noise: Any) -> Any:
        state = reset(env.params, begin)[0]
        return scan(lambda state, x: step(env.params, state, *x), state, (actions, noise), 3)

    begin, act, go = keys.split(keys.key(15), 3)
    actions = sample(env.action_space, keys.split(act, 12).reshape(3, 4, 2))
    draw = torch.vmap(torch.vmap(drawn.draw, in_dims=(None, 0)), in_dims=(None, 0))
    inputs = (keys.split(begin, 4), actions, draw(env.params, keys.split(go, 12).reshape(3, 4, 2)))
    lowered = program(play) if backend == "inductor" else compiled(play, backend)
    close(lowered(*inputs), play(*inputs))


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ChoiceError, match="did you mean 'cartpole'"):
        make("cartpol")


def test_making_a_world_draws_on_nothing_shared() -> None:
    """Two envs of one name hold equal params in different storage."""
    one, other = make("cartpole").params, make("cartpole").params
    for x, y in zip(leaves(one), leaves(other), strict=True):
        assert torch.equal(x, y)
        assert x.data_ptr() != y.data_ptr()

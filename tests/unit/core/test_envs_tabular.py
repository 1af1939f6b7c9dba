"""A tabular world's step is its table: exactly, by counting over a grid of its noise, and by keys."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.env import auto_reset, batched, halves
from purestep.core.envs.tabular import TabularMDP, TabularState, tabular, tabular_mdp
from purestep.core.errors import ShapeError
from purestep.core.record import stack
from purestep.core.scan import scan

GRID = 16  # probabilities are multiples of 1/16, so that 16 evenly spaced noises count them out exactly


def sixteenths(rng: np.random.Generator, rows: tuple[int, ...], states: int) -> Tensor:
    """Random distributions over the states in multiples of 1/16, zeros among them."""
    counts = rng.multinomial(GRID, np.full(states, 1.0 / states), size=rows)
    return torch.from_numpy(counts).to(torch.float32) / GRID


def random_mdp(seed: int) -> TabularMDP:
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    return tabular_mdp(
        sixteenths(rng, (states, actions), states),
        torch.from_numpy(rng.integers(-8, 9, (states, actions, states))) / 4.0,
        termination=torch.from_numpy(rng.integers(0, GRID + 1, states)) / GRID,
        initial=sixteenths(rng, (), states),
    )


def every_noise() -> Tensor:
    """[256, 2]: each pair of sixteenths, once."""
    grid = torch.arange(GRID) / GRID
    return torch.cartesian_prod(grid, grid)


@given(st.integers(0, 2**32))
def test_the_kernel_is_the_table_exactly(seed: int) -> None:
    """Over all noises of the grid, next states, rewards and endings come as often as the record says."""
    mdp = random_mdp(seed)
    states, actions, _ = mdp.transition.shape
    env = tabular(mdp)
    step = torch.vmap(halves(env).step, in_dims=(None, None, None, 0))
    for s in range(states):
        for a in range(actions):
            moved, timestep = step(mdp, TabularState(index=torch.tensor(s)), torch.tensor(a), every_noise())
            counts = torch.bincount(moved.index, minlength=states)
            assert torch.equal(counts / GRID**2, mdp.transition[s, a])
            assert torch.equal(timestep.reward, mdp.reward[s, a][moved.index])
            assert torch.equal(timestep.observation, torch.eye(states)[moved.index])
            endings = torch.bincount(moved.index, weights=timestep.terminated.double(), minlength=states)
            assert torch.equal(endings, counts * mdp.termination)
            assert not timestep.truncated.any()


def test_keys_follow_the_table() -> None:
    """Frequencies over 20,000 keys stay within five standard errors, and what is impossible never happens."""
    mdp, n = random_mdp(7), 20_000
    env = tabular(mdp)
    states, actions, _ = mdp.transition.shape
    draws = keys.split(keys.key(0), n)
    for s in range(states):
        for a in range(actions):
            state, action = TabularState(index=torch.tensor(s)), torch.tensor(a)
            moved, timestep = torch.vmap(env.step, in_dims=(None, None, None, 0))(mdp, state, action, draws)
            near(torch.bincount(moved.index, minlength=states) / n, mdp.transition[s, a], n)
            near(timestep.terminated.float().mean(), mdp.transition[s, a] @ mdp.termination, n)
    started = torch.vmap(env.reset, in_dims=(None, 0))(mdp, draws)[0].index
    near(torch.bincount(started, minlength=states) / n, mdp.initial, n)


def near(frequency: Tensor, probability: Tensor, n: int) -> None:
    error = torch.sqrt(probability * (1.0 - probability) / n)
    assert (abs(frequency - probability) <= 5.0 * error).all()


def test_the_noise_is_two_independent_numbers_of_the_key() -> None:
    """Were one number to decide both, whether an episode ends would depend on where the state went."""
    env = tabular(random_mdp(0))
    noise = torch.vmap(halves(env).draw, in_dims=(None, 0))(env.params, keys.split(keys.key(1), 20_000))
    assert noise.shape == (20_000, 2)
    assert abs(torch.corrcoef(noise.T)[0, 1]) < 5.0 / 20_000**0.5


def test_values_by_simulation_are_values_by_the_linear_system() -> None:
    """V = (I - gamma P)^-1 r with gamma as a termination of 1 - gamma everywhere: the mean return of 4,000 episodes."""
    rng, gamma, worlds, steps = np.random.default_rng(3), 0.75, 4_000, 40
    transition = sixteenths(rng, (3, 1), 3)
    reward = torch.tensor([[1.0], [-2.0], [0.5]])
    start = torch.tensor([1.0, 0.0, 0.0])
    env = tabular(tabular_mdp(transition, reward, termination=torch.full((3,), 1.0 - gamma), initial=start))
    exact = torch.linalg.solve(torch.eye(3) - gamma * transition[:, 0], reward[:, 0])[0]
    many, begin = batched(env, worlds), keys.key(4)

    def step(carry: Any, key: Tensor) -> tuple[Any, Tensor]:
        state, alive = carry
        state, timestep = many.step(env.params, state, torch.zeros(worlds, dtype=torch.int64), key)
        return (state, alive & ~timestep.terminated), timestep.reward * alive

    alive = torch.ones(worlds, dtype=torch.bool)
    _, rewards = scan(step, (many.reset(env.params, begin)[0], alive), keys.split(keys.key(5), steps))
    returns = rewards.sum(0)
    assert abs(returns.mean() - exact) < 4.0 * returns.std() / worlds**0.5
    assert returns.std() > 0.5


def test_a_terminal_state_always_ends_and_the_others_never() -> None:
    transition = torch.tensor([[[0.0, 0.5, 0.5]], [[0.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]])
    terminal = torch.tensor([False, True, False])
    env = tabular(
        tabular_mdp(transition, torch.ones(3, 1), termination=terminal, initial=torch.tensor([1.0, 0.0, 0.0]))
    )
    draws = keys.split(keys.key(6), 1_000)
    state, action = TabularState(index=torch.tensor(0)), torch.tensor(0)
    moved, timestep = torch.vmap(env.step, in_dims=(None, None, None, 0))(env.params, state, action, draws)
    assert torch.equal(timestep.terminated, moved.index == 1)
    assert timestep.terminated.any()
    beyond, _ = env.step(env.params, TabularState(index=torch.tensor(1)), action, draws[0])
    assert 0 <= beyond.index < 3  # the row of a terminal state may be empty: the index stays a state


def test_auto_reset_draws_the_initial_distribution_after_a_terminal_state() -> None:
    transition = torch.tensor([[[0.0, 1.0]], [[0.0, 1.0]]])
    env = tabular(
        tabular_mdp(transition, torch.ones(2, 1), termination=torch.tensor([0, 1]), initial=torch.tensor([1, 0]))
    )
    many = batched(auto_reset(env), 5)
    state, timestep = many.step(env.params, many.reset(env.params, keys.key(0))[0], torch.zeros(5).long(), keys.key(1))
    assert timestep.terminated.all()
    assert (state.index == 0).all()
    assert torch.equal(timestep.next_observation, torch.tensor([[0.0, 1.0]]).expand(5, 2))
    assert torch.equal(timestep.observation, torch.tensor([[1.0, 0.0]]).expand(5, 2))


def test_many_processes_are_one_env_under_their_stacked_records() -> None:
    mdps = [same_size(seed) for seed in range(6)]
    many = batched(tabular(stack(mdps)), 6, own_params=True)
    state, first = many.reset(many.params, keys.key(8))
    actions = torch.tensor([0, 1, 0, 1, 0, 1])
    moved, timestep = many.step(many.params, state, actions, keys.key(9))
    assert first.observation.shape == (6, 3)
    for i, (mdp, begin, go) in enumerate(
        zip(mdps, keys.split(keys.key(8), 6), keys.split(keys.key(9), 6), strict=True)
    ):
        one = tabular(mdp)
        started, _ = one.reset(mdp, begin)
        after, alone = one.step(mdp, started, actions[i], go)
        assert torch.equal(after.index, moved.index[i])
        assert torch.equal(alone.reward, timestep.reward[i])
        assert torch.equal(alone.terminated, timestep.terminated[i])


def same_size(seed: int) -> TabularMDP:
    rng = np.random.default_rng(seed)
    return tabular_mdp(
        sixteenths(rng, (3, 2), 3),
        torch.from_numpy(rng.normal(size=(3, 2))),
        termination=torch.from_numpy(rng.integers(0, 2, 3).astype(bool)),
        initial=sixteenths(rng, (), 3),
    )


def test_a_reward_of_state_and_action_is_paid_whatever_follows() -> None:
    short = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    mdp = tabular_mdp(torch.full((2, 2, 2), 0.5), short, termination=torch.zeros(2), initial=torch.ones(2))
    assert torch.equal(mdp.reward, torch.stack([short, short], -1))
    assert mdp.reward.dtype == mdp.termination.dtype == torch.float32


@pytest.mark.parametrize(
    ("transition", "reward", "termination", "initial", "fault"),
    [
        ((2, 2), (2, 2), (2,), (2,), "transition"),
        ((2, 1, 3), (2, 1), (2,), (2,), "transition"),
        ((2, 1, 2), (2, 2), (2,), (2,), "reward"),
        ((2, 1, 2), (2, 1), (3,), (2,), "termination"),
        ((2, 1, 2), (2, 1), (2,), (1,), "initial"),
    ],
)
def test_wrong_shapes_are_refused_by_name(
    transition: tuple[int, ...],
    reward: tuple[int, ...],
    termination: tuple[int, ...],
    initial: tuple[int, ...],
    fault: str,
) -> None:
    with pytest.raises(ShapeError, match=fault):
        tabular_mdp(
            torch.ones(transition), torch.ones(reward), termination=torch.ones(termination), initial=torch.ones(initial)
        )

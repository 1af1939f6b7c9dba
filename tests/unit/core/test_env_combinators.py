"""Combinators Env -> Env, on a world that is a table of integers, so that every comparison is bit for bit."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.env import (
    Env,
    Hoisted,
    auto_reset,
    batched,
    episode_statistics,
    halves,
    reset_key,
    time_limit,
)
from purestep.core.errors import ChoiceError
from purestep.core.keys import Key, key
from purestep.core.record import check, record, replace, stack, take, tensor
from purestep.core.scan import scan
from purestep.core.spaces import Discrete, Fields
from purestep.core.steps import TimeStep, first, following
from purestep.core.tree import leaf_names, same_structure

PLACES, ACTIONS, CHANCES = 5, 2, 3
WORLDS = 3


@record
class Table:
    follow: Tensor = tensor("* P A C", "int")  # the next place, by place, action and chance
    reward: Tensor = tensor("* P A", "float")
    end: Tensor = tensor("* P", "bool")  # entering it terminates
    stop: Tensor = tensor("* P", "bool")  # entering it truncates


@record
class World:
    place: Tensor = tensor("*", "int")
    steps: Tensor = tensor("*", "int")


def table(seed: int) -> Table:
    a, b = keys.split(key(seed))
    return Table(
        follow=keys.randint(a, (PLACES, ACTIONS, CHANCES), 0, PLACES),
        reward=keys.randint(b, (PLACES, ACTIONS), -8, 8) * 0.25,
        end=torch.arange(PLACES) == 1,
        stop=torch.arange(PLACES) == 2,
    )


def observe(state: World) -> dict[str, Tensor]:
    return {"place": state.place, "steps": state.steps * 0.5}


def reset(params: Table, key: Key) -> tuple[World, TimeStep]:
    place = 3 + keys.randint(key, (), 0, 2)
    state = World(place=place, steps=torch.zeros_like(place))
    return state, first(observe(state))


def move(params: Table, state: World, action: Tensor, chance: Tensor) -> tuple[World, TimeStep]:
    place = params.follow[state.place, action, chance]
    new = World(place=place, steps=state.steps + 1)
    return new, following(
        observe(new), params.reward[state.place, action], params.end[place], params.stop[place] | (new.steps % 4 == 0)
    )


def draw(params: Table, key: Key) -> Tensor:
    return keys.randint(key, (), 0, params.follow.shape[-1])


def step(params: Table, state: World, action: Tensor, key: Key) -> tuple[World, TimeStep]:
    return move(params, state, action, draw(params, key))


SPACE = Fields((("place", Discrete(PLACES)),))
PLAIN: Env[Table, Any] = Env(table(0), reset, step, SPACE, Discrete(ACTIONS))
HOISTED: Env[Table, Any] = Env(table(0), reset, step, SPACE, Discrete(ACTIONS), Hoisted(draw, move))
INNER = {"plain": PLAIN, "hoisted": HOISTED}

Combinator = Callable[[Env[Table, Any]], Env[Table, Any]]
COMBINATORS: dict[str, Combinator] = {
    "pooled": auto_reset,
    "batched": lambda env: batched(env, WORLDS),
    "time_limit": lambda env: time_limit(env, 3),
    "statistics": episode_statistics,
}


def composed(env: Env[Table, Any], *names: str) -> Env[Table, Any]:
    """The first name innermost."""
    for name in names:
        env = COMBINATORS[name](env)
    return env


def policy(timestep: TimeStep, number: Tensor) -> Tensor:
    action: Tensor = (timestep.observation["place"] + number) % ACTIONS
    return action


Rollout = tuple[Any, Any]  # the last state and timestep; all states and timesteps


def rollout(env: Env[Table, Any], start: Key, length: int, *, hoisted: bool = False) -> Rollout:
    """Steps under an integer policy; `hoisted` draws the noise of all steps before the first."""
    reset_own, steps_own, numbers_own = keys.split(start, 3)
    step_keys, numbers = keys.split(steps_own, length), keys.randint(numbers_own, (length,), 0, ACTIONS)
    inner = halves(env)
    noise = torch.vmap(lambda own: inner.draw(env.params, own))(step_keys) if hoisted else step_keys

    def advance(carry: Any, x: Any) -> Any:
        (state, timestep), (one, number) = carry, x
        new = (inner.step if hoisted else env.step)(env.params, state, policy(timestep, number), one)
        return new, new

    return scan(advance, env.reset(env.params, reset_own), (noise, numbers))


def assert_same(a: Any, b: Any) -> None:
    assert pytree.tree_structure(a) == pytree.tree_structure(b)
    for name, left, right in zip(leaf_names(a), pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        assert torch.equal(left, right), name


seeds = st.integers(0, 10**6)
inners = st.sampled_from(sorted(INNER))


def ending(timestep: TimeStep) -> Tensor:
    return timestep.terminated | timestep.truncated


def test_the_world_ends_both_ways_and_goes_on() -> None:
    """Otherwise the laws below would say little."""
    _, (_, told) = rollout(auto_reset(PLAIN), key(0), 200)
    kinds = [(told.terminated & ~told.truncated), (told.truncated & ~told.terminated), ~ending(told)]
    kinds.append(told.truncated & told.terminated)
    assert all(int(kind.sum()) > 3 for kind in kinds)


# --- auto_reset ---


@given(seeds, inners, st.sampled_from(["pooled", "select"]))
def test_auto_reset_begins_anew_only_where_an_episode_ends(seed: int, inner: str, mode: str) -> None:
    env = INNER[inner]
    wrapped = auto_reset(env, mode)
    for own in keys.split(key(seed), 8):
        place, action = keys.randint(own, (), 0, PLACES), keys.randint(keys.fold_in(own, 1), (), 0, ACTIONS)
        state = World(place=place, steps=keys.randint(keys.fold_in(own, 2), (), 0, 9))
        got_state, got = wrapped.step(env.params, state, action, own)
        old_state, old = env.step(env.params, state, action, keys.split(own)[0])
        fresh_state, fresh = env.reset(env.params, reset_key(own))
        ended = bool(ending(old))
        assert_same(got_state, fresh_state if ended else old_state)
        assert_same(got.observation, fresh.observation if ended else old.observation)
        assert_same(replace(got, observation=()), replace(old, observation=()))


@given(seeds, inners, st.integers(1, 12))
def test_pooled_resets_are_those_of_select(seed: int, inner: str, length: int) -> None:
    selected = rollout(auto_reset(INNER[inner], "select"), key(seed), length)
    assert_same(rollout(auto_reset(INNER[inner], "pooled"), key(seed), length, hoisted=True), selected)
    assert_same(rollout(auto_reset(INNER[inner], "pooled"), key(seed), length), selected)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", ["inside", "outside"])
def test_pooled_is_select_in_many_worlds(inner: str, outer: str) -> None:
    def build(mode: str) -> Env[Table, Any]:
        if outer == "inside":
            return batched(auto_reset(INNER[inner], mode), WORLDS)
        return auto_reset(batched(INNER[inner], WORLDS), mode)

    selected = rollout(build("select"), key(1), 20)
    assert_same(rollout(build("pooled"), key(1), 20, hoisted=True), selected)
    assert int(ending(selected[1][1]).sum()) > 5


def test_select_has_no_halves_of_its_own_and_pooled_always_has() -> None:
    assert auto_reset(HOISTED, "select").hoisted is None
    assert auto_reset(PLAIN).hoisted is not None


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(ChoiceError, match="auto_reset: mode is 'pool', wanted one of"):
        auto_reset(PLAIN, "pool")


# --- batched ---


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("own_params", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_world_of_a_batch_is_that_world_alone(inner: str, own_params: bool, seed: int) -> None:
    env, reset_own, step_own = INNER[inner], key(seed), key(seed + 100)
    tables = [table(i) for i in range(WORLDS)] if own_params else [env.params] * WORLDS
    params = stack(tables) if own_params else env.params
    many = batched(env, WORLDS, own_params=own_params)
    state, timestep = many.reset(params, reset_own)
    actions = torch.tensor([0, 1, 1])
    after = many.step(params, state, actions, step_own)
    for i, own in enumerate(keys.split(reset_own, WORLDS)):
        assert_same(take((state, timestep), i), env.reset(tables[i], own))
    for i, own in enumerate(keys.split(step_own, WORLDS)):
        assert_same(take(after, i), env.step(tables[i], take(state, i), actions[i], own))
    assert check(after[1], (WORLDS,)) is after[1]
    assert many.hoisted is None or inner == "hoisted"


def test_batches_of_batches_work() -> None:
    many = auto_reset(batched(batched(HOISTED, 2), 3))
    assert_same(rollout(many, key(3), 6, hoisted=True), rollout(many, key(3), 6))


# --- time_limit ---


@given(seeds, inners, st.integers(1, 5))
def test_time_limit_truncates_at_its_step_and_changes_nothing_else(seed: int, inner: str, limit: int) -> None:
    length = 12
    _, (_, told) = rollout(PLAIN, key(seed), length)
    _, (states, limited) = rollout(time_limit(INNER[inner], limit), key(seed), length)
    late = torch.arange(1, length + 1) >= limit
    assert torch.equal(limited.truncated, told.truncated | late)
    assert_same(replace(limited, truncated=()), replace(told, truncated=()))
    assert torch.equal(states.elapsed, torch.arange(1, length + 1))


@given(seeds, inners, st.integers(1, 5))
def test_time_limit_counts_each_episode_from_its_reset(seed: int, inner: str, limit: int) -> None:
    _, (states, told) = rollout(auto_reset(time_limit(INNER[inner], limit)), key(seed), 20, hoisted=True)
    age = 0
    for t in range(20):
        age += 1
        one = take(told, t)
        own_end = bool(params_stop(one))
        assert bool(one.truncated) == (own_end or age == limit)
        age = 0 if bool(ending(one)) else age
        assert int(states.elapsed[t]) == age


def params_stop(timestep: TimeStep) -> Tensor:
    """What the world itself says of a truncation, from what was observed before any reset."""
    seen = timestep.next_observation
    stopped: Tensor = HOISTED.params.stop[seen["place"]] | (seen["steps"] % 2 == 0)
    return stopped


# --- episode_statistics ---


@given(seeds, inners)
def test_statistics_are_the_sums_over_finished_episodes(seed: int, inner: str) -> None:
    env = episode_statistics(auto_reset(INNER[inner]))
    _, (states, told) = rollout(env, key(seed), 24, hoisted=True)
    total, length, finished, return_sum, length_sum = 0.0, 0, 0, 0.0, 0
    for t in range(24):
        total, length = total + float(told.reward[t]), length + 1
        if bool(ending(take(told, t))):
            finished, return_sum, length_sum = finished + 1, return_sum + total, length_sum + length
            total, length = 0.0, 0
        one = take(states, t)
        numbers = one.episode_return, one.episode_length, one.finished, one.return_sum, one.length_sum
        assert tuple(number.item() for number in numbers) == (total, length, finished, return_sum, length_sum)


def test_statistics_change_nothing_they_watch() -> None:
    watched, plain = episode_statistics(auto_reset(HOISTED)), auto_reset(HOISTED)
    (state, last), (states, told) = rollout(watched, key(8), 20)
    assert_same(((state.inner, last), (states.inner, told)), rollout(plain, key(8), 20))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_statistics_keep_the_dtype_of_rewards(dtype: torch.dtype) -> None:
    params = replace(HOISTED.params, reward=HOISTED.params.reward.to(dtype))
    env = episode_statistics(HOISTED)
    state, _ = env.reset(params, key(0))
    state = replace(state, episode_return=state.episode_return.to(dtype), return_sum=state.return_sum.to(dtype))
    after, _ = env.step(params, state, torch.tensor(0), key(1))
    same_structure("step", after, state)


# --- all of them, in every order ---

ORDERS = [order for size in (1, 2, 4) for order in itertools.permutations(COMBINATORS, size)]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_hoisted_step_has_the_bits_of_the_whole(order: tuple[str, ...]) -> None:
    env = composed(HOISTED, *order)
    whole = rollout(env, key(2), 6)
    assert env.hoisted is not None
    assert_same(rollout(env, key(2), 6, hoisted=True), whole)
    state, timestep = env.reset(env.params, key(0))
    same_structure("a step's state and timestep", whole[0], (state, timestep))
    assert check(timestep) is timestep
    assert check(state) is state


@pytest.mark.slow
def test_the_whole_tower_in_a_full_graph(compiled: Any) -> None:
    env = composed(HOISTED, "time_limit", "pooled", "statistics", "batched")
    select_env = batched(episode_statistics(auto_reset(time_limit(HOISTED, 3), "select")), WORLDS)
    wanted = rollout(select_env, key(4), 9)
    assert_same(compiled(lambda start: rollout(env, start, 9, hoisted=True))(key(4)), wanted)
    assert int(wanted[0][0].finished.min()) > 0

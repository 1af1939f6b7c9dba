"""rollout: the loop that anybody would write, step by step with `act`; bit for bit, since world and policy are integers."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Env, Hoisted, auto_reset, batched, map_step, time_limit
from purestep.core.envs import ENVS, make, tabular, tabular_mdp
from purestep.core.errors import ShapeError, StructureError
from purestep.core.keys import Key
from purestep.core.policy import ActorCritic, act, actor_critic_mlp
from purestep.core.record import record, replace, select, stack, take, tensor
from purestep.core.spaces import Discrete
from purestep.core.steps import TimeStep, Trajectory, Transition, ended, first, following
from purestep.core.tree import clone, leaves, same_structure, tree_map
from purestep.runtime.compile import program
from purestep.runtime.rollout import Worlds, reset_rollout, rollout

CELLS, MOVES, BATCH, STEPS = 11, 3, 4, 9
TERMINAL, BORING = 0, 1  # arriving in the one terminates, in the other truncates
KEY = keys.key(5)


@record
class RingState:
    cell: Tensor = tensor("*", "int")
    age: Tensor = tensor("*", "int")


def ring(hoists: bool = True) -> Env[Any, RingState]:
    """Cells in a ring; an action moves ahead by itself plus 1, chance by up to 4. Nothing but integers and halves."""

    def reset(params: Any, key: Key) -> tuple[RingState, TimeStep]:
        cell = keys.randint(key, (), 2, CELLS)
        return RingState(cell=cell, age=torch.zeros_like(cell)), first(cell)

    def draw(params: Any, key: Key) -> Tensor:
        return keys.randint(key, (), 0, 5)

    def advance(params: Any, state: RingState, action: Tensor, luck: Tensor) -> tuple[RingState, TimeStep]:
        cell = (state.cell + 1 + action + luck) % CELLS
        told = following(cell, 0.5 * cell + state.age, cell == TERMINAL, cell == BORING)
        return RingState(cell=cell, age=state.age + 1), told

    def step(params: Any, state: RingState, action: Tensor, key: Key) -> tuple[RingState, TimeStep]:
        return advance(params, state, action, draw(params, key))

    halves = Hoisted(draw=draw, step=advance) if hoists else None
    return Env(
        params=(),
        reset=reset,
        step=step,
        observation_space=Discrete(CELLS),
        action_space=Discrete(MOVES),
        hoisted=halves,
    )


@record
class Lots:
    """A distribution of lots: action a holds weights[a] of them."""

    weights: Tensor = tensor("* A", "int")

    def noise(self, key: Key) -> Tensor:
        return keys.randint(key, (), 0, 1 << 20)

    def transform(self, noise: Tensor) -> Tensor:
        upto = self.weights.cumsum(-1)
        return (upto <= (noise % upto[..., -1])[..., None]).sum(-1)

    def sample(self, key: Key) -> Tensor:
        return self.transform(self.noise(key))

    def log_prob(self, action: Tensor) -> Tensor:
        """No logarithm, but a dyadic number that says which action it was of which weights."""
        return self.weights.gather(-1, action[..., None])[..., 0] + self.weights.sum(-1) * 0.125

    def mode(self) -> Tensor:
        return self.weights.argmax(-1)

    def entropy(self) -> Tensor:
        return self.weights.sum(-1) * 0.5


def table() -> ActorCritic:
    """Params are an integer table [CELLS, MOVES]; the memory counts the steps and turns the table."""

    def init(key: Key) -> Tensor:
        return keys.randint(key, (CELLS, MOVES), 1, 9)

    def apply(params: Tensor, observation: Tensor, carry: Tensor) -> tuple[Any, Tensor, Tensor]:
        row = (observation + carry) % CELLS
        return Lots(weights=params[row]), row * 0.25, carry + 1

    return ActorCritic(init=init, apply=apply)


def by_hand(
    env: Env[Any, Any], model: ActorCritic, params: Any, worlds: Worlds, key: Key, observe: Callable[[Any], Any]
) -> tuple[Worlds, Trajectory]:
    """STEPS steps, one at a time, every draw where it is needed."""
    env_key, policy_key = keys.split(key)
    env_keys, policy_keys, rows = keys.split(env_key, STEPS), keys.split(policy_key, STEPS), []
    for t in range(STEPS):
        chosen = act(model, params, observe(worlds.observation), worlds.memory, keys.split(policy_keys[t], BATCH))
        state, told = env.step(env.params, worlds.state, chosen.action, env_keys[t])
        rows.append(
            Transition(
                observation=worlds.observation,
                action=chosen.action,
                reward=told.reward,
                terminated=told.terminated,
                truncated=told.truncated,
                next_observation=told.next_observation,
                behaviour_log_prob=chosen.log_prob,
            )
        )
        over = ended(told.terminated, told.truncated)
        memory = select(over, worlds.fresh, chosen.carry)
        worlds = replace(worlds, state=state, observation=told.observation, memory=memory)
    return worlds, stack(rows)


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


def fresh(env: Env[Any, Any], seed: int = 1) -> Worlds:
    return reset_rollout(env, keys.key(seed), torch.zeros(BATCH, dtype=torch.int64))


def mirrored(observation: Tensor) -> Tensor:
    return CELLS - 1 - observation


def mdp() -> Env[Any, Any]:
    """Five states, three actions, chances that are multiples of 1/8, an end in the last state in half of all cases."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.one_hot(torch.randint(0, 5, (8, 5, MOVES), generator=generator), 5).float().mean(0)
    rewards = torch.randint(-4, 5, (5, MOVES), generator=generator) * 0.5
    return tabular(tabular_mdp(rows, rewards, termination=torch.tensor([0, 0, 0, 0, 0.5]), initial=torch.ones(5)))


def tabular_policy() -> ActorCritic:
    """`table` for observations that are one-hot."""
    inner = table()
    return ActorCritic(init=inner.init, apply=lambda p, seen, carry: inner.apply(p, seen.argmax(-1), carry))


WORLDS: dict[str, tuple[Callable[[], Env[Any, Any]], ActorCritic]] = {
    "pooled": (lambda: auto_reset(ring()), table()),
    "select": (lambda: auto_reset(ring(), "select"), table()),
    "nothing hoisted": (lambda: auto_reset(ring(hoists=False)), table()),
    "time limit": (lambda: auto_reset(time_limit(ring(), 3)), table()),
    "tabular": (lambda: auto_reset(mdp()), tabular_policy()),
    "no reset": (ring, table()),
}


@pytest.mark.parametrize("name", WORLDS)
def test_rollout_is_a_loop_of_act_and_step(name: str) -> None:
    env, model = batched(WORLDS[name][0](), BATCH), WORLDS[name][1]
    params, observe = model.init(keys.key(2)), (lambda x: x) if name == "tabular" else mirrored
    for seed in range(3):
        worlds = fresh(env, seed)
        got = rollout(env, model, STEPS)(params, worlds, keys.key(100 + seed), observe)
        assert_bits(got, by_hand(env, model, params, worlds, keys.key(100 + seed), observe))


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "mountain_car_continuous", "gridworld"])
def test_so_it_is_in_worlds_of_floats(name: str) -> None:
    """The same operations on the same shapes, hence the same bits, as long as nothing is compiled."""
    single = make(name)
    env, model = (
        batched(auto_reset(single), BATCH),
        actor_critic_mlp(single.observation_space, single.action_space, (4,)),
    )
    params, worlds = model.init(KEY), reset_rollout(env, keys.key(1))
    got = rollout(env, model, STEPS)(params, worlds, KEY)
    wanted = by_hand(env, model, params, worlds, KEY, lambda x: x)
    assert_bits(got[0], wanted[0])
    assert_bits(got[1], wanted[1])


def test_where_resets_are_computed_changes_no_bit() -> None:
    pooled, select = (batched(auto_reset(ring(), mode), BATCH) for mode in ("pooled", "select"))
    params = table().init(keys.key(2))
    one, other = (rollout(env, table(), STEPS)(params, fresh(env), KEY) for env in (pooled, select))
    assert_bits(one, other)
    assert bool(ended(one[1].terminated, one[1].truncated).any())


def test_the_fields_of_a_trajectory() -> None:
    env, model = batched(auto_reset(ring()), BATCH), table()
    params, worlds = model.init(keys.key(2)), fresh(env)
    after, played = rollout(env, model, STEPS)(params, worlds, KEY, mirrored)
    over = ended(played.terminated, played.truncated)
    assert played.reward.shape == (STEPS, BATCH)
    assert bool(played.terminated.any())
    assert bool(played.truncated.any())
    # what was seen: the world's own words, each the last of the step before, or of a new episode
    assert torch.equal(played.observation[0], worlds.observation)
    seen_next = torch.cat([played.observation[1:], after.observation[None]])
    assert torch.equal(torch.where(over, -1, seen_next), torch.where(over, -1, played.next_observation))
    assert bool((seen_next[over] > BORING).all())
    # before any reset
    assert torch.equal(played.next_observation == TERMINAL, played.terminated)
    assert torch.equal(played.next_observation == BORING, played.truncated)
    # the policy saw the mirrored world, and remembered the steps of its episode
    ages = [torch.zeros(BATCH, dtype=torch.int64)]
    for t in range(STEPS):
        ages.append(torch.where(over[t], 0, ages[-1] + 1))
    memory = torch.stack(ages[:-1])
    distribution, _, _ = model.apply(params, mirrored(played.observation), memory)
    assert torch.equal(played.behaviour_log_prob, distribution.log_prob(played.action))
    assert torch.equal(after.memory, ages[-1])
    assert torch.equal(after.state.cell, after.observation)


def test_every_step_has_chances_of_its_own() -> None:
    env = batched(auto_reset(ring()), BATCH)
    params = torch.ones(CELLS, MOVES, dtype=torch.int64)
    _, played = rollout(env, table(), 200)(params, fresh(env), KEY)
    counts = torch.stack([(played.action == move).sum(0) for move in range(MOVES)])
    assert counts.min().item() > 40  # of 200 in each world; 67 are expected, with a deviation of 7
    luck = (played.next_observation - played.observation - 1 - played.action) % CELLS
    shares = torch.stack([(luck == number).sum(0) for number in range(5)])
    assert shares.min().item() > 20  # 40 and 6
    assert not torch.equal(played.action[:, 0], played.action[:, 1])
    assert (played.action * 2 - luck).double().var().item() > 4.0  # the two are not one draw


def test_begin_resets_every_world() -> None:
    env = batched(ring(), BATCH)
    worlds = reset_rollout(env, KEY)
    state, told = env.reset(env.params, KEY)
    assert_bits(worlds, Worlds(state=state, observation=told.observation, memory=(), fresh=()))


@pytest.mark.parametrize(
    "lower",
    [
        pytest.param(lambda run: run, id="eager"),
        pytest.param(lambda run: program(run), id="compiled", marks=pytest.mark.slow),
    ],
)
def test_a_memory_is_that_of_the_episode(lower: Any) -> None:
    """Episodes of 4 steps: after 12 each world begins its fourth, after 14 it has gone two steps of it."""
    env, model = batched(auto_reset(time_limit(replace_endings(ring()), 4)), BATCH), table()
    params, worlds = model.init(KEY), reset_rollout(env, KEY, torch.full((BATCH,), 7))
    for steps, memory in ((12, 7), (2, 9)):
        worlds, _ = lower(rollout(env, model, steps))(params, worlds, KEY)
        assert worlds.memory.tolist() == [memory] * BATCH
        assert worlds.fresh.tolist() == [7] * BATCH


def test_a_memory_of_another_tree_is_refused_in_one_line() -> None:
    env, model = batched(auto_reset(ring()), BATCH), table()
    params = model.init(KEY)
    with pytest.raises(ShapeError, match=r"begin: memory is \[3\], wanted \[4, ...\]; give it"):
        reset_rollout(env, KEY, torch.zeros(3))
    with pytest.raises(StructureError, match=r"begin: memory.h is float, wanted a tensor"):
        reset_rollout(env, KEY, {"h": 0.0})
    with pytest.raises(
        StructureError, match=r"rollout: the model's memory is \[4\] torch.float32, wanted \[4\] torch.int64"
    ):
        rollout(env, attrs.evolve(model, apply=forgetting(model)), STEPS)(params, fresh(env), KEY)
    with pytest.raises(StructureError, match=r"rollout: the memory to begin with is another structure"):
        rollout(env, model, STEPS)(params, replace(fresh(env), fresh=()), KEY)


def forgetting(model: ActorCritic) -> Any:
    """`apply` that gives its memory back in another dtype."""

    def apply(params: Any, observation: Any, carry: Any) -> Any:
        distribution, value, carry = model.apply(params, observation, carry)
        return distribution, value, carry.float()

    return apply


def replace_endings(env: Env[Any, RingState]) -> Env[Any, RingState]:
    """The ring without an end."""

    def wrap(inner: Any) -> Any:
        def step(params: Any, state: RingState, action: Tensor, noise: Any) -> tuple[RingState, TimeStep]:
            state, told = inner(params, state, action, noise)
            never = torch.zeros_like(told.terminated)
            return state, replace(told, terminated=never, truncated=never.clone())

        return step

    return map_step(env, env.reset, wrap)


def test_nothing_is_written_to_and_the_key_decides() -> None:
    env, model = batched(auto_reset(ring()), BATCH), table()
    arguments = (model.init(keys.key(2)), fresh(env), KEY)
    before = clone(arguments)
    act_for = rollout(env, model, STEPS)
    once, twice = act_for(*arguments), act_for(*arguments)
    assert_bits(arguments, before)
    assert all(leaf._version == 0 for leaf in leaves(arguments))
    assert_bits(once, twice)
    assert not torch.equal(act_for(*arguments[:2], keys.key(6))[1].action, once[1].action)


def test_a_batch_of_rollouts_is_its_singles() -> None:
    env, model = batched(auto_reset(ring()), BATCH), table()
    act_for = rollout(env, model, STEPS)
    params = torch.vmap(model.init)(keys.split(keys.key(2), 3))
    worlds = stack([fresh(env, seed) for seed in range(3)])
    many = torch.vmap(lambda p, w, k: act_for(p, w, k))(params, worlds, keys.split(KEY, 3))
    for i in range(3):
        assert_bits(take(many, i), act_for(params[i], take(worlds, i), keys.split(KEY, 3)[i]))


@pytest.mark.slow
def test_a_compiled_loop_of_several_steps_at_once_has_the_same_bits() -> None:
    """Two iterations of four steps, and one step that is left over."""
    env, model = batched(auto_reset(ring()), BATCH), table()
    act_for = rollout(env, model, STEPS, unroll=4)
    arguments = (model.init(keys.key(2)), fresh(env), KEY)
    lowered = program(lambda params, worlds, key: act_for(params, worlds, key, mirrored))
    assert_bits(lowered(*arguments), by_hand(env, model, *arguments, mirrored))


@pytest.mark.slow
def test_every_world_compiles_in_one_process_once() -> None:
    assert len(ENVS) >= 10
    for name in ENVS:
        single = make(name)
        env = batched(auto_reset(single), 2)
        model = actor_critic_mlp(single.observation_space, single.action_space, (4,))
        lowered = program(rollout(env, model, 3), name=name)
        params, worlds = model.init(KEY), reset_rollout(env, keys.key(1))
        played: Any = ()
        for seed in range(3):
            worlds, played = lowered(params, worlds, keys.key(seed))
            lowered.settle()
        assert (len(lowered.seconds), lowered.reason) == (1, "")
        wanted, expected = reset_rollout(env, keys.key(1)), played
        for seed in range(3):
            wanted, expected = rollout(env, model, 3)(params, wanted, keys.key(seed))
        torch.testing.assert_close(
            leaves(tree_map(Tensor.double, played)), leaves(tree_map(Tensor.double, expected)), rtol=1e-4, atol=1e-5
        )


@pytest.mark.slow
def test_the_code_generator_keeps_every_bit() -> None:
    """The worlds and the policy are integers: the C++ loop must say what Python says."""
    env, model = batched(auto_reset(mdp()), BATCH), tabular_policy()
    arguments = (model.init(keys.key(2)), fresh(env), KEY)
    lowered = program(lambda p, w, k: rollout(env, model, STEPS)(p, w, k))
    assert_bits(lowered(*arguments), by_hand(env, model, *arguments, lambda x: x))


def test_a_world_without_auto_reset_goes_on_after_its_end() -> None:
    env = batched(replace_reward(ring()), BATCH)
    after, played = rollout(env, table(), STEPS)(table().init(keys.key(2)), fresh(env), KEY)
    assert torch.equal(played.observation[1:], played.next_observation[:-1])
    assert after.state.age.tolist() == [STEPS] * BATCH


def replace_reward(env: Env[Any, RingState]) -> Env[Any, RingState]:
    """A wrapper around the whole step loses the halves: the noise is the key, drawn from inside the loop."""

    def step(params: Any, state: RingState, action: Tensor, key: Key) -> tuple[RingState, TimeStep]:
        moved, told = env.step(params, state, action, key)
        return moved, replace(told, reward=-told.reward)

    return Env(
        params=env.params,
        reset=env.reset,
        step=step,
        observation_space=env.observation_space,
        action_space=env.action_space,
    )

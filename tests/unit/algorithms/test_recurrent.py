"""Policies with memory: cells by hand and against torch, training that replays the rollout exactly, and what is refused."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, nn

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.dqn import dqn
from purestep.algorithms.ppo import ppo, prepare_samples
from purestep.algorithms.reinforce import reinforce
from purestep.core import keys
from purestep.core.action_values import action_values_mlp
from purestep.core.distributions import Categorical
from purestep.core.env import Env, auto_reset, batched
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.networks import Linear, functional, mlp
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.policy import (
    ActorCritic,
    actor_critic_mlp,
    first_memory,
    flat,
    replayed,
    scalar,
    values_replayed,
    with_action_mask,
)
from purestep.core.record import replace, select, take
from purestep.core.recurrent import CELLS, gru, lstm, module_cell, recurrent_actor_critic, transformer
from purestep.core.scan import scan
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import Remembered, TimeStep, ended, first, following
from purestep.core.tree import leaves, size, tree_map
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import population
from purestep.runtime.rollout import reset_rollout, rollout
from purestep.runtime.train import train, trainer
from purestep.runtime.trained_policy import policy, visited

SEEN, MOVES, KEY = Box(-1.0, 1.0, (2,)), Discrete(2), keys.key(3)
TIME, BATCH, LONGEST, LIMIT = 11, 4, 5, 3  # episodes of up to 5 steps; those of odd worlds are cut after 3


def world() -> Env[Any, Any]:
    """Episodes whose length depends on a random number: half terminate after 2 to 5 steps, half are truncated after 3."""

    def reset(params: Any, key: keys.Key) -> tuple[Any, TimeStep]:
        length = keys.randint(key, (), 2, LONGEST + 1)
        return (length, torch.zeros_like(length)), first(keys.uniform(key, (2,)))

    def step(params: Any, state: Any, action: Tensor, key: keys.Key) -> tuple[Any, TimeStep]:
        length, elapsed = state[0], state[1] + 1
        cut = (length % 2 == 1) & (elapsed == LIMIT)
        over = (length % 2 == 0) & (elapsed == length)
        return (length, elapsed), following(keys.uniform(key, (2,)), action.to(torch.float32), over, cut)

    return Env((), reset, step, SEEN, MOVES)


def model_of(cell: str = "gru") -> ActorCritic:
    model = recurrent_actor_critic(SEEN, MOVES, (5,), cell=cell, size=4 if cell == "transformer" else 3)

    def init(key: keys.Key) -> Any:  # policies far from uniform, which depend on the memory
        return tree_map(
            lambda leaf: leaf + 0.5 * keys.normal(keys.fold_in(key, leaf.numel()), leaf.shape), model.init(key)
        )

    return attrs.evolve(model, init=init)


def played(model: ActorCritic, length: int = TIME) -> tuple[Any, Remembered, Any]:
    """A piece in the middle of the play: params, the piece, and what the rollout itself computed at each step."""
    env = batched(auto_reset(world()), BATCH)
    params = model.init(keys.key(1))
    worlds = reset_rollout(env, keys.key(2), first_memory(model, BATCH))
    worlds, _ = rollout(env, model, 4)(params, worlds, keys.key(4))
    seen: list[Any] = []

    def watched(params: Any, observation: Any, memory: Any) -> Any:
        distribution, value, after = model.apply(params, observation, memory)
        seen.append((value, after))
        return distribution, value, after

    _, trajectory = rollout(env, attrs.evolve(model, apply=watched), length)(params, worlds, keys.key(5))
    steps = seen[-length:]  # the first call only gives the shape of the noise
    values, memories = torch.stack([v for v, _ in steps]), tree_map(lambda *m: torch.stack(m), *[m for _, m in steps])
    return params, Remembered(trajectory=trajectory, memory=worlds.memory, fresh=worlds.fresh), (values, memories)


def test_the_world_ends_in_both_ways_in_the_middle_of_a_piece() -> None:
    _, given, _ = played(model_of())
    steps = given.trajectory
    assert bool(steps.terminated[1:-1].any())
    assert bool(steps.truncated[1:-1].any())
    assert any(bool(leaf.abs().gt(0.01).any()) for leaf in leaves(given.memory))


# --- cells ---


@pytest.mark.parametrize(("cell", "kind"), [(gru, nn.GRUCell), (lstm, nn.LSTMCell)])
def test_cells_are_those_of_torch(cell: Any, kind: Any) -> None:
    ours, theirs = cell(3, 4), kind(3, 4)
    weights = ((theirs.weight_ih, theirs.bias_ih), (theirs.weight_hh, theirs.bias_hh))
    names = zip(("input", "memory"), weights, strict=True)
    params = {name: Linear(weight=w.detach().mT, bias=b.detach()) for name, (w, b) in names}
    x = keys.normal(KEY, (5, 3))
    memory = tree_map(lambda leaf: keys.normal(KEY, (5, *leaf.shape)), ours.memory)
    output, after = ours.apply(params, x, memory)
    wanted = theirs(x, memory)
    for got, want in zip(leaves(after), leaves(wanted), strict=True):
        torch.testing.assert_close(got, want.detach(), rtol=1e-5, atol=1e-6)
    assert torch.equal(output, leaves(after)[0])


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell])
def test_a_module_is_a_cell(kind: Any) -> None:
    theirs, size = kind(3, 4), torch.zeros(4)
    cell = module_cell(theirs, size if kind is nn.GRUCell else (size, size))
    x, memory = keys.normal(KEY, (5, 3)), tree_map(lambda leaf: leaf.expand(5, 4), cell.memory)
    output, after = cell.apply(cell.init(KEY), x, memory)
    for got, want in zip(leaves(after), leaves(theirs(x, memory)), strict=True):
        assert torch.equal(got, want)
    assert torch.equal(output, leaves(after)[0])


def test_attention_is_that_of_torch_over_the_steps_in_its_window() -> None:
    """One layer, written once more with torch's attention over a whole episode, whose mask is the window's band."""
    size, heads, window, steps = 8, 2, 3, 6
    cell = transformer(4, size, window=window, heads=heads)
    params = tree_map(lambda leaf: leaf + 0.3 * keys.normal(keys.key(leaf.numel()), leaf.shape), cell.init(KEY))
    seen, (own,) = keys.normal(KEY, (steps, 4)), params["layers"]
    memory, outputs = cell.memory, []
    for x in seen:
        y, memory = cell.apply(params, x, memory)
        outputs.append(y)

    def affine(layer: Linear, x: Tensor) -> Tensor:
        return x @ layer.weight + layer.bias

    def scaled(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (size,))

    x = affine(params["input"], seen)
    q, k, v = (p.reshape(steps, heads, -1).transpose(0, 1) for p in affine(own["attention"], scaled(x)).chunk(3, -1))
    age = torch.arange(steps)[:, None] - torch.arange(steps)
    inside = (age >= 0) & (age < window)
    bias = own["age"][window - 1 - age.clamp(0, window - 1)].permute(2, 0, 1).masked_fill(~inside, -torch.inf)
    mixed = nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=bias[None])[0]
    y = x + affine(own["output"], mixed.transpose(0, 1).flatten(1))
    wanted = scaled(y + affine(own["second"], torch.relu(affine(own["first"], scaled(y)))))
    torch.testing.assert_close(torch.stack(outputs), wanted, rtol=1e-4, atol=1e-5)


def test_layers_reach_back_a_window_each_and_not_before_the_episode() -> None:
    cell = transformer(1, 8, window=3, heads=2, layers=2)  # so four steps back
    params, x = cell.init(KEY), keys.normal(KEY, (7, 1))

    def last(x: Tensor, memory: Any) -> Tensor:
        for row in x[:-1]:
            _, memory = cell.apply(params, row, memory)
        return cell.apply(params, x[-1], memory)[0]

    slope = torch.func.jacrev(last)(x, cell.memory).abs().sum((0, 2))
    assert (slope > 0).tolist() == [False] * 2 + [True] * 5
    other = tree_map(lambda leaf: keys.normal(KEY, leaf.shape), cell.memory)
    absent = {**other, "present": torch.zeros(3)}
    torch.testing.assert_close(last(x[:2], absent), last(x[:2], cell.memory))


def test_sizes_of_a_transformer_are_checked() -> None:
    with pytest.raises(ShapeError, match="transformer: size is 6, wanted a multiple of 4 heads"):
        transformer(2, 6)
    with pytest.raises(ChoiceError, match="transformer: window is 0"):
        transformer(2, 8, window=0)


@pytest.mark.parametrize("cell", ["gru", "lstm", "min_gru"])
def test_weights_begin_orthogonal_gate_by_gate_and_members_of_a_batch_are_those_alone(cell: str) -> None:
    made = CELLS[cell](6, 4)
    several = keys.split(KEY, 2)
    params = made.init(several)
    for layer in params.values():
        assert not bool(layer.bias.any())
        for gate in layer.weight[0].split(4, -1):
            torch.testing.assert_close(gate.mT @ gate, torch.eye(4), rtol=0.0, atol=1e-5)
    for got, wanted in zip(leaves(made.init(several[1])), leaves(params), strict=True):
        torch.testing.assert_close(got, wanted[1], rtol=0.0, atol=1e-6)


def test_settings_that_do_not_fit_are_refused_in_one_line() -> None:
    with pytest.raises(ShapeError, match=r"gru: size is 0, wanted 1 or more"):
        gru(3, 0)
    with pytest.raises(
        ChoiceError, match=r"recurrent_actor_critic: cell is 'gruu', wanted one of .*; did you mean 'gru'"
    ):
        recurrent_actor_critic(SEEN, MOVES, cell="gruu")
    with pytest.raises(StructureError, match=r"recurrent_actor_critic: hidden is 64, wanted a sequence"):
        recurrent_actor_critic(SEEN, MOVES, 64)  # type: ignore[arg-type]


def test_models_of_models_keep_the_memory() -> None:
    space = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (2,)))))
    model = model_of()
    hidden = recurrent_actor_critic(space, MOVES, (), size=3)
    for other in (flat(model), with_action_mask(model), hidden):
        assert torch.equal(other.memory, torch.zeros(3))
    params, seen = flat(model).init(KEY), keys.normal(KEY, (5, 2))
    same = flat(model).apply(params, seen, torch.ones(5, 3))[1]
    assert torch.equal(same, model.apply(model.init(KEY), seen, torch.ones(5, 3))[1])
    told = {"features": seen, "action_mask": torch.tensor([True, False]).expand(5, 2)}
    distribution, _, _ = hidden.apply(hidden.init(KEY), told, torch.zeros(5, 3))
    assert distribution.mode().tolist() == [0] * 5
    pushes = recurrent_actor_critic(SEEN, SEEN, (4,), size=3, distribution="tanh_normal")
    assert pushes.apply(pushes.init(KEY), seen, torch.zeros(5, 3))[0].mode().shape == (5, 2)


# --- training replays the rollout ---


@pytest.mark.parametrize("cell", CELLS)
def test_training_sees_what_the_rollout_saw_bit_for_bit(cell: str) -> None:
    model = model_of(cell)
    params, given, (values, memories) = played(model)
    steps = given.trajectory
    distribution, again = replayed(model, params, given)
    assert torch.equal(distribution.log_prob(steps.action), steps.behaviour_log_prob)
    assert torch.equal(again, values)
    before, beyond = values_replayed(model, params, given)
    assert torch.equal(before, values)
    wanted = torch.stack([model.apply(params, steps.next_observation[t], take(memories, t))[1] for t in range(TIME)])
    torch.testing.assert_close(beyond, wanted, rtol=1e-5, atol=1e-6)


def one_step_late(model: ActorCritic, params: Any, given: Remembered) -> Tensor:
    """Log-probs whose memory is reset one step after the episode's first step, not before it."""
    steps = given.trajectory

    def step(carry: Any, row: Any) -> Any:
        memory, over = carry
        distribution, _, after = model.apply(params, row.observation, memory)
        memory = select(over, given.fresh, after)
        return (memory, ended(row.terminated, row.truncated)), distribution.log_prob(row.action)

    log_probs: Tensor = scan(step, (given.memory, torch.zeros(BATCH, dtype=torch.bool)), steps)[1]
    return log_probs


MUTANTS: dict[str, Callable[[Remembered], Remembered]] = {
    "never reset": lambda given: replace(
        given,
        trajectory=replace(
            given.trajectory,
            terminated=torch.zeros_like(given.trajectory.terminated),
            truncated=torch.zeros_like(given.trajectory.truncated),
        ),
    ),
    "not reset at a truncation": lambda given: replace(
        given, trajectory=replace(given.trajectory, truncated=torch.zeros_like(given.trajectory.truncated))
    ),
    "begun afresh": lambda given: replace(given, memory=given.fresh),
}


def test_a_reset_one_step_late_and_other_faults_are_noticed() -> None:
    model = model_of()
    params, given, _ = played(model)
    steps = given.trajectory
    late = one_step_late(model, params, given)
    over = ended(steps.terminated, steps.truncated)
    assert not torch.equal(late, steps.behaviour_log_prob)
    assert bool((late[1:] != steps.behaviour_log_prob[1:])[over[:-1]].all())  # at every first step of an episode
    for name, mutant in MUTANTS.items():
        distribution, _ = replayed(model, params, mutant(given))
        assert not torch.equal(distribution.log_prob(steps.action), steps.behaviour_log_prob), name


def test_the_value_beyond_has_the_memory_after_the_step_and_before_the_reset() -> None:
    """The memory counts the steps of the episode, and the value is that count: by hand."""

    def apply(params: Any, observation: Tensor, memory: Tensor) -> Any:
        return Categorical(logits=torch.zeros(*memory.shape, 2)), memory, memory + 1.0

    model = ActorCritic(init=lambda key: (), apply=apply, memory=torch.zeros(()))
    _, given, _ = played(model, 6)
    steps = given.trajectory
    over = ended(steps.terminated, steps.truncated)
    ages = [given.memory]
    for t in range(6):
        ages.append(torch.where(over[t], 0.0, ages[-1] + 1.0))
    wanted = torch.stack(ages[:-1])
    assert torch.equal(replayed(model, (), given)[1], wanted)
    values, next_values = values_replayed(model, (), given)
    assert torch.equal(values, wanted)
    assert torch.equal(next_values, wanted + 1.0)
    samples = prepare_samples(model, (), given, gamma=1.0, lambda_=0.0)
    beyond = torch.where(steps.terminated, 0.0, wanted + 1.0)
    assert torch.equal(samples.advantage.mT, steps.reward + beyond - wanted)
    assert torch.equal(samples.sequence.ended.mT, over)


def gradient_by_loop(model: ActorCritic, params: Any, given: Remembered) -> Any:
    """The gradient of the mean value, with a loop over steps and rows instead of scan and batch."""

    def total(params: Any) -> Tensor:
        steps, values = given.trajectory, []
        for row in range(BATCH):
            memory = tree_map(lambda leaf, row=row: leaf[row], given.memory)
            for t in range(steps.reward.shape[0]):
                _, value, memory = model.apply(params, steps.observation[t, row], memory)
                values.append(value)
                if bool(steps.terminated[t, row]) or bool(steps.truncated[t, row]):
                    memory = tree_map(lambda leaf, row=row: leaf[row], given.fresh)
        return torch.stack(values).mean()

    return torch.func.grad(total)(params)


def test_the_gradient_flows_back_to_the_beginning_of_an_episode_or_of_the_piece() -> None:
    model = model_of()
    params, given, _ = played(model, 6)
    assert bool(ended(given.trajectory.terminated, given.trajectory.truncated)[1:-1].any())
    got = torch.func.grad(lambda p: replayed(model, p, given)[1].mean())(params)
    wanted = gradient_by_loop(model, params, given)
    for a, b in zip(leaves(got), leaves(wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert any(float(leaf.abs().max()) > 1e-3 for leaf in leaves(got["cell"]["memory"]))


@pytest.mark.parametrize("algorithm", [ppo, a2c, reinforce])
def test_the_first_loss_is_that_of_the_policy_that_acted(algorithm: Any) -> None:
    model = model_of()
    _, given, _ = played(model)
    settings = {"epochs": 1, "minibatches": 1} if algorithm is ppo else {}
    learner: Algorithm = algorithm(model, sgd(0.1), **settings)
    state = learner.init(keys.key(1))
    after, metrics = learner.update(state, given, KEY)  # type: ignore[arg-type]
    assert float(metrics["approximate_kl"]) == 0.0
    assert all(not torch.equal(a, b) for a, b in zip(leaves(after.params), leaves(state.params), strict=True))


def test_a_minibatch_is_whole_sequences_each_once_in_an_epoch() -> None:
    """With steps of length 0 an epoch of minibatches has the mean losses of the whole batch, and rewards tell rows apart."""
    model = model_of()
    _, given, _ = played(model)
    one, two = (ppo(model, sgd(0.0), epochs=1, minibatches=n, advantages="batch") for n in (1, 2))
    state = one.init(keys.key(1))
    whole, halves = (algorithm.update(state, given, KEY)[1] for algorithm in (one, two))  # type: ignore[arg-type]
    for name in ("policy_loss", "value_loss", "entropy"):
        torch.testing.assert_close(halves[name], whole[name], rtol=1e-5, atol=1e-6)
    third = ppo(model, sgd(0.0), minibatches=3)
    line = r"ppo: envs of a model with memory is 4, wanted a multiple of 3 minibatches; change the number of envs"
    with pytest.raises(ShapeError, match=line):
        third.update(state, given, KEY)  # type: ignore[arg-type]


# --- trainer, evaluation, what is refused ---


def by_module() -> ActorCritic:
    """A torch module with memory, made pure."""
    cell = functional(nn.GRUCell(2, 3), arguments=lambda pair: (pair, {}))
    policy, value = mlp([3, 2]), scalar(mlp([3, 1]))

    def init(key: keys.Key) -> Any:
        return {"cell": cell.init(key), "policy": policy.init(key), "value": value.init(key)}

    def apply(params: Any, observation: Tensor, memory: Tensor) -> Any:
        h = cell.apply(params["cell"], (observation, memory))
        return Categorical(logits=policy.apply(params["policy"], h)), value.apply(params["value"], h), h

    return ActorCritic(init=init, apply=apply, memory=torch.zeros(3))


def test_a_module_of_torch_with_memory_is_trained() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = by_module()
    one = trainer(world(), model, ppo(model, adam(0.01), epochs=1, minibatches=2), envs=4, horizon=6)
    begun = one.init(KEY)
    state, metrics = train(one, 2)(begun)
    assert metrics["finite"].tolist() == [1.0, 1.0]
    before = begun.learner.params["cell"]
    assert all(not torch.equal(state.learner.params["cell"][name], before[name]) for name in before)


def test_a_trainer_carries_the_memory_from_piece_to_piece_and_members_do_not_share_it() -> None:
    model = flat(model_of("lstm"))
    one = trainer(world(), model, a2c(model, adam(0.01)), envs=4, horizon=3)
    start = one.init(KEY)
    assert not any(bool(leaf.any()) for leaf in leaves(start.worlds.memory))
    assert size(start.worlds.memory) == 4 * 6
    after, _ = train(one, 3)(start)
    assert any(bool(leaf.any()) for leaf in leaves(after.worlds.memory))
    assert not any(bool(leaf.any()) for leaf in leaves(after.worlds.fresh))
    seeds = torch.stack([KEY, keys.key(8)])
    many = population(one)
    both, _ = train(many, 3)(many.init(seeds))
    for got, want in zip(leaves(both.worlds.memory), leaves(after.worlds.memory), strict=True):
        torch.testing.assert_close(got[0], want, rtol=1e-4, atol=1e-5)
        assert not torch.equal(got[1], got[0])


def test_an_evaluation_begins_with_the_models_memory_and_carries_it() -> None:
    """The memory counts steps; the reward of a step is the parity that it shows."""

    def apply(params: Any, observation: Tensor, memory: Tensor) -> Any:
        odd = memory % 2
        return Categorical(logits=torch.stack([1.0 - odd, odd], -1)), odd, memory + 1.0

    def step(params: Any, state: Any, action: Tensor, key: keys.Key) -> tuple[Any, TimeStep]:
        reward = action.to(torch.float32) * 2.0**-state
        return state + 1, following(torch.zeros(2), reward, state == 4)

    env: Env[Any, Any] = Env((), lambda params, key: (torch.zeros(()), first(torch.zeros(2))), step, SEEN, MOVES)
    for begun, wanted in ((0.0, 2.0**-1 + 2.0**-3), (1.0, 1.0 + 2.0**-2 + 2.0**-4)):
        model = ActorCritic(init=lambda key: torch.zeros(1), apply=apply, memory=torch.tensor(begun))
        told = evaluate(env, model, episodes=3, steps=9)(torch.zeros(1), (), KEY)
        assert told.returns.tolist() == [wanted] * 3
        one = trainer(env, model, a2c(model, sgd(0.1)), envs=2, horizon=3)
        found = policy(env, model, one.init(KEY))
        distribution, memory = found.step(torch.zeros(2))
        assert (int(distribution.mode()), float(memory)) == (int(begun), begun + 1.0)
        distribution, memory = found.step(torch.zeros(3, 2), memory.expand(3))
        assert (distribution.mode().tolist(), memory.tolist()) == ([1 - int(begun)] * 3, [begun + 2.0] * 3)
        assert visited(found, 5, KEY).shape == (5, 2)
        with pytest.raises(
            StructureError, match=r"TrainedPolicy: the model is one with memory, .*`step` with the memory"
        ):
            found.action(torch.zeros(2))


def test_a_memory_where_none_is_known_and_none_where_one_is_needed_are_refused() -> None:
    model, plain = model_of(), actor_critic_mlp(SEEN, MOVES)
    _, given, _ = played(model)
    learner = ppo(model, sgd(0.1))
    with pytest.raises(
        StructureError, match=r"ppo: trajectory is without memory, wanted Remembered; train by `trainer`"
    ):
        learner.update(learner.init(KEY), given.trajectory, KEY)
    with pytest.raises(StructureError, match=r"ppo: trajectory is with memory, wanted one without; give the model its"):
        prepare_samples(plain, plain.init(KEY), given, gamma=1.0, lambda_=1.0)
    with pytest.raises(StructureError, match=r"decoupled_ppo: model is one with memory, .*by ppo, a2c or reinforce"):
        decoupled_ppo(model, sgd(0.1))
    alone = Algorithm(init=learner.init, update=learner.update, metrics=learner.metrics)
    with pytest.raises(StructureError, match=r"trainer: model is one with memory, .*train it by ppo, a2c or reinforce"):
        trainer(world(), model, alone, envs=4, horizon=3)
    values = attrs.evolve(action_values_mlp(SEEN, MOVES), memory=torch.zeros(3))
    with pytest.raises(StructureError, match=r"model is one with memory, .*train it by ppo, a2c or reinforce"):
        trainer(world(), values, dqn(values, adam(0.1), replay_size=100, learning_starts=1), envs=4, horizon=3)
    other = attrs.evolve(model, memory=torch.zeros(4))
    with pytest.raises(StructureError, match=r"model is one that fails on an observation of the env and its memory"):
        trainer(world(), other, ppo(other, sgd(0.1)), envs=4, horizon=3)
    lost = attrs.evolve(model, apply=lambda p, x, memory: (*model.apply(p, x, memory)[:2], ()))
    with pytest.raises(StructureError, match=r"trainer: the memory that the model returns is another structure"):
        trainer(world(), lost, ppo(lost, sgd(0.1)), envs=4, horizon=3)
    number = attrs.evolve(model, memory=0.0)
    with pytest.raises(StructureError, match=r"trainer: the model's memory is float, wanted a tensor"):
        trainer(world(), number, ppo(number, sgd(0.1)), envs=4, horizon=3)

"""REINFORCE and A2C: one update against a hand-written one, the forms an update must survive, and learning."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.a2c import a2c
from purestep.algorithms.algorithm import Algorithm, TrainState
from purestep.algorithms.reinforce import reinforce
from purestep.core import keys
from purestep.core.env import Env, auto_reset, batched
from purestep.core.errors import ChoiceError
from purestep.core.keys import Key
from purestep.core.optim.optimizers import adam, sgd, with_hyperparameters
from purestep.core.policy import ActorCritic, act, actor_critic_mlp, flat
from purestep.core.record import record, replace, stack, take
from purestep.core.scan import scan
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import TimeStep, Trajectory, Transition, first, following
from purestep.core.tree import leaves, tree_map

TIME, BATCH = 6, 3
OBSERVATIONS, ACTIONS = Box(0.0, 1.0, (2,)), Discrete(2)
METRICS = ("policy_loss", "value_loss", "entropy", "approximate_kl", "gradient_norm")
MODEL = actor_critic_mlp(OBSERVATIONS, ACTIONS, hidden=(4,))
FACTORIES: dict[str, Any] = {
    "a2c": lambda model, optimizer, **options: a2c(model, optimizer, **options),
    "none": lambda model, optimizer, **options: reinforce(model, optimizer, baseline="none", **options),
    "mean": lambda model, optimizer, **options: reinforce(model, optimizer, baseline="mean", **options),
    "value": lambda model, optimizer, **options: reinforce(model, optimizer, baseline="value", **options),
}


def random_trajectory(seed: int, *lead: int) -> Trajectory:
    """[*lead, TIME, BATCH] rows with endings of both kinds, unfinished at the end."""
    generator = torch.Generator().manual_seed(seed)
    shape = (*lead, TIME, BATCH)
    kind = torch.rand(shape, generator=generator)
    return Transition(
        observation=torch.rand((*shape, 2), generator=generator),
        action=torch.randint(0, 2, shape, generator=generator),
        reward=torch.randn(shape, generator=generator),
        terminated=kind < 0.2,
        truncated=(kind > 0.1) & (kind < 0.4),
        next_observation=torch.rand((*shape, 2), generator=generator),
        behaviour_log_prob=torch.full(shape, -0.69),
    )


def by_hand(name: str, params: Any, data: Trajectory, gamma: float, lambda_: float) -> Tensor:
    """The total loss of a trajectory, row by row in Python, with coefficients 0.5 (value) and 0.25 (entropy)."""
    distribution, values, _ = MODEL.apply(params, data.observation, ())
    with torch.no_grad():
        v, after = values.detach(), MODEL.apply(params, data.next_observation, ())[1]
        if name in ("none", "mean"):
            after = torch.zeros_like(after)
        targets = torch.zeros(TIME, BATCH)
        for b in range(BATCH):
            for t in reversed(range(TIME)):
                beyond = 0.0 if data.terminated[t, b] else after[t, b]
                if t < TIME - 1 and not (data.terminated[t, b] or data.truncated[t, b]):
                    beyond = targets[t + 1, b]
                    if name == "a2c":  # the value, and lambda times what the next row adds to it
                        beyond = after[t, b] + lambda_ * (targets[t + 1, b] - v[t + 1, b])
                targets[t, b] = data.reward[t, b] + gamma * beyond
        baselines = {"a2c": v, "value": v, "none": torch.zeros(()), "mean": targets.mean()}
        advantages = targets - baselines[name]
    policy_loss = -(advantages * distribution.log_prob(data.action)).mean()
    value_loss = torch.zeros(()) if name in ("none", "mean") else ((values - targets) ** 2).mean() / 2
    return policy_loss + 0.5 * value_loss - 0.25 * distribution.entropy().mean()


@pytest.mark.parametrize("name", FACTORIES)
def test_one_update_is_the_gradient_step_written_by_hand(name: str) -> None:
    options = {"gamma": 0.9, "value_coefficient": 0.5, "entropy_coefficient": 0.25}
    if name == "a2c":
        options["gae_lambda"] = 0.8
    algorithm = FACTORIES[name](MODEL, sgd(0.5), **options)
    state, data = algorithm.init(keys.key(1)), random_trajectory(2)
    params = tree_map(lambda leaf: leaf.clone().requires_grad_(), state.params)
    gradients = torch.autograd.grad(
        by_hand(name, params, data, 0.9, 0.8), leaves(params), allow_unused=True, materialize_grads=True
    )
    after, metrics = algorithm.update(state, data, keys.key(0))
    for old, new, gradient in zip(leaves(state.params), leaves(after.params), gradients, strict=True):
        torch.testing.assert_close(new, old - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    norm = torch.sqrt(torch.stack([(gradient**2).sum() for gradient in gradients]).sum())
    torch.testing.assert_close(metrics["gradient_norm"], norm, rtol=1e-4, atol=1e-6)
    assert after.step.item() == 1


@pytest.mark.parametrize("name", FACTORIES)
def test_update_is_pure_and_tells_scalars(name: str) -> None:
    algorithm = FACTORIES[name](MODEL, adam(0.1))
    state, data = algorithm.init(keys.key(1)), random_trajectory(2)
    before = [leaf.clone() for leaf in leaves((state, data))]
    first_time, metrics = algorithm.update(state, data, keys.key(0))
    second_time, _ = algorithm.update(state, data, keys.key(9))
    assert all(torch.equal(a, b) for a, b in zip(leaves((state, data)), before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(leaves(first_time), leaves(second_time), strict=True))
    assert tuple(metrics) == algorithm.metrics == METRICS
    assert all(value.shape == () and not value.requires_grad for value in metrics.values())


def test_without_a_value_baseline_the_value_network_is_left_alone() -> None:
    for name in ("none", "mean"):
        algorithm = FACTORIES[name](MODEL, sgd(0.5))
        state = algorithm.init(keys.key(1))
        after, metrics = algorithm.update(state, random_trajectory(2), keys.key(0))
        pairs = zip(leaves(after.params["value"]), leaves(state.params["value"]), strict=True)
        assert all(torch.equal(new, old) for new, old in pairs)
        assert metrics["value_loss"].item() == 0.0
        assert metrics["policy_loss"].item() != 0.0


def test_no_advantage_and_no_bonus_leave_everything() -> None:
    algorithm = reinforce(MODEL, sgd(0.5), baseline="none")
    state, data = algorithm.init(keys.key(1)), random_trajectory(2)
    after, _ = algorithm.update(state, replace(data, reward=torch.zeros(TIME, BATCH)), keys.key(0))
    assert all(torch.equal(new, old) for new, old in zip(leaves(after.params), leaves(state.params), strict=True))


def test_approximate_kl_says_how_far_the_data_are_off_policy() -> None:
    algorithm = a2c(MODEL, sgd(0.5))
    state, data = algorithm.init(keys.key(1)), random_trajectory(2)
    distribution, _, _ = MODEL.apply(state.params, data.observation, ())
    own = replace(data, behaviour_log_prob=distribution.log_prob(data.action))
    assert algorithm.update(state, own, keys.key(0))[1]["approximate_kl"].item() == 0.0
    far = replace(data, behaviour_log_prob=own.behaviour_log_prob - 1.0)
    assert algorithm.update(state, far, keys.key(0))[1]["approximate_kl"].item() == pytest.approx(
        torch.e - 2.0, rel=1e-5
    )


def test_unknown_baseline_is_refused() -> None:
    with pytest.raises(ChoiceError, match="did you mean 'value'"):
        reinforce(MODEL, sgd(0.5), baseline="values")  # type: ignore[arg-type]


@record
class Masked:
    """An observation of two fields."""

    features: Tensor  # [*, 2]
    action_mask: Tensor  # bool [*, 2]


def test_observation_may_be_a_record_and_params_one_vector() -> None:
    space = Fields((("features", OBSERVATIONS), ("action_mask", Box(0.0, 1.0, (2,)))))
    algorithm = a2c(flat(actor_critic_mlp(space, ACTIONS, hidden=(4,))), adam(0.1))
    data = random_trajectory(2)
    mask = torch.ones(TIME, BATCH, 2, dtype=torch.bool)
    seen = Masked(features=data.observation, action_mask=mask)
    then = Masked(features=data.next_observation, action_mask=mask)
    state = algorithm.init(keys.key(1))
    after, metrics = algorithm.update(state, replace(data, observation=seen, next_observation=then), keys.key(0))
    assert after.params.shape == state.params.shape
    assert not torch.equal(after.params, state.params)
    assert all(torch.isfinite(value) for value in metrics.values())


@pytest.mark.slow
def test_update_is_one_graph_and_runs_in_a_scan(compiled: Any) -> None:
    algorithm = a2c(actor_critic_mlp(OBSERVATIONS, ACTIONS, hidden=()), sgd(0.1))  # small: compiling is what costs
    state, data = algorithm.init(keys.key(1)), random_trajectory(3, 4)

    def train(state: TrainState, data: Trajectory) -> tuple[TrainState, Any]:
        return scan(lambda state, rows: algorithm.update(state, rows, keys.key(0)), state, data)

    expected, told = state, []
    for i in range(4):
        expected, metrics = algorithm.update(expected, take(data, i), keys.key(0))
        told.append(metrics)
    after, history = compiled(train)(state, data)
    for got, wanted in zip(leaves(after), leaves(expected), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(history, dict(stack(told)), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_reinforce_update_is_one_graph(compiled: Any) -> None:
    algorithm = reinforce(MODEL, sgd(0.1), baseline="value")
    state, data = algorithm.init(keys.key(1)), random_trajectory(3)
    after, _ = compiled(algorithm.update)(state, data, keys.key(0))
    expected, _ = algorithm.update(state, data, keys.key(0))
    for got, wanted in zip(leaves(after), leaves(expected), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_population_with_different_learning_rates_is_one_vmap() -> None:
    algorithm = a2c(MODEL, sgd(0.1))
    seeds = keys.split(keys.key(1), 2)
    states = torch.vmap(algorithm.init)(seeds)
    rates = torch.tensor([0.0, 0.5])
    states = replace(states, optimizer=with_hyperparameters(states.optimizer, {"learning_rate": rates}))
    data = random_trajectory(3, 2)
    after, _ = torch.vmap(algorithm.update, in_dims=(0, 0, None))(states, data, keys.key(0))
    singles = []
    for i, rate in enumerate((0.0, 0.5)):
        single = a2c(MODEL, sgd(rate))
        singles.append(single.update(single.init(seeds[i]), take(data, i), keys.key(0))[0].params)
    for got, wanted, old in zip(leaves(after.params), leaves(stack(singles)), leaves(states.params), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)
        assert torch.equal(got[0], old[0])


def delayed_bandit() -> Env[tuple[()], Tensor]:
    """Two steps: action 1 in the first earns 1 in the second, whose own action does not matter. State: [step, choice]."""

    def see(state: Tensor) -> Tensor:
        return (state[0] == torch.arange(2)).to(torch.float32)

    def reset(params: tuple[()], key: Key) -> tuple[Tensor, TimeStep]:
        state = torch.zeros(2, dtype=torch.int64)
        return state, first(see(state))

    def step(params: tuple[()], state: Tensor, action: Tensor, key: Key) -> tuple[Tensor, TimeStep]:
        second = state[0] == 1
        reward = torch.where(second, state[1], 0).to(torch.float32)
        after = torch.stack([torch.ones_like(action), action])
        return after, following(see(after), reward, second)

    return auto_reset(Env(params=(), reset=reset, step=step, observation_space=OBSERVATIONS, action_space=ACTIONS))


def rollout(env: Env[Any, Any], model: ActorCritic, params: Any, start: Any, key: Key) -> tuple[Any, Trajectory]:
    def move(carry: tuple[Any, Tensor], step_key: Key) -> tuple[Any, Transition]:
        state, observation = carry
        act_key, env_key = keys.split(step_key)
        choice = act(model, params, observation, (), keys.split(act_key, observation.shape[0]))
        state, timestep = env.step(env.params, state, choice.action, env_key)
        row = Transition(
            observation=observation,
            action=choice.action,
            reward=timestep.reward,
            terminated=timestep.terminated,
            truncated=timestep.truncated,
            next_observation=timestep.next_observation,
            behaviour_log_prob=choice.log_prob,
        )
        return (state, timestep.observation), row

    return scan(move, start, keys.split(key, 5))


def probability_of_the_better_arm(algorithm: Algorithm, model: ActorCritic, updates: int) -> tuple[float, Any]:
    env = batched(delayed_bandit(), 16)
    train, start, step = keys.split(keys.key(3), 3)
    state = algorithm.init(train)
    world, timestep = env.reset(env.params, start)
    carry = world, timestep.observation
    for i in range(updates):
        carry, data = rollout(env, model, state.params, carry, keys.fold_in(step, i))
        state, _ = algorithm.update(state, data, keys.key(0))
    distribution, values, _ = model.apply(state.params, torch.eye(2), ())
    return float(distribution.log_prob(torch.ones(2, dtype=torch.int64))[0].exp()), values


@pytest.mark.parametrize(
    "name", ["a2c", "value", *(pytest.param(name, marks=pytest.mark.slow) for name in ("none", "mean"))]
)
def test_the_better_arm_is_found(name: str) -> None:
    algorithm = FACTORIES[name](MODEL, adam(0.05), gamma=0.5)
    probability, values = probability_of_the_better_arm(algorithm, MODEL, 60)
    assert probability > 0.9
    if name in ("a2c", "value"):  # the reward lies one step beyond the first state
        assert values.tolist() == pytest.approx([0.5, 1.0], abs=0.15)

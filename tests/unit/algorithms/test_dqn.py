"""DQN: one update against a hand-written one, n-step batches, exploration, masks, and refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.algorithm import TrainState, begin
from purestep.algorithms.dqn import dqn
from purestep.algorithms.off_policy import StoredStep, batch_at
from purestep.core import keys
from purestep.core.action_values import ActionValues, action_values, action_values_mlp
from purestep.core.distributions import EpsilonGreedy, illegal
from purestep.core.env import Env
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.networks import mlp
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import replace, take
from purestep.core.replay import Replay, empty_replay, rows_at, store
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import Transition
from purestep.core.tree import leaves
from purestep.runtime.population import population
from purestep.runtime.train import train, trainer

TIME, ENVS, SIZE, SEEN, ACTIONS = 7, 2, 64, Box(0.0, 1.0, (2,)), Discrete(3)
MODEL = action_values_mlp(SEEN, ACTIONS, hidden=(4,))


def played(seed: int = 0) -> Transition:
    """[TIME, ENVS] rows with endings of both kinds."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.rand((TIME, ENVS), generator=generator)
    return Transition(
        observation=torch.rand((TIME, ENVS, 2), generator=generator),
        action=torch.randint(0, 3, (TIME, ENVS), generator=generator),
        reward=torch.randn((TIME, ENVS), generator=generator),
        terminated=kind < 0.2,
        truncated=(kind > 0.1) & (kind < 0.4),
        next_observation=torch.rand((TIME, ENVS, 2), generator=generator),
        behaviour_log_prob=torch.zeros(TIME, ENVS),
    )


def begun(model: Any = MODEL, **settings: Any) -> tuple[Any, TrainState]:
    """An algorithm and its first state."""
    usual: dict[str, Any] = {"replay_size": SIZE, "learning_starts": 1, "batch_size": 8, "gamma": 0.5}
    algorithm = dqn(model, sgd(0.25), **{**usual, **settings})
    return algorithm, begin(algorithm, keys.key(0), take(take(played(), 0), 0))


def buffer_of(trajectory: Transition, **options: Any) -> Replay:
    """A buffer with the rows of a trajectory, in the order of time."""
    names = ("observation", "action", "reward", "terminated", "truncated", "next_observation")
    rows = StoredStep(**{name: getattr(trajectory, name).flatten(0, 1) for name in names})
    return store(empty_replay(take(rows, 0), SIZE, **options), rows)


def by_hand(trajectory: Transition, t: int, env: int, n: int, gamma: float) -> tuple[float, float, Tensor]:
    """The n-step return of a row, its discount, and the observation after its last step, step by step."""
    reward, discount, k = 0.0, 1.0, t
    for k in range(t, min(t + n, TIME)):
        reward += discount * float(trajectory.reward[k, env])
        discount *= gamma
        if trajectory.terminated[k, env]:
            return reward, 0.0, trajectory.next_observation[k, env]
        if trajectory.truncated[k, env]:
            break
    return reward, discount, trajectory.next_observation[k, env]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_batch_has_returns_of_n_steps_within_an_episode(n: int) -> None:
    trajectory = played()
    assert bool(trajectory.terminated.any())
    assert bool((trajectory.truncated & ~trajectory.terminated).any())
    batch = batch_at(buffer_of(trajectory), torch.arange(TIME * ENVS), ENVS, gamma=0.5, n=n)
    for row in range(TIME * ENVS):
        reward, discount, after = by_hand(trajectory, row // ENVS, row % ENVS, n, 0.5)
        assert float(batch.reward[row]) == pytest.approx(reward, abs=1e-6)
        assert float(batch.discount[row]) == pytest.approx(discount)
        assert torch.equal(batch.next_observation[row], after)


@pytest.mark.parametrize("target", ["double", "max"])
@pytest.mark.parametrize("loss", ["huber", "squared"])
def test_an_update_is_the_one_written_by_hand(target: str, loss: str) -> None:
    algorithm, state = begun(target=target, loss=loss, target_period=1, target_rate=0.25)
    older = MODEL.init(keys.key(5))["network"]
    after, metrics = algorithm.update(replace(state, targets=older), played(), keys.key(3))

    draw_key, _ = keys.split(keys.split(keys.key(3), 1)[0])
    numbers = keys.randint(draw_key, (8,), 0, torch.tensor(TIME * ENVS))
    rows = rows_at(buffer_of(played()), numbers)
    network = state.params["network"].clone().requires_grad_()
    chooser = network if target == "double" else older
    chosen = MODEL.outputs(chooser, rows.next_observation).argmax(-1)
    value = MODEL.outputs(older, rows.next_observation)[torch.arange(8), chosen]
    wanted = (rows.reward + 0.5 * ~rows.terminated * value).detach()
    taken = MODEL.outputs(network, rows.observation)[torch.arange(8), rows.action]
    losses = {"huber": torch.nn.functional.smooth_l1_loss, "squared": lambda x, y: (x - y).square().mean() / 2}
    found = losses[loss](taken, wanted)
    (gradient,) = torch.autograd.grad(found, network)
    moved = (network - 0.25 * gradient).detach()
    assert torch.allclose(after.params["network"], moved, atol=1e-6)
    assert torch.allclose(after.targets, older + 0.25 * (moved - older), atol=1e-6)
    assert float(metrics["loss"]) == pytest.approx(float(found.detach()), abs=1e-6)
    assert int(after.step) == 1


def test_nothing_is_learned_before_it_starts_and_exploration_falls() -> None:
    algorithm, state = begun(learning_starts=2 * TIME * ENVS, exploration=0.5, exploration_steps=4 * TIME * ENVS)
    begun_with = state.params["network"]
    seen = []
    for number in range(6):
        state, metrics = algorithm.update(state, played(number), keys.key(number))
        seen.append((torch.equal(state.params["network"], begun_with), round(float(state.params["epsilon"]), 4)))
        assert bool(metrics["loss"].isnan()) == (number == 0)
        assert int(metrics["replay_rows"]) == min(SIZE, (number + 1) * TIME * ENVS)
    assert seen == [(True, 0.875), (False, 0.75), (False, 0.625), (False, 0.5), (False, 0.5), (False, 0.5)]
    assert int(state.step) == 5


def test_the_target_network_waits_for_its_period() -> None:
    algorithm, state = begun(target_period=3, updates=1)
    begun_with, copies = state.targets, []
    for number in range(6):
        state, _ = algorithm.update(state, played(number), keys.key(number))
        copies.append(torch.equal(state.targets, state.params["network"]))
        if number < 2:
            assert torch.equal(state.targets, begun_with)
    assert copies == [False, False, True, False, False, True]


def test_priorities_follow_the_errors() -> None:
    algorithm, state = begun(replay="prioritised", priority_exponent=1.0, learning_starts=2 * TIME * ENVS, updates=1)
    state, _ = algorithm.update(state, played(), keys.key(0))
    rows = TIME * ENVS
    assert torch.equal(state.replay.sums[64 : 64 + rows], torch.ones(rows)), "all new rows are alike"
    state, _ = algorithm.update(state, played(1), keys.key(1))
    priorities = state.replay.sums[64 : 64 + 2 * rows]
    changed = priorities != 1.0
    assert 1 <= int(changed.sum()) <= 8
    assert float(state.replay.highest) == float(torch.maximum(priorities.max(), torch.tensor(1.0)))


def test_a_batch_drawn_by_priority_is_weighted() -> None:
    seen = {}
    for exponent in (0.0, 1.0):
        algorithm, state = begun(replay="prioritised", importance_exponent=exponent, updates=6)
        seen[exponent] = algorithm.update(state, played(), keys.key(0))[0].params["network"]
    assert not torch.equal(seen[0.0], seen[1.0])


def test_an_illegal_action_is_neither_taken_nor_bootstrapped_from() -> None:
    space = Fields((("features", Box(-1.0, 1.0, (2,))), ("action_mask", Box(0.0, 1.0, (3,)))))
    model = action_values_mlp(space, ACTIONS, hidden=(4,))
    mask = torch.tensor([[True, False, True], [False, True, False]]).repeat(200, 1)
    observation = {"features": torch.rand(400, 2), "action_mask": mask}
    params = model.init(keys.key(0))
    for epsilon in (0.0, 0.5, 1.0):
        distribution, value, _ = model.apply({**params, "epsilon": torch.tensor(epsilon)}, observation, ())
        for action in (distribution.sample(keys.split(keys.key(1), 400)), distribution.mode()):
            assert bool(mask.gather(-1, action[:, None]).all())
    assert bool((value.abs() < 1e3).all())
    only = EpsilonGreedy(values=torch.full((1, 3), illegal(torch.float32)), epsilon=torch.ones(1))
    assert torch.allclose(only.probs(), torch.full((1, 3), 1 / 3))


def test_a_network_of_ones_own_and_discrete_observations_learn_a_bandit() -> None:
    env = make("probe_both")
    model = action_values_mlp(env.observation_space, env.action_space, hidden=(16,))
    algorithm = dqn(model, adam(1e-2), replay_size=256, learning_starts=32, exploration_steps=512, updates=4)
    one = trainer(env, model, algorithm, envs=4, horizon=4)
    _, metrics = train(one, 60)(one.init(keys.key(0)))
    assert float(metrics["error"][-1]) < 0.1
    assert isinstance(action_values(mlp([2, 3]), SEEN), ActionValues)


def test_members_of_a_population_are_runs_of_their_own() -> None:
    env: Env[Any, Any] = make("probe_both")
    model = action_values_mlp(env.observation_space, env.action_space, hidden=(4,))
    algorithm = dqn(model, sgd(0.1), replay_size=32, learning_starts=4, replay="prioritised", n_step=2, batch_size=4)
    one = trainer(env, model, algorithm, envs=2, horizon=3)
    seeds = torch.stack([keys.key(seed) for seed in range(2)])
    many, _ = train(population(one), 4)(population(one).init(seeds))
    for member, seed in enumerate(seeds):
        alone, _ = train(one, 4)(one.init(seed))
        for got, wanted in zip(leaves(take(many.learner, member)), leaves(alone.learner), strict=True):
            assert torch.allclose(got.double(), wanted.double(), atol=1e-5)


def test_a_nan_in_the_buffer_shows_as_one_in_the_params() -> None:
    algorithm, state = begun(updates=8)
    broken = replace(played(), reward=torch.full((TIME, ENVS), torch.nan))
    after, _ = algorithm.update(state, broken, keys.key(0))
    assert bool(after.params["network"].isnan().any())


def test_bad_input_ends_in_one_line() -> None:
    with pytest.raises(StructureError, match="dqn: model is ActorCritic, wanted an ActionValues; make it with"):
        dqn(actor_critic_mlp(SEEN, ACTIONS), sgd(0.1))  # type: ignore[arg-type]
    with pytest.raises(StructureError, match="actions is Box, wanted Discrete; use an algorithm for such actions"):
        action_values_mlp(SEEN, Box(-1.0, 1.0, (1,)))
    with pytest.raises(ChoiceError, match="learning_starts is 100, wanted at most replay_size 64"):
        begun(learning_starts=100)
    algorithm, state = begun(replay_size=8)
    with pytest.raises(ShapeError, match="store: rows is 14, wanted at most 8, those of the buffer"):
        algorithm.update(state, played(), keys.key(0))
    with pytest.raises(ChoiceError, match="dqn: target is 'single', wanted one of"):
        begun(target="single")

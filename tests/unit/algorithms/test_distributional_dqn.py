"""QR-DQN, C51 and IQN: their losses, one update against plain loops, what they learn, masks, and refusals."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.algorithm import TrainState, begin
from purestep.algorithms.categorical_dqn import categorical_dqn
from purestep.algorithms.distributional_losses import project_categorical, quantile_huber_loss
from purestep.algorithms.iqn import iqn
from purestep.algorithms.quantile_dqn import quantile_dqn
from purestep.core import keys
from purestep.core.action_values import action_values_mlp
from purestep.core.categorical_values import categorical_values, categorical_values_mlp
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, PurestepError, ShapeError, StructureError
from purestep.core.networks import Network
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.quantile_values import (
    implicit_quantiles,
    implicit_quantiles_mlp,
    quantile_values,
    quantile_values_mlp,
)
from purestep.core.record import replace, take
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import Transition
from purestep.core.tree import leaves
from purestep.properties import check, policy_laws
from purestep.runtime.compile import program
from purestep.runtime.population import population
from purestep.runtime.train import train, trainer

SEEN, ACTIONS, GAMMA, RATE, KEY = Box(-1.0, 1.0, (2,)), Discrete(3), 0.5, 0.25, keys.key(5)
MASKED = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (3,)))))
COMMON: dict[str, Any] = {"gamma": GAMMA, "replay_size": 16, "learning_starts": 1, "batch_size": 4}
ATOMS = 5
SUPPORT = torch.linspace(-2.0, 2.0, ATOMS)
BOUNDS: dict[str, Any] = {"lowest_return": -2.0, "highest_return": 2.0}
MAKERS: dict[str, Callable[..., Any]] = {
    "quantile_dqn": lambda space, actions: quantile_values_mlp(space, actions, (8,), quantiles=4),
    "categorical_dqn": lambda space, actions: categorical_values_mlp(space, actions, (8,), atoms=ATOMS),
    "iqn": lambda space, actions: implicit_quantiles_mlp(space, actions, (8,), quantiles=4),
}
ALGORITHMS: dict[str, Callable[..., Any]] = {
    "quantile_dqn": quantile_dqn,
    "categorical_dqn": lambda model, optimizer, **settings: categorical_dqn(model, optimizer, **BOUNDS, **settings),
    "iqn": iqn,
}


def one_row(reward: float = 0.3, *, terminated: bool = False) -> Transition:
    """One transition [1, 1], so that every row of a batch is this one."""
    numbers = torch.randn(1, 1, 4, generator=torch.Generator().manual_seed(3))
    return Transition(
        observation=numbers[..., :2],
        action=torch.tensor([[2]]),
        reward=torch.tensor([[reward]]),
        terminated=torch.tensor([[terminated]]),
        truncated=torch.tensor([[False]]),
        next_observation=numbers[..., 2:],
        behaviour_log_prob=torch.zeros(1, 1),
    )


def begun(name: str, model: Any, row: Transition, **settings: Any) -> tuple[Any, TrainState]:
    algorithm = ALGORITHMS[name](model, sgd(RATE), **{**COMMON, **settings})
    return algorithm, begin(algorithm, KEY, take(take(row, 0), 0))


def projected(probs: Tensor, reward: float, discount: float) -> Tensor:
    """Algorithm 1 of the paper, return by return."""
    result, step = [0.0] * ATOMS, float(SUPPORT[1] - SUPPORT[0])
    for probability, z in zip(probs.tolist(), SUPPORT.tolist(), strict=True):
        place = (min(max(reward + discount * z, -2.0), 2.0) + 2.0) / step
        low = int(place)
        result[low] += probability * (1 - (place - low))
        if place > low:
            result[low + 1] += probability * (place - low)
    return torch.tensor(result)


def regression(quantiles: Tensor, wanted: Tensor, levels: Tensor) -> Tensor:
    """The quantile Huber loss, pair by pair."""
    total = torch.zeros(())
    for quantile, level in zip(quantiles, levels, strict=True):
        for target in wanted:
            error = target - quantile
            size = error.abs()
            huber = 0.5 * error**2 if size <= 1 else size - 0.5
            total = total + (level if error >= 0 else 1 - level) * huber / len(wanted)
    return total


def test_a_projection_keeps_mass_and_a_mean_within_the_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(torch.randn(6, ATOMS, generator=generator), -1)
    reward, discount = 1.5 * torch.randn(6, generator=generator), torch.linspace(0.0, 0.6, 6)
    found = project_categorical(probs, reward, discount, SUPPORT)
    for row in range(6):
        assert torch.allclose(found[row], projected(probs[row], float(reward[row]), float(discount[row])), atol=1e-6)
    assert torch.allclose(found.sum(-1), torch.ones(6), atol=1e-6)
    inside = (reward.abs() + discount * 2.0) <= 2.0
    assert bool(inside.any())
    assert not bool(inside.all())
    mean = reward + discount * (probs * SUPPORT).sum(-1)
    assert torch.allclose((found * SUPPORT).sum(-1)[inside], mean[inside], atol=1e-5)
    with pytest.raises(ShapeError, match=r"probs is \[4\], wanted \[\*, 5\]"):
        project_categorical(torch.ones(4), torch.ones(()), torch.ones(()), SUPPORT)


def test_the_loss_of_quantiles_is_least_at_the_quantiles_of_the_samples() -> None:
    samples, levels = torch.arange(100.0), torch.tensor([0.1, 0.5, 0.9])
    slope = torch.func.grad(lambda q: quantile_huber_loss(q, samples, levels, threshold=0.01))
    assert torch.allclose(slope(torch.tensor([9.5, 49.5, 89.5])), torch.zeros(3), atol=1e-6)
    assert bool((slope(torch.tensor([12.5, 52.5, 92.5])) > 0.01).all())
    assert bool((slope(torch.tensor([6.5, 46.5, 86.5])) < -0.01).all())


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("target", ["double", "max"])
@pytest.mark.parametrize("terminated", [False, True])
def test_an_update_is_the_one_written_by_hand(name: str, target: str, terminated: bool) -> None:
    model, row = MAKERS[name](SEEN, ACTIONS), one_row(terminated=terminated)
    counts = {"levels": 8, "target_levels": 6} if name == "iqn" else {}
    algorithm, state = begun(name, model, row, target=target, **counts)
    older = model.init(keys.key(9))["network"]
    after, metrics = algorithm.update(replace(state, targets=older), row, keys.key(3))

    network, discount = state.params["network"].clone().requires_grad_(), 0.0 if terminated else GAMMA
    seen, following, reward = row.observation[0, 0], row.next_observation[0, 0], float(row.reward[0, 0])
    chooser = network if target == "double" else older
    if name == "categorical_dqn":
        best = (model.log_probs(chooser, following).exp() * SUPPORT).sum(-1).argmax()
        wanted = projected(model.log_probs(older, following)[best].exp(), reward, discount)
        found = -(wanted * model.log_probs(network, seen)[2]).sum()
    elif name == "quantile_dqn":
        best = model.outputs(chooser, following).mean(-1).argmax()
        wanted = reward + discount * model.outputs(older, following)[best]
        found = regression(model.outputs(network, seen)[2], wanted, torch.tensor([0.125, 0.375, 0.625, 0.875]))
    else:
        best = model.outputs(chooser, following).mean(-1).argmax()
        _, learn_key = keys.split(keys.split(keys.key(3), 1)[0])
        wanted_key, losses_key = keys.split(learn_key)
        wanted_levels, levels = keys.uniform(wanted_key, (4, 6)), keys.uniform(losses_key, (4, 8))
        rows = [
            regression(
                model.quantiles(network, seen, levels[k])[2],
                (reward + discount * model.quantiles(older, following, wanted_levels[k])[best]).detach(),
                levels[k],
            )
            for k in range(4)
        ]
        found = torch.stack(rows).mean()
    (gradient,) = torch.autograd.grad(found, network)
    torch.testing.assert_close(after.params["network"], (network - RATE * gradient).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(metrics["loss"], found.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_a_random_reward_is_learned_as_a_distribution(name: str) -> None:
    model = MAKERS[name](SEEN, ACTIONS)
    both = torch.tensor([[-1.0, 1.0]])  # one state, one action, two rewards
    row = one_row(terminated=True)
    data = Transition(
        observation=row.observation.expand(1, 2, 2),
        action=row.action.expand(1, 2),
        reward=both,
        terminated=row.terminated.expand(1, 2),
        truncated=row.truncated.expand(1, 2),
        next_observation=row.next_observation.expand(1, 2, 2),
        behaviour_log_prob=torch.zeros(1, 2),
    )
    algorithm = ALGORITHMS[name](model, adam(3e-2), **{**COMMON, "updates": 120, "batch_size": 32})
    state, metrics = algorithm.update(begin(algorithm, KEY, take(take(data, 0), 0)), data, KEY)
    network, seen = state.params["network"], row.observation[0, 0]
    if name == "categorical_dqn":
        wanted = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
        assert torch.allclose(model.log_probs(network, seen)[2].exp(), wanted, atol=0.1)
    else:
        found = model.outputs(network, seen)[2]  # at the levels 1/8, 3/8, 5/8, 7/8
        assert torch.allclose(found[[0, 3]], torch.tensor([-1.0, 1.0]), atol=0.4)
    assert abs(float(metrics["value"])) < 0.5


def table(name: str, action_one: float) -> Any:
    """A model of numbers that do not depend on the observation; those of action 1 are shifted."""
    numbers = torch.tensor([[0.0, 1.0, 0.5], [action_one, 0.1, 2.0 * action_one], [0.2, 0.1, 0.4]])

    def shaped(x: Tensor) -> Tensor:
        return numbers.expand(*x.shape[:-1], 3, 3)

    def with_param(params: Tensor, x: Any) -> Tensor:
        x, levels = x if isinstance(x, tuple) else (x, None)
        outputs = shaped(x) + params
        return outputs if levels is None else outputs[..., :1] * levels[..., None, :]

    network = Network(init=lambda key: torch.zeros(()), apply=with_param)
    if name == "categorical_dqn":
        return categorical_values(network, MASKED, atoms=3)
    return quantile_values(network, MASKED) if name == "quantile_dqn" else implicit_quantiles(network, MASKED)


@pytest.mark.parametrize("name", MAKERS)
def test_no_return_is_taken_from_an_illegal_action(name: str) -> None:
    row, mask = one_row(), torch.tensor([[[True, False, True]]])
    fields = {"action_mask": mask}
    row = replace(
        row,
        observation={"features": row.observation, **fields},
        next_observation={"features": row.next_observation, **fields},
    )
    losses = []
    for shift in (0.0, 50.0):
        algorithm, state = begun(name, table(name, shift), row)
        losses.append(float(algorithm.update(state, row, KEY)[1]["loss"]))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", MAKERS)
def test_a_bandit_is_learned(name: str) -> None:
    env = make("probe_both")
    model = MAKERS[name](env.observation_space, env.action_space)
    settings = {"replay_size": 256, "learning_starts": 32, "exploration_steps": 256, "updates": 4}
    algorithm = ALGORITHMS[name](model, adam(1e-2), **settings)
    one = trainer(env, model, algorithm, envs=4, horizon=4)
    _, metrics = train(one, 25)(one.init(keys.key(0)))
    assert float(metrics["return_sum"][-1] / metrics["episodes"][-1]) > 0.7
    assert float(metrics["error"][-1]) < 0.2


@pytest.mark.parametrize("name", MAKERS)
def test_members_of_a_population_are_runs_of_their_own(name: str) -> None:
    env = make("probe_both")
    model = MAKERS[name](env.observation_space, env.action_space)
    settings = {"replay_size": 32, "learning_starts": 4, "replay": "prioritised", "n_step": 2, "batch_size": 4}
    one = trainer(env, model, ALGORITHMS[name](model, sgd(0.1), **settings), envs=2, horizon=3)
    seeds = torch.stack([keys.key(seed) for seed in range(2)])
    many, _ = train(population(one), 4)(population(one).init(seeds))
    for member, seed in enumerate(seeds):
        alone, _ = train(one, 4)(one.init(seed))
        for got, wanted in zip(leaves(take(many.learner, member)), leaves(alone.learner), strict=True):
            assert torch.allclose(got.double(), wanted.double(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_compiled_it_is_the_same_update(name: str) -> None:
    model, row = MAKERS[name](SEEN, ACTIONS), one_row()
    algorithm, state = begun(name, model, row, updates=3)
    plain, _ = algorithm.update(state, row, KEY)
    compiled, _ = program(algorithm.update, name=name)(state, row, KEY)
    for got, wanted in zip(leaves(compiled), leaves(plain), strict=True):
        assert torch.allclose(got.double(), wanted.double(), atol=1e-5)


def test_the_support_follows_its_bounds() -> None:
    model, row = MAKERS["categorical_dqn"](SEEN, ACTIONS), one_row()
    algorithm, state = begun("categorical_dqn", model, row)
    assert torch.equal(state.params["support"], SUPPORT)
    wider = {**state.numbers, "lowest_return": torch.tensor(-4.0, dtype=torch.float64)}
    after, _ = algorithm.update(replace(state, numbers=wider), row, KEY)
    assert torch.equal(after.params["support"], torch.linspace(-4.0, 2.0, ATOMS))


test_policy_of_quantiles = check(policy_laws(MASKED, ACTIONS), MAKERS["quantile_dqn"](MASKED, ACTIONS))
test_policy_of_probabilities = check(policy_laws(MASKED, ACTIONS), MAKERS["categorical_dqn"](MASKED, ACTIONS))
test_policy_of_implicit_quantiles = check(policy_laws(MASKED, ACTIONS), MAKERS["iqn"](MASKED, ACTIONS))

PLAIN: Any = action_values_mlp(SEEN, ACTIONS)
CATEGORICAL: Any = MAKERS["categorical_dqn"](SEEN, ACTIONS)


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (
            lambda: quantile_dqn(PLAIN, sgd(0.1)),
            StructureError,
            "is ActionValues, wanted a QuantileValues; make it with `q",
        ),
        (lambda: categorical_dqn(PLAIN, sgd(0.1)), StructureError, "wanted a CategoricalValues; make it with"),
        (
            lambda: iqn(PLAIN, sgd(0.1)),
            StructureError,
            "wanted an ImplicitQuantiles; make it with `implicit_quantiles_mlp`",
        ),
        (lambda: iqn(PLAIN, sgd(0.1), levels=0), ChoiceError, "iqn: levels is 0, wanted a whole number"),
        (
            lambda: categorical_dqn(CATEGORICAL, sgd(0.1), lowest_return=3.0, highest_return=3.0),
            ChoiceError,
            "lowest_return is 3.0, wanted below highest_return 3.0; lower it",
        ),
        (
            lambda: categorical_values_mlp(SEEN, ACTIONS, atoms=1),
            ChoiceError,
            "atoms is 1, wanted a whole number, 2 or more",
        ),
        (lambda: quantile_values_mlp(SEEN, SEEN), StructureError, "actions is Box, wanted Discrete"),
        (
            lambda: quantile_values_mlp(SEEN, ACTIONS, quantiles=0),
            ChoiceError,
            "quantiles is 0, wanted a whole number",
        ),
        (lambda: implicit_quantiles_mlp(SEEN, ACTIONS, ()), ShapeError, r"hidden is \(\), wanted a layer"),
    ],
)
def test_bad_input_ends_in_one_line(bad: Callable[[], Any], error: type[PurestepError], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        bad()
    assert "\n" not in str(raised.value)

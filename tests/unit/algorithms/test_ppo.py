"""PPO: its pieces by hand, one update against plain PyTorch, what an update must leave alone, and learning."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from purestep.algorithms.algorithm import TrainState
from purestep.algorithms.ppo import METRICS, minibatch_rows, normalize_advantages, ppo, prepare_samples
from purestep.core import keys
from purestep.core.env import Env
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.optim.optimizers import adam, chain, clip_by_global_norm, hyperparameters, sgd
from purestep.core.policy import ActorCritic, actor_critic_mlp, flat
from purestep.core.record import record, replace
from purestep.core.spaces import Box, Discrete, Fields, Space
from purestep.core.steps import Trajectory, Transition
from purestep.core.tree import leaves, same_structure, tree_map
from purestep.runtime.train import train, trainer

TIME, BATCH, FEATURES = 4, 3, 2
OBSERVATIONS, ACTIONS, PUSHES = Box(-1.0, 1.0, (FEATURES,)), Discrete(3), Box(-1.0, 1.0, (2,))
MODEL = actor_critic_mlp(OBSERVATIONS, ACTIONS, hidden=(5,))
KEY = keys.key(11)


def played(seed: int = 0, actions: Space = ACTIONS, dtype: torch.dtype = torch.float32) -> Trajectory:
    """[TIME, BATCH] rows of some other policy, with endings of both kinds, unfinished at the end."""
    generator = torch.Generator().manual_seed(seed)
    shape, kind = (TIME, BATCH), torch.rand(TIME, BATCH, generator=generator)
    numbers = torch.randn(*shape, 2, generator=generator, dtype=dtype)
    discrete = torch.randint(0, 3, shape, generator=generator)
    return Transition(
        observation=torch.randn(*shape, FEATURES, generator=generator, dtype=dtype),
        action=discrete if isinstance(actions, Discrete) else numbers,
        reward=torch.randn(shape, generator=generator, dtype=dtype),
        terminated=kind < 0.2,
        truncated=(kind > 0.1) & (kind < 0.4),
        next_observation=torch.randn(*shape, FEATURES, generator=generator, dtype=dtype),
        behaviour_log_prob=-1.1 + 0.3 * torch.randn(shape, generator=generator, dtype=dtype),
    )


def on_policy(model: ActorCritic, params: Any, data: Trajectory) -> Trajectory:
    """The same rows as if the model itself had played them."""
    distribution, _, _ = model.apply(params, data.observation, ())
    return replace(data, behaviour_log_prob=distribution.log_prob(data.action))


def assert_bits(got: Any, wanted: Any) -> None:
    same_structure("test", got, wanted)
    assert all(torch.equal(a, b) for a, b in zip(leaves(got), leaves(wanted), strict=True))


def moved(after: TrainState, before: TrainState) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(leaves(after.params), leaves(before.params), strict=True))


# --- the pieces ---


def test_normalized_has_mean_0_and_deviation_1_and_one_entry_gives_0() -> None:
    assert normalize_advantages(torch.tensor([1.0, 3.0, 5.0, 7.0])).tolist() == pytest.approx(
        [-3 / math.sqrt(5), -1 / math.sqrt(5), 1 / math.sqrt(5), 3 / math.sqrt(5)], rel=1e-6
    )
    assert normalize_advantages(torch.full((3, 2), 4.0)).tolist() == [[0.0, 0.0]] * 3
    assert normalize_advantages(torch.tensor([7.0])).tolist() == [0.0]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 4), (2, 12)])
def test_order_takes_every_row_once_in_each_epoch(epochs: int, minibatches: int) -> None:
    rows = minibatch_rows(KEY, 12, epochs=epochs, minibatches=minibatches)
    assert rows.shape == (epochs * minibatches, 12 // minibatches)
    by_epoch = rows.reshape(epochs, 12)
    assert all(sorted(epoch) == list(range(12)) for epoch in by_epoch.tolist())
    assert len({tuple(epoch) for epoch in by_epoch.tolist()}) == epochs
    assert not torch.equal(rows, minibatch_rows(keys.key(12), 12, epochs=epochs, minibatches=minibatches))


def test_rows_that_minibatches_do_not_divide_are_refused() -> None:
    algorithm = ppo(MODEL, sgd(0.1), minibatches=5)
    with pytest.raises(ShapeError) as error:
        algorithm.update(algorithm.init(KEY), played(), KEY)
    assert str(error.value) == (
        "ppo: rows is 12, wanted a multiple of 5 minibatches; change the number of envs, steps or minibatches"
    )


def test_unknown_advantages_are_refused() -> None:
    with pytest.raises(ChoiceError, match="did you mean 'minibatch'"):
        ppo(MODEL, sgd(0.1), advantages="minibatches")  # type: ignore[arg-type]


def tables(values: Tensor) -> ActorCritic:
    """A model of the observation's place alone: params are logits [3], the value of observation [*, 1] is values[x]."""
    base = actor_critic_mlp(Box(0.0, 9.0, (1,)), ACTIONS, hidden=())

    def apply(params: Any, observation: Any, carry: Any) -> Any:
        distribution, _, _ = base.apply(params, observation, carry)
        return distribution, values[observation[..., 0].to(torch.int64)], carry

    return ActorCritic(init=base.init, apply=apply)


def test_prepare_by_hand() -> None:
    """gamma = lambda = 1/2, two steps of two worlds; the first world ends, the second is only cut."""
    model = tables(torch.tensor([0.0, 1.0, 2.0, 4.0]))
    yes, no = torch.tensor([[True, False], [False, False]]), torch.tensor([[False, False], [False, True]])
    data = Transition(
        observation=torch.tensor([[[1.0], [2.0]], [[3.0], [0.0]]]),
        action=torch.tensor([[0, 1], [2, 0]]),
        reward=torch.tensor([[8.0, 4.0], [2.0, 1.0]]),
        terminated=yes,
        truncated=no,
        next_observation=torch.tensor([[[2.0], [0.0]], [[1.0], [3.0]]]),
        behaviour_log_prob=torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
    )
    samples = prepare_samples(model, model.init(KEY), data, gamma=0.5, lambda_=0.5)
    # d = [8 - 1, 4 + 0 - 2; 2 + 1/2 - 4, 1 + 2 - 0]; A of the second world's first step: 2 + 1/4 * 3
    assert samples.advantage.tolist() == [7.0, 2.75, -1.5, 3.0]
    assert samples.behaviour_value.tolist() == [1.0, 2.0, 4.0, 0.0]
    assert samples.target.tolist() == [8.0, 4.75, 2.5, 3.0]
    assert samples.action.tolist() == [0, 1, 2, 0]
    assert samples.observation.tolist() == [[1.0], [2.0], [3.0], [0.0]]
    assert samples.behaviour_log_prob.tolist() == [-1.0, -2.0, -3.0, -4.0]
    whole = prepare_samples(model, model.init(KEY), data, gamma=0.5, lambda_=0.5, normalize=True)
    assert torch.equal(whole.advantage, normalize_advantages(samples.advantage))
    assert torch.equal(whole.target, samples.target)


# --- an update against plain PyTorch ---


class Plain(nn.Module):
    """The same two perceptrons, as anybody would write them."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))
        self.value = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 1))

    def matrices(self) -> list[tuple[Any, bool]]:
        """Parameters in the order of ours, and whether ours is the transpose."""
        layers = [layer for net in (self.policy, self.value) for layer in net if isinstance(layer, nn.Linear)]
        return [pair for layer in layers for pair in ((layer.weight, True), (layer.bias, False))]


def plain_model(params: Any) -> Plain:
    plain = Plain().double()
    with torch.no_grad():
        for (own, transposed), leaf in zip(plain.matrices(), leaves(params), strict=True):
            own.copy_(leaf.T if transposed else leaf)
    return plain


def plain_advantages(plain: Plain, data: Trajectory, gamma: float, lambda_: float) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        v, after = plain.value(data.observation)[..., 0], plain.value(data.next_observation)[..., 0]
    advantage = torch.zeros(TIME, BATCH, dtype=torch.float64)
    for b in range(BATCH):
        running = 0.0
        for t in reversed(range(TIME)):
            over = bool(data.terminated[t, b] or data.truncated[t, b])
            beyond = 0.0 if data.terminated[t, b] else float(after[t, b])
            error = float(data.reward[t, b]) + gamma * beyond - float(v[t, b])
            running = error + (0.0 if over else gamma * lambda_ * running)
            advantage[t, b] = running
    return v, advantage


def plain_update(plain: Plain, data: Trajectory, rows: Tensor, options: dict[str, Any]) -> None:
    """Schulman's algorithm with torch's own optimiser, minibatch after minibatch."""
    gamma, lambda_, clip = 0.9, 0.8, options["clip"]
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    values, advantage = plain_advantages(plain, data, gamma, lambda_)
    targets = values + advantage
    if options["advantages"] == "batch":
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    batch = (data.observation, data.action, data.behaviour_log_prob, values, advantage, targets)
    flattened = [column.flatten(0, 1) for column in batch]
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.05)
    for index in rows:
        seen, action, old, v_old, a, g = (column[index] for column in flattened)
        if options["advantages"] == "minibatch":
            a = (a - a.mean()) / (a.std(correction=0) + 1e-8)
        policy: Any = torch.distributions.Categorical(logits=plain.policy(seen))
        v = plain.value(seen)[..., 0]
        ratio = torch.exp(policy.log_prob(action) - old)
        surrogate = torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)
        error = (v - g) ** 2
        if "value_clip" in options:
            error = torch.maximum(error, (v_old + (v - v_old).clamp(-0.1, 0.1) - g) ** 2)
        loss = -surrogate.mean() + 0.5 * (0.5 * error).mean() - 0.02 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()


FORMS: dict[str, dict[str, Any]] = {
    "usual": {"clip": 0.2, "advantages": "minibatch"},
    "advantages over the batch": {"clip": 0.1, "advantages": "batch"},
    "two bounds, values clipped": {"clip": (0.1, 0.3), "advantages": "none", "value_clip": 0.1},
}


@pytest.mark.parametrize("form", FORMS)
def test_an_update_is_that_of_plain_pytorch(form: str) -> None:
    optimizer = chain(clip_by_global_norm(0.5), adam(0.05))
    rest: dict[str, Any] = {"gamma": 0.9, "gae_lambda": 0.8, "epochs": 3, "minibatches": 4, "entropy_coefficient": 0.02}
    algorithm = ppo(MODEL, optimizer, **rest, **FORMS[form])
    params, data = tree_map(torch.Tensor.double, MODEL.init(keys.key(1))), played(3, dtype=torch.float64)
    state = replace(algorithm.init(KEY), params=params, optimizer=optimizer.init(params))
    after, _ = algorithm.update(state, data, KEY)
    plain = plain_model(params)
    plain_update(plain, data, minibatch_rows(KEY, TIME * BATCH, epochs=3, minibatches=4), FORMS[form])
    assert moved(after, state)
    for (wanted, transposed), got in zip(plain.matrices(), leaves(after.params), strict=True):
        torch.testing.assert_close(got, wanted.detach().T if transposed else wanted.detach(), rtol=1e-6, atol=1e-8)
    assert after.step.item() == 1


# --- what an update leaves alone ---


def test_nothing_is_applied_once_the_policies_are_too_far_apart() -> None:
    """No divergence is allowed, and the data are another policy's: not one minibatch counts."""
    algorithm = ppo(MODEL, adam(0.1), target_kl=0.0)
    state = algorithm.init(KEY)
    after, metrics = algorithm.update(state, played(), KEY)
    assert_bits((after.params, after.optimizer), (state.params, state.optimizer))
    assert metrics["applied"].item() == 0.0
    assert metrics["approximate_kl"].item() > 0.0
    assert after.step.item() == 1


def test_from_the_first_minibatch_over_the_limit_on_the_rest_is_left_out() -> None:
    """The first minibatch is on-policy; a wild step follows; the others, were they applied, would go on moving."""

    def update(data: Trajectory, minibatches: int, limit: float) -> Any:
        algorithm = ppo(MODEL, sgd(5.0), gae_lambda=0.0, epochs=1, minibatches=minibatches, target_kl=limit)
        return algorithm.update(algorithm.init(KEY), data, KEY)

    data = on_policy(MODEL, MODEL.init(KEY), played())
    after, metrics = update(data, 4, 1e-3)
    assert metrics["applied"].item() == 0.25
    # without a trace every row stands alone, so that the first minibatch is a trajectory of its own
    rows = minibatch_rows(KEY, TIME * BATCH, epochs=1, minibatches=4)[0]
    alone, _ = update(tree_map(lambda leaf: leaf.flatten(0, 1)[rows][None], data), 1, math.inf)
    torch.testing.assert_close(leaves(after.params), leaves(alone.params), rtol=1e-5, atol=1e-6)
    unlimited, told = update(data, 4, math.inf)
    assert told["applied"].item() == 1.0
    assert any(not torch.allclose(a, b) for a, b in zip(leaves(unlimited.params), leaves(after.params), strict=True))


def test_a_minibatch_over_the_limit_leaves_out_those_after_it_that_are_not() -> None:
    """Only rows of the first minibatch are another policy's, so that all others would pass."""
    algorithm = ppo(MODEL, sgd(0.1), epochs=1, minibatches=4, target_kl=0.1)
    state = algorithm.init(KEY)
    data = on_policy(MODEL, state.params, played())
    off = torch.zeros(TIME * BATCH).index_fill(0, minibatch_rows(KEY, TIME * BATCH, epochs=1, minibatches=4)[0], 2.0)
    far = replace(data, behaviour_log_prob=data.behaviour_log_prob - off.reshape(TIME, BATCH))
    after, metrics = algorithm.update(state, far, KEY)
    assert metrics["applied"].item() == 0.0
    assert_bits(after.params, state.params)
    assert algorithm.update(state, data, KEY)[1]["applied"].item() == 1.0


def test_a_limit_that_is_never_reached_changes_nothing() -> None:
    limited, unlimited = (ppo(MODEL, adam(0.01), target_kl=limit) for limit in (1e6, math.inf))
    (after, figures), (wanted, same) = (one.update(one.init(KEY), played(), KEY) for one in (limited, unlimited))
    assert_bits((after.params, after.optimizer, figures), (wanted.params, wanted.optimizer, same))


def test_learning_rate_0_leaves_the_parameters() -> None:
    algorithm = ppo(MODEL, adam(0.0))
    state = algorithm.init(KEY)
    after, metrics = algorithm.update(state, played(), KEY)
    assert_bits(after.params, state.params)
    assert metrics["gradient_norm"].item() > 0.0
    assert metrics["applied"].item() == 1.0


def test_a_value_that_went_beyond_its_clip_towards_the_target_stays() -> None:
    """One row, seen twice: the first step takes its value further than the clip, so that the second leaves it."""

    def update(epochs: int, clip: float) -> Any:
        algorithm = ppo(MODEL, sgd(0.1), value_clip=clip, epochs=epochs, minibatches=1, value_coefficient=1.0)
        row = tree_map(lambda leaf: leaf[:1, :1], played())
        return algorithm.update(algorithm.init(KEY), row, KEY)[0].params["value"]

    assert_bits(update(2, 0.001), update(1, math.inf))
    assert_bits(update(2, 1e6), update(2, math.inf))
    assert not torch.equal(leaves(update(2, math.inf))[0], leaves(update(1, math.inf))[0])


def test_an_update_is_pure_and_tells_what_it_promises() -> None:
    algorithm = ppo(MODEL, adam(0.1))
    state, data = algorithm.init(KEY), played()
    before = tree_map(torch.clone, (state, data))
    first, metrics = algorithm.update(state, data, KEY)
    second, _ = algorithm.update(state, data, KEY)
    other, _ = algorithm.update(state, data, keys.key(12))
    assert_bits((state, data), before)
    assert_bits(first, second)
    assert moved(other, first)
    same_structure("state", first, state)
    assert tuple(metrics) == algorithm.metrics == METRICS
    assert all(value.shape == () and not value.requires_grad for value in metrics.values())


def test_metrics_of_the_first_minibatch_by_hand() -> None:
    algorithm = ppo(MODEL, sgd(0.0), epochs=1, minibatches=1, clip=(0.1, 0.3), advantages="none")
    state, data = algorithm.init(KEY), played()
    distribution, values, _ = MODEL.apply(state.params, data.observation, ())
    metrics = algorithm.update(state, data, KEY)[1]
    log_ratio = distribution.log_prob(data.action) - data.behaviour_log_prob
    ratio = log_ratio.exp()
    samples = prepare_samples(MODEL, state.params, data, gamma=0.99, lambda_=0.95)
    wanted = {
        "policy_loss": torch.maximum(
            -samples.advantage * ratio.flatten(), -samples.advantage * ratio.flatten().clamp(0.9, 1.3)
        ).mean(),
        "value_loss": 0.5 * ((values.flatten() - samples.target) ** 2).mean(),
        "entropy": distribution.entropy().mean(),
        "approximate_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio < 0.9) | (ratio > 1.3)).float().mean(),
        "applied": torch.tensor(1.0),
    }
    assert 0.0 < wanted["clip_fraction"].item() < 1.0
    for name, value in wanted.items():
        torch.testing.assert_close(metrics[name], value, rtol=1e-5, atol=1e-6, msg=name)


# --- models of every kind ---


@record
class Seen:
    """An observation of two fields."""

    features: Tensor  # [*, 2]
    action_mask: Tensor  # bool [*, 3]


def test_illegal_actions_stay_impossible() -> None:
    space = Fields((("features", OBSERVATIONS), ("action_mask", Box(0.0, 1.0, (3,)))))
    model, data = actor_critic_mlp(space, ACTIONS, hidden=(5,)), played()
    mask = torch.ones(TIME, BATCH, 3, dtype=torch.bool).scatter(-1, ((data.action + 1) % 3)[..., None], False)
    seen = Seen(features=data.observation, action_mask=mask)
    data = replace(data, observation=seen, next_observation=replace(seen, features=data.next_observation))
    algorithm = ppo(model, adam(0.1))
    state = algorithm.init(KEY)
    after, metrics = algorithm.update(state, data, KEY)
    assert moved(after, state)
    assert all(torch.isfinite(value) for value in metrics.values())
    assert all(bool(torch.isfinite(leaf).all()) for leaf in leaves(after.params))
    probabilities = torch.softmax(model.apply(after.params, seen, ())[0].logits, -1)  # type: ignore[attr-defined]
    assert bool((probabilities[~mask] == 0.0).all())


@pytest.mark.parametrize("distribution", ["normal", "tanh_normal"])
def test_continuous_actions(distribution: str) -> None:
    """Actions that paid get likelier, those that cost get less likely."""
    model = actor_critic_mlp(OBSERVATIONS, PUSHES, hidden=(5,), distribution=distribution)
    algorithm = ppo(model, adam(0.003), advantages="none", gae_lambda=0.0, gamma=0.0, entropy_coefficient=0.0)
    state, data = algorithm.init(KEY), played(actions=PUSHES)
    data = replace(data, action=data.action.clamp(-0.9, 0.9))
    data = on_policy(model, state.params, data)
    after, _ = algorithm.update(state, data, KEY)
    distribution_after, _, _ = model.apply(after.params, data.observation, ())
    gained = distribution_after.log_prob(data.action) - data.behaviour_log_prob
    advantage = prepare_samples(model, state.params, data, gamma=0.0, lambda_=0.0).advantage.reshape(TIME, BATCH)
    assert (advantage * gained).sum().item() > 0.0


def test_params_as_one_vector_learn_the_same() -> None:
    whole, parts = ppo(flat(MODEL), sgd(0.1)), ppo(MODEL, sgd(0.1))
    one, many = (algorithm.update(algorithm.init(KEY), played(), KEY)[0] for algorithm in (whole, parts))
    vector = torch.cat([leaf.flatten() for leaf in leaves(many.params)])
    torch.testing.assert_close(one.params, vector, rtol=1e-5, atol=1e-6)


def test_hyperparameters_may_be_tensors() -> None:
    numbers = {
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "clip": 0.1,
        "value_clip": 0.3,
        "target_kl": 0.05,
        "entropy_coefficient": 0.02,
    }
    tensors = {name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items()}
    plain, mapped = ppo(MODEL, sgd(0.1), **numbers), ppo(MODEL, sgd(0.1), **tensors)  # type: ignore[arg-type]
    state = plain.init(KEY)
    torch.testing.assert_close(
        leaves(mapped.update(state, played(), KEY)), leaves(plain.update(state, played(), KEY)), rtol=1e-4, atol=1e-5
    )


# --- learning ---


def learner(env: Env[Any, Any], iterations: int) -> tuple[Any, Any, ActorCritic]:
    model = actor_critic_mlp(env.observation_space, env.action_space, hidden=(8,))
    algorithm = ppo(model, adam(0.03), gamma=0.5, epochs=4, minibatches=1, entropy_coefficient=0.0)
    made = trainer(env, model, algorithm, envs=16, horizon=4)
    state, metrics = train(made, iterations)(made.init(keys.key(0)))
    return state, metrics, model


def test_learns_when_to_do_what() -> None:
    state, metrics, model = learner(make("probe_both"), 25)
    distribution, values, _ = model.apply(state.learner.params, torch.tensor([[1.0], [-1.0]]), ())
    assert distribution.mode().tolist() == [1, 0]
    assert torch.exp(distribution.log_prob(torch.tensor([1, 0]))).min().item() > 0.9
    torch.testing.assert_close(values, torch.ones(2), rtol=0.0, atol=0.2)
    assert (metrics["return_sum"] / metrics["episodes"])[-1].item() > 0.7


def test_learns_what_a_later_reward_is_worth_now() -> None:
    state, _, model = learner(make("probe_discount"), 25)
    _, values, _ = model.apply(state.learner.params, torch.tensor([[0.0], [1.0]]), ())
    torch.testing.assert_close(values, torch.tensor([0.5, 1.0]), rtol=0.0, atol=0.1)


def test_the_rate_belongs_to_the_optimizer() -> None:
    state = ppo(MODEL, chain(clip_by_global_norm(0.5), adam(0.25))).init(KEY)
    assert float(hyperparameters(state.optimizer)["learning_rate"]) == 0.25


def test_a_term_of_ones_own_is_a_part_of_the_loss_and_a_metric() -> None:
    def imitates(distribution: Any, value: Tensor, sample: Any) -> Tensor:
        log_probability: Tensor = distribution.log_prob(torch.zeros_like(sample.action))
        return -100.0 * log_probability

    def nothing(distribution: Any, value: Tensor, sample: Any) -> Tensor:
        return 0.0 * value

    data = played()
    plain, idle, own = (ppo(MODEL, adam(0.05), term) for term in (None, nothing, imitates))
    state = plain.init(keys.key(0))
    after, _ = plain.update(state, data, KEY)
    same, metrics = idle.update(state, data, KEY)
    assert_bits(same.params, after.params)
    assert metrics["term"] == 0.0
    taught, metrics = own.update(state, data, KEY)
    assert metrics["term"] > 0.0
    distribution, _, _ = MODEL.apply(taught.params, data.observation, ())
    assert bool((distribution.mode() == 0).all())
    assert set(own.metrics) - set(METRICS) == {"term"}

"""TD3, DDPG and SAC: updates against plain PyTorch, the buffer's actions, exploration, the temperature, and refused input."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.algorithm import Algorithm, TrainState, begin
from purestep.algorithms.ddpg import ddpg
from purestep.algorithms.sac import sac, sample_with_log_prob
from purestep.algorithms.td3 import least_target, smoothed, td3
from purestep.core import keys
from purestep.core.actor_q import (
    ActorQ,
    DeterministicActor,
    StochasticActor,
    deterministic_actor_mlp,
    stochastic_actor_mlp,
)
from purestep.core.distributions import TanhNormal
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, PurestepError, ShapeError, StructureError
from purestep.core.optim.optimizers import adam, sgd, with_hyperparameters
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import replace, take
from purestep.core.replay import draw, store
from purestep.core.spaces import Box, Discrete
from purestep.core.steps import Trajectory, Transition
from purestep.core.tree import leaves, tree_map
from purestep.properties import check, policy_laws, target_laws
from purestep.runtime.population import population
from purestep.runtime.train import train, trainer

SEEN, PUSHES = Box(-1.0, 1.0, (2,)), Box((-2.0, 0.0), (2.0, 1.0), (2,))
CENTRE, HALF = torch.tensor([0.0, 0.5]), torch.tensor([2.0, 0.5])
HIDDEN, BATCH, GAMMA, RATE, TAU = 5, 6, 0.9, 0.05, 0.25
KEY = keys.key(5)
COMMON: Mapping[str, Any] = {
    "gamma": GAMMA,
    "replay_size": 64,
    "learning_starts": 1,
    "batch_size": BATCH,
    "target_rate": TAU,
}
CERTAIN = deterministic_actor_mlp(SEEN, PUSHES, (HIDDEN,))
RANDOM = stochastic_actor_mlp(SEEN, PUSHES, (HIDDEN,))


def played(seed: int = 0) -> Trajectory:
    """[4, 3] rows of some policy, with actions beyond the box and endings of both kinds."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.rand(4, 3, generator=generator)
    numbers = torch.randn(4, 3, 8, generator=generator)
    return Transition(
        observation=numbers[..., :2],
        action=2.0 * numbers[..., 2:4],
        reward=numbers[..., 4],
        terminated=kind < 0.3,
        truncated=kind > 0.7,
        next_observation=numbers[..., 5:7],
        behaviour_log_prob=numbers[..., 7],
    )


def inside(action: Tensor) -> Tensor:
    return torch.minimum(torch.maximum(action, CENTRE - HALF), CENTRE + HALF)


def begun(algorithm: Algorithm) -> TrainState:
    return begin(algorithm, KEY, take(take(played(), 0), 0))


def drawn(state: TrainState, data: Trajectory, key: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The batch that the update with this key learns from, as plain tensors, and the key of its noise."""
    buffer = store(state.replay, tree_map(lambda leaf: leaf.flatten(0, 1), _row(state, data)))
    draw_key, learn_key = keys.split(keys.split(key, 1)[0])
    rows = draw(buffer, draw_key, BATCH)
    flat = {name: getattr(data, name).flatten(0, 1) for name in ("observation", "reward", "next_observation")}
    flat["action"] = inside(data.action.flatten(0, 1))
    flat["discount"] = GAMMA * (~data.terminated.flatten()).float()
    return {name: column[rows % len(column)] for name, column in flat.items()}, learn_key


def _row(state: TrainState, data: Trajectory) -> Any:
    kind = type(state.replay.rows)
    return kind(**{name: getattr(data, name) for name in vars(state.replay.rows)})


def perceptron(vector: Tensor, inputs: int, outputs: int, x: Tensor) -> Tensor:
    """One hidden layer of relu whose weights stand in a vector."""
    sizes = [inputs * HIDDEN, HIDDEN, HIDDEN * outputs, outputs]
    first, first_bias, last, last_bias = torch.split(vector, sizes)
    hidden = torch.relu(x @ first.reshape(inputs, HIDDEN) + first_bias)
    return hidden @ last.reshape(HIDDEN, outputs) + last_bias


def q_of(vector: Tensor, observation: Tensor, action: Tensor) -> Tensor:
    return perceptron(vector, 4, 1, torch.cat([observation, (action - CENTRE) / HALF], -1))[:, 0]


def mu(vector: Tensor, observation: Tensor) -> Tensor:
    return CENTRE + HALF * torch.tanh(perceptron(vector, 2, 2, observation))


def pi(vector: Tensor, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """An action and its log-prob after scaling to [-1, 1], with log(1 - tanh^2) as it is written."""
    mean, log_std = perceptron(vector, 2, 4, observation).chunk(2, -1)
    x = mean + log_std.exp() * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)
    return CENTRE + HALF * torch.tanh(x), (normal - torch.log(1 - torch.tanh(x) ** 2)).sum(-1)


def descended(loss: Callable[[Tensor], Tensor], params: Tensor) -> Tensor:
    leaf = params.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    return params - RATE * gradient


def critics_after(critics: Tensor, batch: Mapping[str, Tensor], target: Tensor) -> Tensor:
    def loss(both: Tensor) -> Tensor:
        errors = [q_of(one, batch["observation"], batch["action"]) - target for one in both]
        return sum((0.5 * (error**2).mean() for error in errors), torch.zeros(()))

    return descended(loss, critics)


def policy_after(policy: Tensor, critic: Tensor, observation: Tensor) -> Tensor:
    return descended(lambda p: -q_of(critic, observation, mu(p, observation)).mean(), policy)


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_td3_moves_critics_at_once_and_the_rest_every_second_update() -> None:
    algorithm = td3(CERTAIN, sgd(RATE), smoothing=0.4, smoothing_limit=0.3, **COMMON)
    state, data = begun(algorithm), played()
    assert data.terminated.any()
    assert data.truncated.any()
    policy, critics = state.params["policy"], state.params["critics"]
    target_policy, target_critics = policy, critics
    for turn, key in enumerate(keys.split(keys.key(1))):
        batch, noise_key = drawn(state, data, key)
        noise = (0.4 * keys.normal(noise_key, (BATCH, 2))).clamp(-0.3, 0.3)
        best = inside(mu(target_policy, batch["next_observation"]) + HALF * noise)
        values = [q_of(one, batch["next_observation"], best) for one in target_critics]
        target = batch["reward"] + batch["discount"] * torch.minimum(values[0], values[1])
        critics = critics_after(critics, batch, target)
        if turn == 1:
            policy = policy_after(policy, critics[0], batch["observation"])
            target_policy = target_policy + TAU * (policy - target_policy)
            target_critics = target_critics + TAU * (critics - target_critics)
        state, _ = algorithm.update(state, data, key)
        close(state.params["critics"], critics)
        close(state.params["policy"], policy)
        close(state.targets["policy"], target_policy)
        close(state.targets["critics"], target_critics)


def test_ddpg_moves_all_at_each_update_without_noise() -> None:
    model = deterministic_actor_mlp(SEEN, PUSHES, (HIDDEN,), critics=1)
    algorithm = ddpg(model, sgd(RATE), **COMMON)
    state, data = begun(algorithm), played()
    before, (batch, _) = state.params, drawn(state, data, KEY)
    best = mu(before["policy"], batch["next_observation"])
    target = batch["reward"] + batch["discount"] * q_of(before["critics"][0], batch["next_observation"], best)
    critics = critics_after(before["critics"], batch, target)
    seen = batch["observation"]
    policy = policy_after(before["policy"], critics[0], seen)
    after, metrics = algorithm.update(state, data, KEY)
    close(after.params["critics"], critics)
    close(after.params["policy"], policy)
    close(after.targets["policy"], before["policy"] + TAU * (policy - before["policy"]))
    close(metrics["policy_loss"], -q_of(critics[0], seen, mu(before["policy"], seen)).mean())


def test_sac_moves_critics_policy_temperature_and_targets() -> None:
    algorithm = sac(RANDOM, sgd(RATE), initial_temperature=0.3, target_entropy=-0.5, **COMMON)
    state, data = begun(algorithm), replace(played(), action=inside(played().action))
    before, (batch, noise_key) = state.params, drawn(state, data, KEY)
    next_noise, noise = keys.normal(noise_key, (2, BATCH, 2))
    seen, following = batch["observation"], batch["next_observation"]
    best, log_prob = pi(before["policy"], following, next_noise)
    values = [q_of(one, following, best) for one in before["critics"]]
    target = batch["reward"] + batch["discount"] * (torch.minimum(values[0], values[1]) - 0.3 * log_prob)
    critics = critics_after(before["critics"], batch, target)

    def loss(policy: Tensor) -> Tensor:
        action, log_prob = pi(policy, seen, noise)
        return (0.3 * log_prob - torch.minimum(*(q_of(one, seen, action) for one in critics))).mean()

    _, taken = pi(before["policy"], seen, noise)
    after, metrics = algorithm.update(state, data, KEY)
    close(after.params["critics"], critics)
    close(after.params["policy"], descended(loss, before["policy"]))
    close(after.targets["critics"], before["critics"] + TAU * (critics - before["critics"]))
    log_temperature = descended(lambda x: -x * (taken + -0.5 * 2).mean(), torch.zeros(()))
    close(after.targets["log_temperature"], log_temperature)
    close(metrics["entropy"], -taken.mean())
    close(metrics["policy_loss"], loss(before["policy"]))


@pytest.mark.parametrize(
    ("target", "settings", "sign"),
    [(9.0, {}, 1.0), (-9.0, {}, -1.0), (9.0, {"temperature": "fixed"}, 0.0)],
    ids=["too little entropy", "too much", "fixed"],
)
def test_temperature_moves_towards_the_target_entropy(target: float, settings: Any, sign: float) -> None:
    algorithm = sac(RANDOM, adam(0.1), target_entropy=target, **COMMON, **settings)
    after, metrics = algorithm.update(begun(algorithm), played(), KEY)
    close(after.targets["log_temperature"], torch.tensor(0.1 * sign))
    close(metrics["temperature"], torch.tensor(1.0))
    assert len(after.optimizer) == (3 if sign else 2)


def test_entropy_does_not_depend_on_the_units_of_an_action() -> None:
    zero, noise = torch.zeros(4, 2), torch.linspace(-3.0, 3.0, 8).reshape(4, 2)
    narrow = TanhNormal(mean=zero, log_std=zero, low=zero - 1.0, high=zero + 1.0)
    wide = replace(narrow, low=zero, high=zero + 100.0)
    (action, log_prob), (scaled, wanted) = (sample_with_log_prob(one, noise) for one in (narrow, wide))
    close(log_prob, wanted)
    close(50.0 + 50.0 * action, scaled)


def test_critics_see_scaled_actions() -> None:
    unit = deterministic_actor_mlp(SEEN, Box(-1.0, 1.0, (2,)), (HIDDEN,))
    params, observation, action = CERTAIN.init(KEY), torch.rand(3, 2), torch.rand(3, 2)
    wanted = unit.critics(params["critics"], observation, action)
    close(CERTAIN.critics(params["critics"], observation, CENTRE + HALF * action), wanted)


@pytest.mark.parametrize("algorithm", [td3(CERTAIN, sgd(RATE), **COMMON), sac(RANDOM, sgd(RATE), **COMMON)])
def test_no_rate_no_change_and_inputs_are_left_alone(algorithm: Algorithm) -> None:
    state, data = begun(algorithm), played()
    state = replace(state, optimizer=with_hyperparameters(state.optimizer, {"learning_rate": 0.0}))
    kept = [leaf.clone() for leaf in leaves((state, data))]
    after, metrics = algorithm.update(state, data, KEY)
    assert tuple(metrics) == algorithm.metrics
    assert all(torch.equal(a, b) for a, b in zip(leaves((state, data)), kept, strict=True))
    for part in ("policy", "critics"):
        assert torch.equal(after.params[part], state.params[part])
    close(after.targets["critics"], state.targets["critics"])


def test_the_buffer_keeps_the_actions_that_the_env_got() -> None:
    algorithm = td3(CERTAIN, sgd(RATE), **COMMON)
    after, _ = algorithm.update(begun(algorithm), played(), KEY)
    stored, raw = after.replay.rows.action[:12], played().action.flatten(0, 1)
    assert (raw.abs() > 2.0).any()
    close(stored, inside(raw))


def test_exploration_falls_from_one_and_nothing_is_learnt_before_the_start() -> None:
    settings: dict[str, Any] = {**COMMON, "learning_starts": 24}
    algorithm = td3(CERTAIN, sgd(RATE), exploration=0.2, exploration_steps=24, **settings)
    state, sizes = begun(algorithm), []
    for turn, key in enumerate(keys.split(KEY, 3)):
        before = state
        state, metrics = algorithm.update(state, played(turn), key)
        assert bool(metrics["critic_loss"].isnan()) == (turn == 0)
        assert torch.equal(state.params["critics"], before.params["critics"]) == (turn == 0)
        sizes.append(float(state.params["noise"]))
    assert sizes == pytest.approx([0.6, 0.2, 0.2])
    assert int(state.step) == 2


def test_a_deterministic_actor_acts_around_its_mean() -> None:
    params = {**CERTAIN.init(KEY), "noise": torch.tensor(0.25)}
    observation = torch.rand(3, 2)
    distribution, value, _ = CERTAIN.apply(params, observation, ())
    assert torch.equal(distribution.mode(), CERTAIN.action(params["policy"], observation))
    close(distribution.transform(torch.ones(3, 2)), distribution.mode() + 0.25 * HALF)
    close(value, CERTAIN.critics(params["critics"], observation, distribution.mode()).min(0).values)
    silent, _, _ = CERTAIN.apply({**params, "noise": torch.tensor(0.0)}, observation, ())
    assert silent.log_prob(silent.mode()).isfinite().all()


def test_n_steps_bootstrap_once() -> None:
    algorithm = td3(CERTAIN, sgd(RATE), n_step=3, **COMMON)
    after, metrics = algorithm.update(begun(algorithm), played(), KEY)
    assert all(torch.isfinite(leaf).all() for leaf in leaves((after.params, metrics)))


@pytest.mark.parametrize("kind", [td3, sac])
def test_a_population_trains(kind: Any) -> None:
    env = make("pendulum")
    build: Any = deterministic_actor_mlp if kind is td3 else stochastic_actor_mlp
    model: ActorQ = build(env.observation_space, env.action_space, (4,))
    algorithm = kind(model, adam(1e-3), **{**COMMON, "learning_starts": 3})
    many = population(trainer(env, model, algorithm, envs=2, horizon=1))
    state, metrics = train(many, 3)(many.init(keys.split(KEY, 2)))
    assert metrics["critic_loss"].shape == (3, 2)
    assert metrics["finite"].all()
    assert not metrics["critic_loss"][1:].isnan().any()
    assert not torch.equal(*state.learner.params["critics"].unbind(0))


def least(
    rewards: Tensor, first: Tensor, second: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float
) -> Tensor:
    del truncated
    return least_target(rewards, torch.stack([first, second]), gamma * (~terminated).to(rewards.dtype))


test_target = check(target_laws("min"), least)
test_deterministic = check(policy_laws(SEEN, PUSHES), CERTAIN)
test_stochastic = check(policy_laws(SEEN, PUSHES), RANDOM)


def test_smoothing_without_a_size_leaves_the_action() -> None:
    action = torch.tensor([[1.0, 0.5]])
    assert torch.equal(smoothed(action, torch.ones(1, 2), PUSHES, 0.0, 0.5), action)


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (lambda: deterministic_actor_mlp(SEEN, Discrete(2)), StructureError, "actions is Discrete, wanted a Box"),
        (lambda: stochastic_actor_mlp(SEEN, Box(-1.0, math.inf, (2,))), ShapeError, "wanted finite bounds"),
        (lambda: stochastic_actor_mlp(SEEN, Box(-1.0, 1.0, (2, 2))), ShapeError, r"\[2, 2\], wanted one axis"),
        (lambda: deterministic_actor_mlp(SEEN, PUSHES, critics=0), ChoiceError, "critics is 0"),
        (lambda: td3(any_model(RANDOM), sgd(0.1)), StructureError, "StochasticActor, wanted a DeterministicActor"),
        (lambda: sac(any_model(CERTAIN), sgd(0.1)), StructureError, "DeterministicActor, wanted a StochasticActor"),
        (lambda: ddpg(CERTAIN, sgd(0.1)), StructureError, "critics is 2, wanted 1"),
        (lambda: td3(CERTAIN, sgd(0.1), gamma=1.5), ChoiceError, "td3: gamma is 1.5"),
        (lambda: ddpg(CERTAIN, sgd(0.1), target_rate=-1.0), ChoiceError, "ddpg: target_rate is -1.0"),
        (lambda: sac(RANDOM, sgd(0.1), target_entropy=math.nan), ChoiceError, "sac: target_entropy is nan"),
        (lambda: sac(RANDOM, any_model(0.1)), StructureError, "optimizer is float"),
        (lambda: td3(any_model(actor_critic_mlp(SEEN, PUSHES)), sgd(0.1)), StructureError, "ActorCritic"),
    ],
)
def test_bad_input_is_refused_in_one_line(bad: Callable[[], Any], error: type[PurestepError], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        bad()
    assert "\n" not in str(raised.value)


def any_model(value: Any) -> Any:
    return value


def test_models_are_of_the_two_kinds() -> None:
    assert isinstance(CERTAIN, DeterministicActor)
    assert isinstance(RANDOM, StochasticActor)
    assert CERTAIN.critics_count == RANDOM.critics_count == 2

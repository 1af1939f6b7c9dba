"""PQN: one update against plain loops, exploration, masks, what it learns, and refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.pqn import pqn
from purestep.core import keys
from purestep.core.action_values import action_values_mlp
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import replace
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import Trajectory
from purestep.runtime.compile import program
from purestep.runtime.recipes.pipeline import model_for
from purestep.runtime.recipes.shared_settings import Learner
from purestep.runtime.train import train, trainer

TIME, ENVS, GAMMA, LAMBDA, RATE = 5, 2, 0.9, 0.6, 0.1
SEEN, ACTIONS = Box(-1.0, 1.0, (2,)), Discrete(3)
MODEL = action_values_mlp(SEEN, ACTIONS, (4,), is_normalized=True)
SETTINGS: dict[str, Any] = {"gamma": GAMMA, "q_lambda": LAMBDA, "epochs": 1, "minibatches": 1}


def played() -> Trajectory:
    """[TIME, ENVS] rows with an ending of each kind; inside an episode next_observation is the observation that follows."""
    generator = torch.Generator().manual_seed(0)
    observation = torch.randn(TIME, ENVS, 2, generator=generator)
    terminated, truncated = torch.zeros(2, TIME, ENVS, dtype=torch.bool).unbind(0)
    terminated[1, 0], truncated[2, 1] = True, True
    over = (terminated | truncated)[..., None]
    beyond = torch.randn(TIME, ENVS, 2, generator=generator)
    following = torch.cat([observation[1:], beyond[-1:]])
    return Trajectory(
        observation=observation,
        action=torch.randint(0, 3, (TIME, ENVS), generator=generator),
        reward=torch.randn(TIME, ENVS, generator=generator),
        terminated=terminated,
        truncated=truncated,
        next_observation=torch.where(over, beyond, following),
        behaviour_log_prob=torch.zeros(TIME, ENVS),
    )


def by_hand(network: Tensor, data: Trajectory) -> Tensor:
    """The returns of Q(lambda), step by step: [TIME, ENVS]."""
    best = MODEL.outputs(network, data.next_observation).max(-1).values
    rows: list[list[float]] = [[0.0] * ENVS for _ in range(TIME)]
    for env in range(ENVS):
        for t in reversed(range(TIME)):
            after = float(best[t, env])
            if t < TIME - 1 and not data.truncated[t, env]:
                after = (1 - LAMBDA) * after + LAMBDA * rows[t + 1][env]
            rows[t][env] = float(data.reward[t, env]) + (0.0 if data.terminated[t, env] else GAMMA * after)
    return torch.tensor(rows)


def test_an_update_is_the_one_written_by_hand() -> None:
    algorithm, data = pqn(MODEL, sgd(RATE), **SETTINGS), played()
    state = algorithm.init(keys.key(0))
    after, metrics = algorithm.update(state, data, keys.key(1))
    network = state.params["network"].clone().requires_grad_()
    taken = MODEL.outputs(network, data.observation).gather(-1, data.action[..., None])[..., 0]
    found = 0.5 * (taken - by_hand(network.detach(), data)).square().mean()
    (gradient,) = torch.autograd.grad(found, network)
    torch.testing.assert_close(after.params["network"], (network - RATE * gradient).detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(metrics["loss"], found.detach(), rtol=1e-4, atol=1e-6)


def test_every_row_is_learned_from_once_in_an_epoch() -> None:
    algorithm, data = pqn(MODEL, sgd(1e-6), **{**SETTINGS, "epochs": 3, "minibatches": 5}), played()
    state = algorithm.init(keys.key(0))
    _, metrics = algorithm.update(state, data, keys.key(1))
    whole = pqn(MODEL, sgd(1e-6), **SETTINGS).update(state, data, keys.key(2))[1]
    assert float(metrics["loss"]) == pytest.approx(float(whole["loss"]), abs=1e-4)


def test_exploration_falls_with_the_steps() -> None:
    algorithm = pqn(MODEL, sgd(RATE), exploration=0.5, exploration_steps=4 * TIME * ENVS, **SETTINGS)
    state, seen = algorithm.init(keys.key(0)), []
    for number in range(5):
        state, _ = algorithm.update(state, played(), keys.key(number))
        seen.append(float(state.params["epsilon"]))
    assert seen == [0.875, 0.75, 0.625, 0.5, 0.5]


def test_no_value_is_taken_from_an_illegal_action() -> None:
    space = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (3,)))))
    model = action_values_mlp(space, ACTIONS, (4,), is_normalized=True)
    data, mask = played(), torch.tensor([True, False, False]).expand(TIME, ENVS, 3)
    masked = replace(
        data,
        action=torch.zeros_like(data.action),
        observation={"features": data.observation, "action_mask": mask},
        next_observation={"features": data.next_observation, "action_mask": mask},
    )
    algorithm = pqn(model, sgd(RATE), **SETTINGS)
    state = algorithm.init(keys.key(0))
    # with one legal action its value is the best one: what the others are worth changes nothing
    first, _ = algorithm.update(state, masked, keys.key(1))
    shift = torch.zeros_like(state.params["network"])
    shift[-2:] = 100.0  # the biases of the actions 1 and 2
    moved = replace(state, params={**state.params, "network": state.params["network"] + shift})
    second, _ = algorithm.update(moved, masked, keys.key(1))
    torch.testing.assert_close(second.params["network"] - shift, first.params["network"], rtol=0.0, atol=1e-4)


def test_the_recipe_takes_normalised_layers_and_no_memory() -> None:
    env, learner = make("cartpole"), Learner(hidden=(4,), activation="relu")
    spaces = env.observation_space, env.action_space
    seen, outputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), []
    plain, normal = (action_values_mlp(*spaces, (4,), is_normalized=is_normalized) for is_normalized in (False, True))
    for model in (model_for(pqn, env, learner, ""), normal, plain):
        outputs.append(model.apply(model.init(keys.key(0)), seen, ())[1])
    torch.testing.assert_close(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2], atol=1e-2)
    with pytest.raises(ChoiceError, match="--memory is gru, wanted none for pqn; train it by ppo"):
        model_for(pqn, env, Learner(memory="gru"), "")


def test_a_bandit_is_learned() -> None:
    env = make("probe_both")
    model = action_values_mlp(env.observation_space, env.action_space, (16,), is_normalized=True)
    algorithm = pqn(model, adam(1e-2), epochs=2, minibatches=2, exploration_steps=512)
    one = trainer(env, model, algorithm, envs=8, horizon=4)
    _, metrics = train(one, 40)(one.init(keys.key(0)))
    assert float(metrics["error"][-1]) < 0.1


@pytest.mark.slow
def test_compiled_it_is_the_same_update() -> None:
    algorithm, data = pqn(MODEL, sgd(RATE), **{**SETTINGS, "epochs": 2, "minibatches": 5}), played()
    state = algorithm.init(keys.key(0))
    plain, _ = algorithm.update(state, data, keys.key(1))
    compiled, _ = program(algorithm.update, name="pqn")(state, data, keys.key(1))
    torch.testing.assert_close(compiled.params["network"], plain.params["network"], rtol=1e-4, atol=1e-5)


def test_bad_input_ends_in_one_line() -> None:
    with pytest.raises(StructureError, match="pqn: model is ActorCritic, wanted an ActionValues; make it with"):
        pqn(actor_critic_mlp(SEEN, ACTIONS), sgd(0.1))  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match=r"pqn: q_lambda is 1\.5, wanted a number from 0\.0 to 1\.0"):
        pqn(MODEL, sgd(0.1), q_lambda=1.5)
    algorithm = pqn(MODEL, sgd(0.1), minibatches=3)
    with pytest.raises(ShapeError, match="pqn: rows is 10, wanted a multiple of 3 minibatches"):
        algorithm.update(algorithm.init(keys.key(0)), played(), keys.key(0))

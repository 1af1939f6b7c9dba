"""Discrete SAC: one update against plain PyTorch, illegal actions, the temperature, and refused input."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.algorithms.algorithm import begin
from purestep.algorithms.discrete_sac import discrete_sac
from purestep.core import keys
from purestep.core.categorical_actor import categorical_actor_mlp
from purestep.core.errors import ChoiceError, PurestepError, StructureError
from purestep.core.optim.optimizers import adam, sgd
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import take
from purestep.core.spaces import Box, Discrete, Fields
from purestep.core.steps import Trajectory, Transition
from purestep.core.tree import leaves
from purestep.properties import check, policy_laws

SEEN, ACTIONS, HIDDEN, GAMMA, RATE, TAU = Box(-1.0, 1.0, (2,)), Discrete(3), 5, 0.9, 0.05, 0.25
MASKED = Fields((("features", SEEN), ("action_mask", Box(0.0, 1.0, (3,)))))
KEY = keys.key(5)
COMMON: Mapping[str, Any] = {
    "gamma": GAMMA,
    "replay_size": 8,
    "learning_starts": 1,
    "batch_size": 4,
    "target_rate": TAU,
}
MODEL = categorical_actor_mlp(SEEN, ACTIONS, (HIDDEN,))


def one_row(action: int, *, terminated: bool = False, truncated: bool = False) -> Trajectory:
    """One transition [1, 1], so that every row of a batch is this one."""
    numbers = torch.randn(1, 1, 6, generator=torch.Generator().manual_seed(3))
    return Transition(
        observation=numbers[..., :2],
        action=torch.tensor([[action]]),
        reward=numbers[..., 2],
        terminated=torch.tensor([[terminated]]),
        truncated=torch.tensor([[truncated]]),
        next_observation=numbers[..., 3:5],
        behaviour_log_prob=numbers[..., 5],
    )


def perceptron(vector: Tensor, x: Tensor) -> Tensor:
    first, first_bias, last, last_bias = torch.split(vector, [2 * HIDDEN, HIDDEN, HIDDEN * 3, 3])
    return torch.relu(x @ first.reshape(2, HIDDEN) + first_bias) @ last.reshape(HIDDEN, 3) + last_bias


def descended(loss: Callable[[Tensor], Tensor], params: Tensor) -> Tensor:
    leaf = params.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    return params - RATE * gradient


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ending", ["none", "terminated", "truncated"])
def test_one_update_is_plain_pytorchs(ending: str) -> None:
    algorithm = discrete_sac(MODEL, sgd(RATE), initial_temperature=0.3, target_entropy=0.5, **COMMON)
    data = one_row(2, terminated=ending == "terminated", truncated=ending == "truncated")
    state = begin(algorithm, KEY, take(take(data, 0), 0))
    before = state.params
    seen, following = data.observation[0, 0], data.next_observation[0, 0]

    def soft(policy: Tensor, critics: Tensor, x: Tensor) -> Tensor:
        log_probs = torch.log_softmax(perceptron(policy, x), -1)
        least = torch.minimum(perceptron(critics[0], x), perceptron(critics[1], x))
        return (log_probs.exp() * (least - 0.3 * log_probs)).sum()

    discount = 0.0 if ending == "terminated" else GAMMA
    target = data.reward[0, 0] + discount * soft(before["policy"], before["critics"], following)
    critics = descended(
        lambda both: 0.5 * ((torch.stack([perceptron(one, seen)[2] for one in both]) - target) ** 2).sum(),
        before["critics"],
    )
    after, metrics = algorithm.update(state, data, KEY)
    close(after.params["critics"], critics)
    close(after.params["policy"], descended(lambda policy: -soft(policy, critics, seen), before["policy"]))
    close(after.targets["critics"], before["critics"] + TAU * (critics - before["critics"]))
    log_probs = torch.log_softmax(perceptron(before["policy"], seen), -1)
    entropy = -(log_probs.exp() * log_probs).sum()
    close(after.targets["log_temperature"], -RATE * (entropy - 0.5 * torch.log(torch.tensor(3.0))))
    close(metrics["entropy"], entropy)


@pytest.mark.parametrize(("target", "sign"), [(1.0, 1.0), (0.0, -1.0)], ids=["too little entropy", "too much"])
def test_temperature_moves_towards_the_target_entropy(target: float, sign: float) -> None:
    algorithm = discrete_sac(MODEL, adam(0.1), target_entropy=target, **COMMON)
    data = one_row(0)
    after, _ = algorithm.update(begin(algorithm, KEY, take(take(data, 0), 0)), data, KEY)
    close(after.targets["log_temperature"], torch.tensor(0.1 * sign))


def test_illegal_actions_have_no_part_in_an_update() -> None:
    model = categorical_actor_mlp(MASKED, ACTIONS, (HIDDEN,))
    algorithm = discrete_sac(model, sgd(RATE), target_entropy=1.0, **COMMON)
    plain, mask = one_row(0), torch.tensor([[[True, False, False]]])
    data = Transition(
        observation={"features": plain.observation, "action_mask": mask},
        action=plain.action,
        reward=plain.reward,
        terminated=plain.terminated,
        truncated=plain.truncated,
        next_observation={"features": plain.next_observation, "action_mask": mask},
        behaviour_log_prob=plain.behaviour_log_prob,
    )
    state = begin(algorithm, KEY, take(take(data, 0), 0))
    after, metrics = algorithm.update(state, data, KEY)
    assert all(torch.isfinite(leaf).all() for leaf in leaves((after.params, dict(metrics))))
    close(after.params["policy"], state.params["policy"])  # one legal action: nothing to choose
    close(after.targets["log_temperature"], torch.tensor(0.0))
    close(metrics["entropy"], torch.tensor(0.0))


test_policy = check(policy_laws(SEEN, ACTIONS), MODEL)
test_masked_policy = check(policy_laws(MASKED, ACTIONS), categorical_actor_mlp(MASKED, ACTIONS, (HIDDEN,)))


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        (lambda: categorical_actor_mlp(SEEN, SEEN), StructureError, "actions is Box, wanted Discrete"),
        (lambda: categorical_actor_mlp(SEEN, ACTIONS, critics=0), ChoiceError, "critics is 0"),
        (lambda: discrete_sac(foreign(), sgd(0.1)), StructureError, "ActorCritic, wanted a CategoricalActor"),
        (lambda: discrete_sac(MODEL, sgd(0.1), target_entropy=2.0), ChoiceError, "target_entropy is 2.0"),
    ],
)
def test_bad_input_is_refused_in_one_line(bad: Callable[[], Any], error: type[PurestepError], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        bad()
    assert "\n" not in str(raised.value)


def foreign() -> Any:
    return actor_critic_mlp(SEEN, ACTIONS)

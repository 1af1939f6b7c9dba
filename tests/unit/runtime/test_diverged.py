"""A run that becomes NaN is an error wherever Python sees the numbers, and a metric everywhere else."""

from typing import Any

import attrs
import pytest
import torch

from purestep.algorithms.a2c import a2c
from purestep.core import keys
from purestep.core.env import Env, map_step, time_limit
from purestep.core.envs import make
from purestep.core.errors import NonFiniteError
from purestep.core.optim.optimizers import adam
from purestep.core.policy import actor_critic_mlp
from purestep.core.record import replace
from purestep.runtime.compile import program
from purestep.runtime.diverged import require_finite
from purestep.runtime.population import population
from purestep.runtime.train import Trainer, folded, train, trainer


def paying_nan_later() -> Env[Any, Any]:
    """Cartpole whose reward is NaN from the fourth step of an episode on: `validate`, which takes one, sees nothing."""
    inner = time_limit(make("cartpole"), 500)

    def wrap(step: Any) -> Any:
        def moved(params: Any, state: Any, action: Any, noise: Any) -> Any:
            after, told = step(params, state, action, noise)
            return after, replace(told, reward=torch.where(after.elapsed > 3, torch.nan, told.reward))

        return moved

    return map_step(inner, inner.reset, wrap)


def run() -> Trainer:
    env = paying_nan_later()
    model = actor_critic_mlp(env.observation_space, env.action_space, (4,))
    return trainer(env, model, a2c(model, adam(1e-3)), envs=2, horizon=3)


SAID = r"train: iteration 2 of 3 is NaN or infinite in parameters or rewards, wanted finite numbers; lower the learning rate"


def test_a_nan_reward_is_an_error_in_python() -> None:
    made = run()
    state = made.init(keys.key(0))
    with pytest.raises(NonFiniteError, match=SAID) as caught:
        train(made, 3)(state)
    assert "\n" not in str(caught.value)
    _, metrics = folded(made, 3)(state)
    assert metrics["finite"].tolist() == [1.0, 0.0, 0.0]
    assert train(made, 1)(state)[1]["finite"].tolist() == [1.0]


@pytest.mark.slow
def test_a_nan_reward_is_an_error_of_the_program() -> None:
    made = run()
    lowered = program(train(made, 3), backend="aot_eager")
    for _ in range(2):  # compiled, and from then on
        with pytest.raises(NonFiniteError, match=SAID):
            lowered(made.init(keys.key(0)))
    assert len(lowered.seconds) == 1


def test_inside_a_transformation_finite_says_so() -> None:
    made = run()
    seeds = keys.split(keys.key(0), 2)
    _, metrics = torch.vmap(lambda key: train(made, 3)(made.init(key)))(seeds)
    assert metrics["finite"].tolist() == [[1.0, 0.0, 0.0]] * 2


def test_a_population_goes_on_while_one_member_is_finite() -> None:
    finite = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    require_finite(((), {"finite": finite}))
    with pytest.raises(NonFiniteError, match="iteration 3 of 3"):
        require_finite(((), {"finite": torch.cat([finite, torch.zeros(1, 2)])}))
    made = population(run())
    with pytest.raises(NonFiniteError, match="iteration 2 of 2"):
        train(made, 2)(made.init(keys.split(keys.key(0), 2)))


def test_no_iterations_and_trainers_that_do_not_say_are_left_alone() -> None:
    made = run()
    assert train(made, 0)(made.init(keys.key(0)))[1]["finite"].shape == (0,)
    silent = attrs.evolve(made, metrics=("entropy",), iterate=lambda state: (state, {"entropy": torch.zeros(())}))
    assert train(silent, 2)(made.init(keys.key(0)))[1]["entropy"].tolist() == [0.0, 0.0]

"""A run that becomes NaN is an error wherever Python sees the numbers, and a metric everywhere else."""

from collections.abc import Callable
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
from purestep.core.policy import actor_critic_mlp, flat
from purestep.core.record import replace
from purestep.core.steps import Trajectory
from purestep.core.tree import all_finite, tree_map
from purestep.runtime.compile import program
from purestep.runtime.diverged import require_finite
from purestep.runtime.identity import identity
from purestep.runtime.population import population
from purestep.runtime.train import RunState, Trainer, folded, train, trainer


def paying_nan_later() -> Env[Any, Any]:
    """Cartpole whose reward is NaN from the fourth step of an episode on: `validate`, which takes one, sees nothing."""
    inner = time_limit(make("cartpole"), 500)

    def wrap(step: Any) -> Any:
        def moved(params: Any, state: Any, action: Any, noise: Any) -> Any:
            after, told = step(params, state, action, noise)
            return after, replace(told, reward=torch.where(after.elapsed > 3, torch.nan, told.reward))

        return moved

    return map_step(inner, inner.reset, wrap)


def run(
    env: Env[Any, Any] | None = None, form: Callable[[Any], Any] = lambda model: model, rate: float = 1e-3
) -> Trainer:
    env = env or paying_nan_later()
    model = form(actor_critic_mlp(env.observation_space, env.action_space, (4,)))
    return trainer(env, model, a2c(model, adam(rate)), envs=2, horizon=3)


SAID = (
    r"^train: iteration 2 of 3: reward is NaN in 2 of 2 envs \(first envs\[0\]\) at step 1 of 3, then policy_loss and "
    r"learner.params.policy.0.weight, wanted finite numbers; correct the environment, and begin from the state before$"
)


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
    lowered = program(train(made, 3))
    for _ in range(2):  # compiled, and from then on
        with pytest.raises(NonFiniteError, match=SAID):
            lowered(made.init(keys.key(0)))
    assert len(lowered.seconds) == 1


def broken(
    made: Trainer, spoil: Callable[[RunState, Trajectory], tuple[RunState, dict[str, Any], Trajectory]]
) -> Trainer:
    """The trainer with a fault in what it plays, or in the state and metrics after it."""
    inner, play = made.iterate, made.play
    assert callable(play)

    def iterate(state: RunState) -> tuple[RunState, Any]:
        after, metrics = inner(state)
        after, changes, raw = spoil(after, play(state))
        finite = all_finite((after.learner.params, raw.reward)).to(torch.float32)
        return after, {**metrics, **changes, "finite": finite}

    return attrs.evolve(made, iterate=iterate, play=lambda state: spoil(state, play(state))[2])


def in_params(state: RunState, raw: Trajectory) -> tuple[RunState, dict[str, Any], Trajectory]:
    """One weight of the value's last layer, in the third update."""
    params = state.learner.params
    leaf = params["value"][1].weight
    bad = torch.where(state.learner.step == 3, torch.inf, leaf[0, 0])
    value = (params["value"][0], replace(params["value"][1], weight=torch.cat([bad[None, None], leaf[1:]])))
    return replace(state, learner=replace(state.learner, params={**params, "value": value})), {}, raw


def in_metrics(state: RunState, raw: Trajectory) -> tuple[RunState, dict[str, Any], Trajectory]:
    """The value's loss, and with it all params, in the third update."""
    bad = state.learner.step == 3
    params = tree_map(lambda leaf: torch.where(bad, torch.nan, leaf), state.learner.params)
    loss = torch.where(bad, torch.nan, 1.0)
    return replace(state, learner=replace(state.learner, params=params)), {"value_loss": loss}, raw


def in_observations(state: RunState, raw: Trajectory) -> tuple[RunState, dict[str, Any], Trajectory]:
    """The second env's observation after the second step, which makes its log-prob and reward NaN in the next."""
    at = torch.zeros(3, 2).bool()
    at[1, 1] = True
    seen = torch.where(at[..., None], torch.inf, raw.next_observation)
    later = torch.where(at.roll(1, 0), torch.nan, raw.reward)
    return state, {}, replace(raw, next_observation=seen, reward=later, behaviour_log_prob=later)


@pytest.mark.parametrize(
    ("fault", "iteration", "said"),
    [
        (in_params, 3, "learner.params.value.1.weight is infinite in 1 of 4 numbers, wanted finite numbers; lower the"),
        (in_metrics, 3, "value_loss is NaN, then learner.params.policy.0.weight, wanted finite numbers; lower the"),
        (
            in_observations,
            1,
            r"next_observation is infinite in 1 of 2 envs \(first envs\[1\]\) at step 2 of 3, .*; correct",
        ),
    ],
)
def test_the_first_tensor_is_named(fault: Any, iteration: int, said: str) -> None:
    made = broken(run(make("cartpole")), fault)
    with pytest.raises(NonFiniteError, match=f"^train: iteration {iteration} of 4: {said}"):
        train(made, 4)(made.init(keys.key(0)))


def test_params_of_a_flat_model_have_names() -> None:
    made = run(make("cartpole"), flat)
    state = made.init(keys.key(0))
    params = state.learner.params.clone()
    params[-1] = torch.nan  # the last one is the value's bias
    state = replace(state, learner=replace(state.learner, params=params))
    said = "iteration 1 of 2: learner.params.value.1.bias is NaN in 1 of 1 numbers before the first iteration, wanted"
    with pytest.raises(NonFiniteError, match=said):
        train(made, 2)(state)


def test_a_second_run_that_differs_says_so() -> None:
    made = run()
    state = made.init(keys.key(0))
    late = {"finite": torch.tensor([1.0, 1.0, 0.0])}
    with pytest.raises(
        NonFiniteError, match=r"3 of 3: reward is NaN .* \(already in iteration 2 when run again, uncompil"
    ):
        require_finite((state, late), made, state)
    early = {"finite": torch.tensor([0.0, 0.0, 0.0])}
    with pytest.raises(
        NonFiniteError, match="1 of 3 is NaN or infinite in parameters or rewards, but not when run again"
    ):
        require_finite((state, early), made, state)


def test_only_a_hundred_iterations_are_run_again() -> None:
    made = run()
    far = {"finite": torch.tensor([1.0] * 100 + [0.0])}
    with pytest.raises(
        NonFiniteError, match=r"iteration 101 of 101 is NaN or infinite in parameters or rewards, .* up to 100 it"
    ):
        require_finite(((), far), made, made.init(keys.key(0)))


def test_a_program_does_not_depend_on_the_search() -> None:
    """Numbers that `init` holds, and that the search would see, leave the program as it is."""
    one, other = (run(make("cartpole"), rate=rate) for rate in (1e-3, 2e-3))
    assert identity(train(one, 2)) == identity(train(other, 2)) != identity(train(one, 3))


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
    said = r"iteration 2 of 2: members\[0\]: reward is NaN in 2 of 2 envs \(first envs\[0\]\) at step 1 of 3, then .* correct"
    with pytest.raises(NonFiniteError, match=said):
        train(made, 2)(made.init(keys.split(keys.key(0), 2)))


def test_no_iterations_and_trainers_that_do_not_say_are_left_alone() -> None:
    made = run()
    assert train(made, 0)(made.init(keys.key(0)))[1]["finite"].shape == (0,)
    silent = attrs.evolve(made, metrics=("entropy",), iterate=lambda state: (state, {"entropy": torch.zeros(())}))
    assert train(silent, 2)(made.init(keys.key(0)))[1]["entropy"].tolist() == [0.0, 0.0]

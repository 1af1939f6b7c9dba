"""No env sees an action outside its Box, on any road from a policy to `env.step`."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.algorithms.a2c import a2c
from purestep.core import keys
from purestep.core.env import Env, action_limiter, time_limit
from purestep.core.envs import make
from purestep.core.errors import ChoiceError, ShapeError
from purestep.core.networks import mlp
from purestep.core.optim.optimizers import sgd
from purestep.core.policy import ActorCritic, normal_head, scalar, separate
from purestep.core.spaces import Box, Discrete, clip_to_space, contains, is_bounded
from purestep.core.steps import TimeStep
from purestep.runtime.cli import main
from purestep.runtime.effects.gymnasium.env import GymnasiumEnv, GymnasiumVectorEnv, gymnasium_trainer, gymnasium_world
from purestep.runtime.evaluate import evaluate
from purestep.runtime.population import each, population
from purestep.runtime.recipes.pipeline import head_of
from purestep.runtime.train import train, trainer

INF = math.inf
ENDS = st.one_of(st.just(INF), st.floats(0, 4, width=32))
STARTS = st.one_of(st.just(-INF), st.floats(-4, 4, width=32))
SHAPES = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    shape = draw(SHAPES)
    size = math.prod(shape)

    def pair() -> tuple[float, float]:
        low = draw(STARTS)
        return low, draw(st.floats(-4, 4, width=32) | st.just(INF)) if low == -INF else low + draw(ENDS)

    if draw(st.booleans()):
        low, high = pair()
        return Box(low, high, shape)
    pairs = [pair() for _ in range(size)]
    return Box(tuple(low for low, _ in pairs), tuple(high for _, high in pairs), shape)


@given(boxes(), st.integers(0, 2**31), st.sampled_from([torch.float32, torch.float64, torch.float16]))
def test_a_clipped_action_is_the_nearest_one_in_the_space(space: Box, seed: int, dtype: torch.dtype) -> None:
    action = (8 * keys.normal(keys.key(seed), (5, *space.shape))).to(dtype)
    nearest = clip_to_space(space, action)
    inside = contains(space, action)
    assert contains(space, nearest).all()
    assert torch.equal(nearest[inside], action[inside])
    assert torch.equal(clip_to_space(space, nearest), nearest)
    assert nearest.dtype == action.dtype
    assert torch.equal(torch.vmap(lambda one: clip_to_space(space, one))(action), nearest)


@given(st.integers(-9, 9), st.floats(0, 9), st.sampled_from([torch.int8, torch.int32, torch.int64, torch.uint8]))
def test_whole_numbers_stay_whole_and_inside(start: int, width: float, dtype: torch.dtype) -> None:
    action = torch.arange(0, 100).to(dtype)
    high = start + 1.5 + width
    space = Box(float(start) - 0.5, high, ())
    nearest = clip_to_space(space, action)
    assert nearest.dtype == dtype
    assert contains(space, nearest).all() or (dtype == torch.uint8 and high < 0)
    assert torch.equal(clip_to_space(Box(-INF, INF, ()), action), action)


def test_nan_stays_and_another_shape_is_refused() -> None:
    assert clip_to_space(Box(0.0, 1.0, (1,)), torch.tensor([math.nan])).isnan().all()
    assert clip_to_space(Discrete(2), torch.tensor(1)) == 1
    with pytest.raises(ShapeError, match=r"clipped: action is \[4\], wanted \[\*, 3\]; make the model"):
        clip_to_space(Box(0.0, 1.0, (3,)), torch.zeros(4))


def strict(space: Box) -> Env[Any, Any]:
    """An env that pays -1 for each action outside its Box, 0 otherwise."""

    def reset(params: Any, key: Any) -> tuple[Tensor, TimeStep]:
        return torch.zeros(()), timestep(torch.zeros(()))

    def timestep(reward: Tensor) -> TimeStep:
        no, zeros = torch.zeros_like(reward, dtype=torch.bool), torch.zeros(2)
        return TimeStep(
            observation=zeros, reward=reward, terminated=no, truncated=no.clone(), next_observation=zeros.clone()
        )

    def step(params: Any, state: Tensor, action: Tensor, key: Any) -> tuple[Tensor, TimeStep]:
        return state.clone(), timestep(-(~contains(space, action)).to(torch.float32))

    env = Env(params=(), reset=reset, step=step, observation_space=Box(-INF, INF, (2,)), action_space=space)
    return time_limit(env, 4)


def wide(space: Box) -> ActorCritic:
    """A policy whose samples and modes lie far outside."""
    size = space.shape[0]

    def far(params: Any, x: Any) -> Any:
        distribution = head.apply(params, x)
        return attrs.evolve(distribution, mean=distribution.mean + 5.0 * (-1.0) ** torch.arange(size))

    head = normal_head(mlp([2, size]), size, log_std=1.0)
    return separate(attrs.evolve(head, apply=far), scalar(mlp([2, 1])))


SPACES = {
    "bounded": Box(0.0, 1.0, (2,)),
    "one side": Box((0.0, -INF), (INF, 1.0), (2,)),
    "a bound each": Box((-1.0, 0.25), (-0.5, 0.75), (2,)),
}


def of_training(space: Box, model: ActorCritic) -> Any:
    one = trainer(strict(space), model, a2c(model, sgd(0.1)), envs=3, horizon=4)
    return train(one, 2)(one.init(keys.key(0)))[1]["return_sum"]


def of_a_population(space: Box, model: ActorCritic) -> Any:
    many = population(trainer(strict(space), model, a2c(model, sgd(0.1)), envs=3, horizon=4))
    return train(many, 2)(many.init(keys.split(keys.key(0), 2)))[1]["return_sum"]


def of_evaluation(action: str) -> Callable[[Box, ActorCritic], Any]:
    def played(space: Box, model: ActorCritic) -> Any:
        run = evaluate(strict(space), model, episodes=3, steps=4, action=action)
        params = torch.vmap(model.init)(keys.split(keys.key(0), 2))
        return each(run)(params, (), keys.key(1)).returns

    return played


def of_gymnasium(space: Box, model: ActorCritic) -> Any:
    """Our env as one of Gymnasium's, whose actions come from others; then back in our trainer."""
    single, several = GymnasiumEnv(strict(space)), GymnasiumVectorEnv(strict(space), 2)
    single.reset(seed=0)
    several.reset(seed=0)
    rewards = [single.step(np.full(2, 9.0, np.float32))[1], single.step(np.full(2, -9.0, np.float32))[1]]
    rewards += list(several.step(np.full((2, 2), 9.0, np.float32))[1])

    class Foreign(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        action_space = single.action_space

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            rewards.append(0.0 if self.action_space.contains(action) else -1.0)
            return np.zeros(2, np.float32), 0.0, False, False, {}

    with gymnasium_world(Foreign, 2) as world:
        one = gymnasium_trainer(world, model, a2c(model, sgd(0.1)), horizon=3, lower=lambda f: f)
        one.iterate(one.init(keys.key(0)))
    assert len(rewards) == 10
    return torch.tensor(rewards)


ROADS: dict[str, Callable[[Box, ActorCritic], Any]] = {
    "training": of_training,
    "population": of_a_population,
    "evaluation of modes": of_evaluation("mode"),
    "evaluation of samples": of_evaluation("sample"),
    "gymnasium": of_gymnasium,
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_no_env_sees_an_action_outside(road: Callable[[Box, ActorCritic], Any], space: Box) -> None:
    assert torch.equal(road(space, wide(space)).abs().max(), torch.tensor(0.0))


def test_envs_that_clip_by_themselves_keep_their_rule() -> None:
    env = make("mountain_car_continuous")
    assert (env.clips, make("pendulum").clips, make("cartpole").clips) == (True, True, False)
    action = torch.tensor([[3.0]])
    assert torch.equal(action_limiter(env)(action), action)


def test_the_head_is_squashed_where_an_env_of_yours_is_bounded() -> None:
    bounded, half = strict(Box(0.0, 1.0, (2,))), strict(Box(0.0, INF, (2,)))
    spaces = bounded.action_space, half.action_space, Box(1.0, 1.0, (2,))
    assert [is_bounded(space) for space in spaces] == [True, False, False]
    assert head_of(bounded, "auto", yours=True)[0] == "tanh_normal"
    assert head_of(bounded, "clip", yours=True) == ("normal", ())
    distribution, (said,) = head_of(half, "auto", yours=True)
    assert (distribution, "clipped actions" in said) == ("normal", True)
    assert head_of(make("cartpole"), "auto", yours=True) == ("normal", ())
    with pytest.raises(ChoiceError, match="use --action-bounds clip"):
        head_of(half, "squash", yours=True)


YOURS = """
import torch
from purestep import Box, Env, TimeStep, time_limit

SPACE = Box(0.0, 1.0, (2,))

def told(reward):
    no, zeros = torch.zeros_like(reward, dtype=torch.bool), torch.zeros(2)
    return TimeStep(observation=zeros, reward=reward, terminated=no, truncated=no.clone(), next_observation=zeros.clone())

def reset(params, key):
    return torch.zeros(()), told(torch.zeros(()))

def step(params, state, action, key):
    outside = ((action < 0.0) | (action > 1.0)).any(-1)
    return state.clone(), told(-outside.to(torch.float32))

STRICT = time_limit(Env(params=(), reset=reset, step=step, observation_space=Box(-1.0, 1.0, (2,)), action_space=SPACE), 5)
"""
TINY = ["--steps", "96", "--envs", "2", "--horizon", "8", "--hidden", "8", "--backend", "none", "--episodes", "4"]


@pytest.mark.parametrize("bounds", ["auto", *(pytest.param(one, marks=pytest.mark.slow) for one in ("clip", "squash"))])
def test_an_env_of_a_file_gets_actions_of_its_box(
    bounds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "strict.py").write_text(YOURS)
    env = f"{tmp_path / 'strict.py'}:STRICT"
    run = ["train", "ppo", "--env", env, *TINY, "--action-bounds", bounds, "--run", str(tmp_path / "run")]
    assert main.main(run) == 0
    said = "".join(capsys.readouterr())
    assert ("--action-bounds auto: squash" in said) == (bounds == "auto")
    assert "return 0.0 ± 0.0 (0.0 to 0.0)" in said
    assert main.main(["evaluate", str(tmp_path / "run"), "--action", "sample", "--trust", "--episodes", "4"]) == 0
    assert "return 0.0 ± 0.0 (0.0 to 0.0)" in "".join(capsys.readouterr())

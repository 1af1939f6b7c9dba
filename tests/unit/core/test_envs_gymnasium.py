"""The classic worlds are Gymnasium's: one step from the same state, whole episodes' lengths, and the reset's distribution.

Gymnasium computes in float64 and ours in float32, so trajectories part; a step from one state must not.
"""

import functools
from collections.abc import Callable
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import torch
from attrs import frozen
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from numpy.typing import NDArray
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Env, batched
from purestep.core.envs import make
from purestep.core.envs.acrobot import AcrobotState, acrobot
from purestep.core.envs.cartpole import CartPoleState, cartpole
from purestep.core.envs.mountain_car import MountainCarState, mountain_car, mountain_car_continuous
from purestep.core.envs.pendulum import PendulumState, pendulum
from purestep.core.record import replace
from purestep.core.scan import scan
from purestep.core.steps import TimeStep
from purestep.core.tree import leaves

Array = NDArray[Any]
STEPS = 10_000
# Errors of one step, relative to 1 + |value|: what 99.9 % of the steps keep to, and the worst of them.
EULER = (2e-6, 5e-6)  # float32 carries 6e-8, and a cosine of 30 radians thirty times that
RUNGE_KUTTA = (1e-5, 1e-3)  # at 28 radians a second the four evaluations amplify what they round
REWARD = 2e-5  # absolute; Pendulum's reaches -16
KOLMOGOROV = 1.95  # two samples of one distribution are further apart with probability 0.001


@frozen
class Twin:
    """One world in both libraries."""

    identifier: str
    foreign: Callable[[], Any]
    ours: Callable[[], Env[Any, Any]]
    state: Callable[[Tensor], Any]  # [*, D] -> our record
    numbers: Callable[[Any], Tensor]  # and back
    low: tuple[float, ...]  # states beyond those that a random policy finds are drawn from this box
    high: tuple[float, ...]
    angles: tuple[int, ...] = ()  # components that count modulo 2 pi
    tolerance: tuple[float, float] = EULER
    edge: Callable[[Array], Array] = lambda states: np.full(
        len(states), np.inf
    )  # from next states to termination's edge


def fields(cls: Any, *names: str) -> tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]:
    return (
        lambda values: cls(**dict(zip(names, values.unbind(-1), strict=True))),
        lambda state: torch.stack([getattr(state, name) for name in names], -1),
    )


def hill(goal: float) -> Callable[[Array], Array]:
    """How far a car is from the edge of {x >= goal, v >= 0}, or less."""
    return lambda s: np.where(s[:, 0] < goal, goal - s[:, 0], np.minimum(s[:, 0] - goal, abs(s[:, 1])))


CAR = fields(MountainCarState, "position", "velocity")
SWING = fields(PendulumState, "angle", "angular_velocity")
LINKS = fields(AcrobotState, "angle_1", "angle_2", "velocity_1", "velocity_2")
TWINS = {
    "cartpole": Twin(
        identifier="CartPole-v1",
        foreign=CartPoleEnv,
        ours=cartpole,
        state=lambda values: CartPoleState(motion=values),
        numbers=lambda state: state.motion,
        low=(-2.5, -3.0, -0.22, -3.0),
        high=(2.5, 3.0, 0.22, 3.0),
        edge=lambda s: np.minimum(abs(abs(s[:, 0]) - 2.4), abs(abs(s[:, 2]) - 12 * 2 * np.pi / 360)),
    ),
    "pendulum": Twin(
        identifier="Pendulum-v1",
        foreign=PendulumEnv,
        ours=pendulum,
        state=SWING[0],
        numbers=SWING[1],
        low=(-20.0, -8.0),
        high=(20.0, 8.0),
    ),
    "acrobot": Twin(
        identifier="Acrobot-v1",
        foreign=AcrobotEnv,
        ours=acrobot,
        state=LINKS[0],
        numbers=LINKS[1],
        low=(-np.pi, -np.pi, -4 * np.pi, -9 * np.pi),
        high=(np.pi, np.pi, 4 * np.pi, 9 * np.pi),
        angles=(0, 1),
        tolerance=RUNGE_KUTTA,
        edge=lambda s: abs(-np.cos(s[:, 0]) - np.cos(s[:, 0] + s[:, 1]) - 1.0),
    ),
    "mountain_car": Twin(
        identifier="MountainCar-v0",
        foreign=MountainCarEnv,
        ours=mountain_car,
        state=CAR[0],
        numbers=CAR[1],
        low=(-1.2, -0.07),
        high=(0.6, 0.07),
        edge=hill(0.5),
    ),
    "mountain_car_continuous": Twin(
        identifier="MountainCarContinuous-v0",
        foreign=Continuous_MountainCarEnv,
        ours=mountain_car_continuous,
        state=CAR[0],
        numbers=CAR[1],
        low=(-1.2, -0.07),
        high=(0.6, 0.07),
        edge=hill(0.45),
    ),
}
every_twin = pytest.mark.parametrize("name", sorted(TWINS))


@frozen
class Record:
    """`STEPS` steps of the foreign env: [STEPS, ...] each."""

    states: Array
    actions: Array
    next_states: Array
    observations: Array
    rewards: Array
    terminated: Array


@functools.cache
def record_steps(name: str) -> Record:
    """A random policy's steps, each from a state of float32; episodes begin with a reset or anywhere in the box."""
    twin, rng = TWINS[name], np.random.default_rng(0)
    env = twin.foreign()
    env.reset(seed=0)
    rows: list[tuple[Any, ...]] = []
    state, age = np.asarray(env.state, dtype=np.float32), 0
    for _ in range(STEPS):
        discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
        # Beyond the bounds of a box, so that clipping an action is seen too.
        action = rng.integers(env.action_space.n) if discrete else rng.uniform(-3.0, 3.0, 1).astype(np.float32)
        env.state = state.astype(np.float64)
        env.steps_beyond_terminated = None
        observation, reward, terminated, truncated, _ = env.step(action)
        assert not truncated
        following = np.asarray(env.state, dtype=np.float64)
        rows.append((state, action, following, observation, reward, terminated))
        state, age = following.astype(np.float32), age + 1
        if terminated or age == 12:
            env.reset()
            anywhere = rng.uniform(twin.low, twin.high).astype(np.float32)
            state = anywhere if rng.random() < 0.8 else np.asarray(env.state, dtype=np.float32)
            age = 0
    return Record(*(np.asarray(column) for column in zip(*rows, strict=True)))


def agree(ours: Array, theirs: Array, tolerance: tuple[float, float], angles: tuple[int, ...] = ()) -> None:
    difference = ours.astype(np.float64) - theirs
    for i in angles:
        difference[:, i] = (difference[:, i] + np.pi) % (2 * np.pi) - np.pi
    error = np.max(abs(difference) / (1.0 + abs(theirs)), axis=1)
    assert np.quantile(error, 0.999) < tolerance[0]
    assert np.max(error) < tolerance[1]


@every_twin
def test_a_step_from_the_same_state_is_gymnasiums(name: str) -> None:
    twin = TWINS[name]
    theirs, env = record_steps(name), twin.ours()
    states, actions = twin.state(torch.from_numpy(theirs.states)), torch.from_numpy(theirs.actions)
    unused = keys.split(keys.key(0), STEPS)
    moved, timestep = torch.vmap(env.step, in_dims=(None, 0, 0, 0))(env.params, states, actions, unused)

    agree(twin.numbers(moved).numpy(), theirs.next_states, twin.tolerance, twin.angles)
    agree(timestep.next_observation.numpy(), theirs.observations, twin.tolerance)
    assert all(abs(twin.numbers(moved)[:, i]).max() < np.pi + 1e-5 for i in twin.angles)
    clear = twin.edge(theirs.next_states) > 2.0 * twin.tolerance[0]  # nearer the edge, rounding decides
    assert clear.mean() > 0.999
    assert np.array_equal(timestep.terminated.numpy()[clear], theirs.terminated[clear])
    assert np.allclose(timestep.reward.numpy()[clear], theirs.rewards[clear], rtol=0.0, atol=REWARD)
    assert not timestep.truncated.any()


@every_twin
def test_every_constant_matters(name: str) -> None:
    """Each param, changed alone, changes a reset or a step: that is what vmap over params varies."""
    env, theirs = TWINS[name].ours(), record_steps(name)
    states, actions = TWINS[name].state(torch.from_numpy(theirs.states)), torch.from_numpy(theirs.actions)
    unused = keys.split(keys.key(0), STEPS)

    def behaviour(params: Any) -> list[Tensor]:
        steps = torch.vmap(env.step, in_dims=(None, 0, 0, 0))(params, states, actions, unused)
        return leaves((steps, env.reset(params, keys.key(1))))

    usual = behaviour(env.params)
    for field in attrs.fields(type(env.params)):
        other = replace(env.params, **{field.name: 1.25 * getattr(env.params, field.name) + 0.01})
        assert any(not torch.equal(a, b) for a, b in zip(usual, behaviour(other), strict=True)), field.name


@every_twin
def test_the_recorded_steps_reach_every_branch(name: str) -> None:
    """A comparison that never saw an ending, a wall or a clipped speed would prove little."""
    theirs = record_steps(name)
    following = theirs.next_states.T
    reached = {
        "cartpole": lambda: [abs(following[0]) > 2.4, abs(following[2]) > 0.2095],
        "pendulum": lambda: [abs(following[1]) == 8.0, abs(following[0]) > 3.0 * np.pi],
        "acrobot": lambda: [abs(following[2]) == 4.0 * np.pi, abs(following[3]) == 9.0 * np.pi],
        "mountain_car": lambda: [following[0] == -1.2, abs(following[1]) == 0.07],
        "mountain_car_continuous": lambda: [following[0] == np.float32(-1.2), theirs.rewards > 90.0],
    }
    for branch in reached[name]():
        assert branch.sum() > 30
    if name != "pendulum":
        assert 50 < theirs.terminated.sum() < STEPS / 2


@pytest.mark.parametrize(("component", "limit"), [(0, 2.4), (2, 12 * 2 * np.pi / 360)])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_cartpole_ends_beyond_its_limits_not_at_them(component: int, limit: float, sign: float) -> None:
    env, edge = cartpole(), np.float32(limit)

    def ends(value: Any) -> bool:
        motion = torch.zeros(4)
        motion[component] = float(value) * sign
        return bool(env.step(env.params, CartPoleState(motion=motion), torch.tensor(0), keys.key(0))[1].terminated)

    assert not ends(edge)
    assert ends(np.nextafter(edge, np.float32(9.0)))


def balance(observation: Any) -> Any:
    """Keeps a pole up for 500 steps and more."""
    x, v, angle, w = (observation[..., i] for i in range(4))
    return 0.05 * x + 0.1 * v + angle + 0.3 * w > 0.0


POLICIES: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "cartpole": [("balanced", balance), ("pushed", lambda o: o[..., 0] > -9.0)],
    "pendulum": [("driven", lambda o: 2.0 * o[..., 1:2])],
    "acrobot": [("idle", lambda o: o[..., 0] > -9.0)],
    "mountain_car": [("idle", lambda o: o[..., 0] > -9.0), ("pumped", lambda o: 2 * (o[..., 1] > 0.0))],
    "mountain_car_continuous": [("idle", lambda o: 0.0 * o[..., :1]), ("pumped", lambda o: 20.0 * o[..., 1:2])],
}


def foreign_episode(name: str, policy: Callable[[Any], Any]) -> tuple[Array, list[tuple[bool, bool]]]:
    env = gymnasium.make(TWINS[name].identifier)
    observation, _ = env.reset(seed=3)
    inner: Any = env.unwrapped
    start, flags = np.asarray(inner.state, dtype=np.float32), [(False, False)]
    inner.state = start.astype(np.float64)
    while not any(flags[-1]):
        action = policy(observation)
        observation, _, terminated, truncated, _ = env.step(
            int(action) if isinstance(env.action_space, gymnasium.spaces.Discrete) else np.asarray(action, np.float32)
        )
        flags.append((terminated, truncated))
    return start, flags[1:]


@pytest.mark.parametrize(("name", "which"), [(n, i) for n, some in sorted(POLICIES.items()) for i in range(len(some))])
def test_whole_episodes_end_where_gymnasiums_do(name: str, which: int) -> None:
    policy, env = POLICIES[name][which][1], make(name)
    start, flags = foreign_episode(name, policy)
    begin = env.reset(env.params, keys.key(0))[0]
    begin = type(begin)(inner=TWINS[name].state(torch.from_numpy(start)), elapsed=begin.elapsed)
    seen = observe(TWINS[name], begin.inner)

    def step(carry: Any, _: Any) -> tuple[Any, TimeStep]:
        action = policy(carry[1])
        whole = action.to(torch.float32 if action.ndim else torch.int64)
        state, timestep = env.step(env.params, carry[0], whole, keys.key(0))
        return (state, timestep.observation), timestep

    _, episode = scan(step, (begin, seen), length=len(flags))
    ours = list(zip(episode.terminated.tolist(), episode.truncated.tolist(), strict=True))
    assert ours == flags
    limit = gymnasium.spec(TWINS[name].identifier).max_episode_steps
    assert flags[-1] == ((False, True) if which == 0 else (True, False))
    assert len(flags) == limit or which > 0


def observe(twin: Twin, state: Any) -> Tensor:
    """What is seen in a state: Gymnasium's own words for it."""
    env = twin.foreign()
    env.reset(seed=0)
    env.state = twin.numbers(state).numpy().astype(np.float64)
    read = getattr(env, "_get_obs", None) or getattr(env, "_get_ob", None)
    return torch.from_numpy(np.asarray(read() if read else env.state, dtype=np.float32))


@every_twin
def test_resets_are_distributed_as_gymnasiums(name: str) -> None:
    """Kolmogorov's distance between 1,000 resets of theirs and 4,000 of ours, for each component of the state."""
    twin = TWINS[name]
    foreign, env = twin.foreign(), batched(twin.ours(), 4_000)
    foreign.reset(seed=1)
    theirs = np.asarray([(foreign.reset(), foreign.state)[1] for _ in range(1_000)], dtype=np.float32)
    ours = twin.numbers(env.reset(env.params, keys.key(1))[0]).numpy()
    for i in range(theirs.shape[1]):
        grid = np.concatenate([ours[:, i], theirs[:, i]])
        gap = np.searchsorted(np.sort(ours[:, i]), grid, "right") / len(ours)
        gap = gap - np.searchsorted(np.sort(theirs[:, i]), grid, "right") / len(theirs)
        assert np.max(abs(gap)) < KOLMOGOROV * np.sqrt(1 / len(ours) + 1 / len(theirs))
        width = np.ptp(theirs[:, i])
        assert abs(ours[:, i].min() - theirs[:, i].min()) <= 0.01 * width
        assert abs(ours[:, i].max() - theirs[:, i].max()) <= 0.01 * width

"""Mountain car: an underpowered car must first drive backwards to climb a slope. Discrete and continuous throttle."""

import torch
from torch import Tensor

from .. import keys
from ..env import Env, deterministic
from ..keys import Key
from ..record import record, tensor, with_defaults
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following


@record
class MountainCarParams:
    """Parameters of the valley and the engine."""

    force: Tensor = tensor("*", "float", 0.001)  # of full throttle
    gravity: Tensor = tensor("*", "float", 0.0025)
    min_position: Tensor = tensor("*", "float", -1.2)  # a wall that stops the car
    max_position: Tensor = tensor("*", "float", 0.6)
    max_speed: Tensor = tensor("*", "float", 0.07)
    goal_position: Tensor = tensor("*", "float", 0.5)  # the episode ends here ...
    goal_velocity: Tensor = tensor("*", "float", 0.0)  # ... for a car at least this fast
    reset_low: Tensor = tensor("*", "float", -0.6)  # a reset draws the position from [reset_low, reset_high), at rest
    reset_high: Tensor = tensor("*", "float", -0.4)


@record
class MountainCarState:
    """Position and velocity of the car."""

    position: Tensor = tensor("*", "float")
    velocity: Tensor = tensor("*", "float")


def mountain_car() -> Env[MountainCarParams, MountainCarState]:
    """MountainCar-v0 without its time limit; `time_limit(mountain_car(), 200)` adds it.

    Observation [2]: position, velocity. Action: 0 full throttle back, 1 none, 2 ahead. Reward: -1 for each step.
    Terminates at position >= 0.5 with velocity >= 0. With throttle u in {-1, 0, 1}

        v' = clip(v + u force - gravity cos(3 x)),    x' = clip(x + v'),    v' = 0 when the left wall stops it

    Source: Moore 1990, "Efficient memory-based learning for robot control"; Gymnasium's MountainCar-v0.

    >>> env = mountain_car()
    >>> start = MountainCarState(position=torch.tensor(0.0), velocity=torch.tensor(0.0))
    >>> env.step(env.params, start, torch.tensor(2), keys.key(0))[1].next_observation  # 0.001 - 0.0025 cos 0
    tensor([-0.0015, -0.0015])
    """

    def advance(
        params: MountainCarParams, state: MountainCarState, action: Tensor
    ) -> tuple[MountainCarState, TimeStep]:
        moved, terminated = _drive(params, state, (action - 1).to(params.force.dtype))
        return moved, following(_observe(moved), -torch.ones_like(moved.position), terminated)

    params = with_defaults(MountainCarParams)
    return deterministic(params, _reset, advance, observation_space=_valley(), action_space=Discrete(3))


def mountain_car_continuous() -> Env[MountainCarParams, MountainCarState]:
    """MountainCarContinuous-v0 without its time limit; `time_limit(mountain_car_continuous(), 999)` adds it.

    Like `mountain_car`, but the action [1] is the throttle u, clipped to [-1, 1] (full throttle is 0.0015), the goal is at
    0.45, and the reward is -0.1 a**2 of the action a before clipping, plus 100 for the step that terminates.

    Source: Gymnasium's MountainCarContinuous-v0.

    >>> env = mountain_car_continuous()
    >>> start = MountainCarState(position=torch.tensor(0.44), velocity=torch.tensor(0.02))
    >>> env.step(env.params, start, torch.tensor([1.0]), keys.key(0))[1].reward
    tensor(99.9000)
    """

    def advance(
        params: MountainCarParams, state: MountainCarState, action: Tensor
    ) -> tuple[MountainCarState, TimeStep]:
        throttle = action[..., 0]
        moved, terminated = _drive(params, state, torch.clamp(throttle, -1.0, 1.0))
        reward = torch.where(terminated, 100.0, 0.0) - 0.1 * throttle * throttle
        return moved, following(_observe(moved), reward, terminated)

    params = with_defaults(MountainCarParams, force=0.0015, goal_position=0.45)
    throttles = Box(-1.0, 1.0, (1,))
    return deterministic(params, _reset, advance, observation_space=_valley(), action_space=throttles, clips=True)


def _valley() -> Box:
    return Box((-1.2, -0.07), (0.6, 0.07), (2,))


def _observe(state: MountainCarState) -> Tensor:
    return torch.stack([state.position, state.velocity], -1)


def _reset(params: MountainCarParams, key: Key) -> tuple[MountainCarState, TimeStep]:
    position = params.reset_low + (params.reset_high - params.reset_low) * keys.uniform(key)
    state = MountainCarState(position=position, velocity=torch.zeros_like(position))
    return state, first(_observe(state))


def _drive(params: MountainCarParams, state: MountainCarState, throttle: Tensor) -> tuple[MountainCarState, Tensor]:
    velocity = state.velocity + throttle * params.force - params.gravity * torch.cos(3.0 * state.position)
    velocity = torch.clamp(velocity, -params.max_speed, params.max_speed)
    position = torch.clamp(state.position + velocity, params.min_position, params.max_position)
    velocity = torch.where((position == params.min_position) & (velocity < 0.0), 0.0, velocity)
    terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
    return MountainCarState(position=position, velocity=velocity), terminated

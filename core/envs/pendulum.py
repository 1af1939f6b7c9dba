"""Pendulum: swing a rod up with a motor too weak to lift it directly, and balance it."""

import math

import torch
from torch import Tensor

from .. import keys
from ..env import Env, deterministic
from ..keys import Key
from ..record import record, tensor, with_defaults
from ..spaces import Box
from ..steps import TimeStep, first, following
from .angles import wrap

MAX_SPEED, MAX_TORQUE = 8.0, 2.0


@record
class PendulumParams:
    """Parameters of rod, motor and limits, in SI units."""

    gravity: Tensor = tensor("*", "float", 10.0)
    mass: Tensor = tensor("*", "float", 1.0)
    length: Tensor = tensor("*", "float", 1.0)
    time_step: Tensor = tensor("*", "float", 0.05)
    max_speed: Tensor = tensor("*", "float", MAX_SPEED)  # angular velocities are clipped to it
    max_torque: Tensor = tensor("*", "float", MAX_TORQUE)  # actions are clipped to it
    reset_angle: Tensor = tensor("*", "float", math.pi)  # a reset draws the angle from [-reset_angle, reset_angle)
    reset_speed: Tensor = tensor("*", "float", 1.0)  # and the angular velocity from [-reset_speed, reset_speed)


@record
class PendulumState:
    """The rod's angle, not wrapped, and its angular velocity."""

    angle: Tensor = tensor("*", "float")  # 0 is upright
    angular_velocity: Tensor = tensor("*", "float")


def pendulum() -> Env[PendulumParams, PendulumState]:
    """Pendulum-v1 without its time limit; `time_limit(pendulum(), 200)` adds it. It never terminates.

    Observation [3]: cos t, sin t, w. Action [1]: a torque u, clipped to [-2, 2]. With the angle t taken in [-pi, pi),
    reward and next state are

        reward = -(t**2 + 0.1 w**2 + 0.001 u**2)
        w' = clip(w + (3 g / (2 l) sin t + 3 / (m l**2) u) dt),    t' = t + w' dt

    Source: Gymnasium's Pendulum-v1.

    >>> env = pendulum()
    >>> upright = PendulumState(angle=torch.zeros(()), angular_velocity=torch.zeros(()))
    >>> pushed, timestep = env.step(env.params, upright, torch.tensor([5.0]), keys.key(0))
    >>> pushed.angular_velocity, timestep.reward  # of a torque of 2: 3 * 2 * 0.05 and 0.001 * 4
    (tensor(0.3000), tensor(-0.0040))
    """
    return deterministic(
        with_defaults(PendulumParams),
        _reset,
        _advance,
        observation_space=Box((-1.0, -1.0, -MAX_SPEED), (1.0, 1.0, MAX_SPEED), (3,)),
        action_space=Box(-MAX_TORQUE, MAX_TORQUE, (1,)),
        clips=True,
    )


def _observe(state: PendulumState) -> Tensor:
    return torch.stack([torch.cos(state.angle), torch.sin(state.angle), state.angular_velocity], -1)


def _reset(params: PendulumParams, key: Key) -> tuple[PendulumState, TimeStep]:
    first_draw, second_draw = keys.uniform(key, (2,)).unbind(-1)
    state = PendulumState(
        angle=params.reset_angle * (2.0 * first_draw - 1.0),
        angular_velocity=params.reset_speed * (2.0 * second_draw - 1.0),
    )
    return state, first(_observe(state))


def _advance(params: PendulumParams, state: PendulumState, action: Tensor) -> tuple[PendulumState, TimeStep]:
    torque = torch.clamp(action[..., 0], -params.max_torque, params.max_torque)
    angle = wrap(state.angle)
    cost = angle * angle + 0.1 * state.angular_velocity * state.angular_velocity + 0.001 * torque * torque

    fall = 1.5 * params.gravity / params.length * torch.sin(state.angle)
    drive = 3.0 / (params.mass * params.length * params.length) * torque
    speed = state.angular_velocity + (fall + drive) * params.time_step
    speed = torch.clamp(speed, -params.max_speed, params.max_speed)
    moved = PendulumState(angle=state.angle + speed * params.time_step, angular_velocity=speed)
    return moved, following(_observe(moved), -cost, torch.zeros_like(speed, dtype=torch.bool))

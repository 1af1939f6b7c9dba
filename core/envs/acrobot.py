"""Acrobot: swing two hanging links, driven at the joint between them, until the lower end is high enough."""

import math

import torch
from torch import Tensor

from .. import keys
from ..env import Env, deterministic
from ..keys import Key
from ..record import record, tensor, with_defaults
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following
from .angles import wrap

Motion = tuple[Tensor, Tensor, Tensor, Tensor]  # both angles, both angular velocities

MAX_VELOCITY_1, MAX_VELOCITY_2 = 4.0 * math.pi, 9.0 * math.pi


@record
class AcrobotParams:
    """Parameters of the links and limits, in SI units; 1 is the upper link, 2 the lower."""

    gravity: Tensor = tensor("*", "float", 9.8)
    length_1: Tensor = tensor("*", "float", 1.0)
    mass_1: Tensor = tensor("*", "float", 1.0)
    mass_2: Tensor = tensor("*", "float", 1.0)
    center_1: Tensor = tensor("*", "float", 0.5)  # from the joint above to the centre of mass
    center_2: Tensor = tensor("*", "float", 0.5)
    inertia: Tensor = tensor("*", "float", 1.0)  # of either link about its centre of mass
    torque: Tensor = tensor("*", "float", 1.0)  # of actions 0 (negative) and 2
    time_step: Tensor = tensor("*", "float", 0.2)
    max_velocity_1: Tensor = tensor("*", "float", MAX_VELOCITY_1)  # angular velocities are clipped to these
    max_velocity_2: Tensor = tensor("*", "float", MAX_VELOCITY_2)
    height: Tensor = tensor("*", "float", 1.0)  # above the upper joint: where the episode ends
    reset_bound: Tensor = tensor("*", "float", 0.1)  # a reset draws each of the four numbers from [-bound, bound)


@record
class AcrobotState:
    """The angles, in [-pi, pi), and their velocities."""

    angle_1: Tensor = tensor("*", "float")  # of the upper link; 0 hangs down
    angle_2: Tensor = tensor("*", "float")  # of the lower link against the upper; 0 is straight
    velocity_1: Tensor = tensor("*", "float")
    velocity_2: Tensor = tensor("*", "float")


def acrobot() -> Env[AcrobotParams, AcrobotState]:
    """Acrobot-v1 without its time limit; `time_limit(acrobot(), 500)` adds it.

    Observation [6]: cos a, sin a, cos b, sin b of the two angles, then their velocities. Action: torque -1, 0 or 1 on the
    joint between the links. Reward: -1 for each step, 0 for the one that terminates: -cos a - cos(a + b) > 1. A step is one
    fourth-order Runge-Kutta step of the book's equations of motion; then angles are wrapped, velocities clipped.

    Source: Sutton and Barto 2018, Reinforcement Learning, section 11.3 of the first edition; Gymnasium's Acrobot-v1.

    >>> env = acrobot()
    >>> hanging = AcrobotState(**{name: torch.zeros(()) for name in ("angle_1", "angle_2", "velocity_1", "velocity_2")})
    >>> resting, timestep = env.step(env.params, hanging, torch.tensor(1), keys.key(0))
    >>> timestep.next_observation, timestep.reward
    (tensor([1., 0., 1., 0., 0., 0.]), tensor(-1.))
    """
    high = (1.0, 1.0, 1.0, 1.0, MAX_VELOCITY_1, MAX_VELOCITY_2)
    return deterministic(
        with_defaults(AcrobotParams),
        _reset,
        _advance,
        observation_space=Box(tuple(-bound for bound in high), high, (6,)),
        action_space=Discrete(3),
    )


def _observe(state: AcrobotState) -> Tensor:
    a, b = state.angle_1, state.angle_2
    parts = [torch.cos(a), torch.sin(a), torch.cos(b), torch.sin(b), state.velocity_1, state.velocity_2]
    return torch.stack(parts, -1)


def _reset(params: AcrobotParams, key: Key) -> tuple[AcrobotState, TimeStep]:
    numbers = [params.reset_bound * (2.0 * draw - 1.0) for draw in keys.uniform(key, (4,)).unbind(-1)]
    state = AcrobotState(angle_1=numbers[0], angle_2=numbers[1], velocity_1=numbers[2], velocity_2=numbers[3])
    return state, first(_observe(state))


def _advance(params: AcrobotParams, state: AcrobotState, action: Tensor) -> tuple[AcrobotState, TimeStep]:
    torque = (action - 1).to(params.torque.dtype) * params.torque
    start = (state.angle_1, state.angle_2, state.velocity_1, state.velocity_2)
    angle_1, angle_2, velocity_1, velocity_2 = _runge_kutta(params, start, torque)
    moved = AcrobotState(
        angle_1=wrap(angle_1),
        angle_2=wrap(angle_2),
        velocity_1=torch.clamp(velocity_1, -params.max_velocity_1, params.max_velocity_1),
        velocity_2=torch.clamp(velocity_2, -params.max_velocity_2, params.max_velocity_2),
    )
    terminated = -torch.cos(moved.angle_1) - torch.cos(moved.angle_1 + moved.angle_2) > params.height
    return moved, following(_observe(moved), terminated.to(torque.dtype) - 1.0, terminated)


def _runge_kutta(params: AcrobotParams, y: Motion, torque: Tensor) -> Motion:
    """Return the state after one classical fourth-order Runge-Kutta step with constant torque."""
    step = params.time_step
    k1 = _derivative(params, y, torque)
    k2 = _derivative(params, _along(y, 0.5 * step, k1), torque)
    k3 = _derivative(params, _along(y, 0.5 * step, k2), torque)
    k4 = _derivative(params, _along(y, step, k3), torque)
    a, b, c, d = (p + 2.0 * (q + r) + s for p, q, r, s in zip(k1, k2, k3, k4, strict=True))
    return _along(y, step / 6.0, (a, b, c, d))


def _along(y: Motion, step: Tensor, slope: Motion) -> Motion:
    a, b, c, d = (value + step * rate for value, rate in zip(y, slope, strict=True))
    return a, b, c, d


def _derivative(params: AcrobotParams, y: Motion, torque: Tensor) -> Motion:
    """Return the velocities and accelerations of both angles, by the equations of motion."""
    a, b, va, vb = y
    sin, cos = torch.sin(b), torch.cos(b)
    lever = params.mass_2 * params.length_1 * params.center_2
    own = params.mass_2 * params.center_2 * params.center_2 + params.inertia  # of the lower link about its joint
    d1 = params.mass_1 * params.center_1 * params.center_1 + params.mass_2 * params.length_1 * params.length_1
    d1 = d1 + own + params.inertia + 2.0 * lever * cos
    d2 = own + lever * cos
    phi2 = params.mass_2 * params.center_2 * params.gravity * torch.sin(a + b)
    weight = (params.mass_1 * params.center_1 + params.mass_2 * params.length_1) * params.gravity
    phi1 = weight * torch.sin(a) + phi2 - lever * sin * vb * (vb + 2.0 * va)
    ratio = d2 / d1
    acceleration_2 = (torque + ratio * phi1 - lever * va * va * sin - phi2) / (own - d2 * ratio)
    return va, vb, -(d2 * acceleration_2 + phi1) / d1, acceleration_2

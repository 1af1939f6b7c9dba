"""CartPole: push a cart left or right so that the pole on it stays upright."""

import math

import torch
from torch import Tensor

from .. import keys
from ..env import Env
from ..keys import Key
from ..record import record, tensor
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following
from .deterministic import deterministic


@record
class CartPoleParams:
    """Masses, lengths and limits, in SI units; each may be changed alone, the rest is derived in the step."""

    gravity: Tensor = tensor("*", "float")
    cart_mass: Tensor = tensor("*", "float")
    pole_mass: Tensor = tensor("*", "float")
    half_length: Tensor = tensor("*", "float")  # from the joint to the pole's centre of mass
    force: Tensor = tensor("*", "float")  # of one push
    time_step: Tensor = tensor("*", "float")
    position_limit: Tensor = tensor("*", "float")  # beyond it the episode ends
    angle_limit: Tensor = tensor("*", "float")  # likewise
    reset_bound: Tensor = tensor("*", "float")  # a reset draws each number from [-reset_bound, reset_bound)


@record
class CartPoleState:
    """Where cart and pole are, and how fast they move."""

    position: Tensor = tensor("*", "float")
    velocity: Tensor = tensor("*", "float")
    angle: Tensor = tensor("*", "float")  # 0 is upright
    angular_velocity: Tensor = tensor("*", "float")


def cartpole() -> Env[CartPoleParams, CartPoleState]:
    """CartPole-v1 without its time limit; `time_limit(cartpole(), 500)` is the whole of it.

    Observation [4]: position, velocity, angle, angular velocity. Action: 0 pushes left, 1 right. Reward: 1 each step.
    Terminates once |position| > 2.4 or |angle| > 12 degrees. With F the push, m the pole's mass, M both masses, l half the
    pole, w the angular velocity and t the angle, one explicit Euler step follows

        a   = (F + m l w**2 sin t) / M
        w'  = (g sin t - a cos t) / (l (4/3 - m cos(t)**2 / M))
        x'' = a - m l w' cos t / M

    Source: Barto, Sutton and Anderson 1983; Gymnasium's CartPole-v1.

    >>> env = cartpole()
    >>> still = CartPoleState(**{name: torch.zeros(()) for name in ("position", "velocity", "angle", "angular_velocity")})
    >>> pushed, timestep = env.step(env.params, still, torch.tensor(1), keys.key(0))
    >>> timestep.next_observation
    tensor([ 0.0000,  0.1951,  0.0000, -0.2927])
    """
    limit, angle = 2.4, math.radians(12.0)
    bounds = (2 * limit, math.inf, 2 * angle, math.inf)
    params = CartPoleParams(
        gravity=torch.tensor(9.8),
        cart_mass=torch.tensor(1.0),
        pole_mass=torch.tensor(0.1),
        half_length=torch.tensor(0.5),
        force=torch.tensor(10.0),
        time_step=torch.tensor(0.02),
        position_limit=torch.tensor(limit),
        angle_limit=torch.tensor(angle),
        reset_bound=torch.tensor(0.05),
    )
    return deterministic(
        params,
        _reset,
        _advance,
        observation_space=Box(tuple(-bound for bound in bounds), bounds, (4,)),
        action_space=Discrete(2),
    )


def _observe(state: CartPoleState) -> Tensor:
    return torch.stack([state.position, state.velocity, state.angle, state.angular_velocity], -1)


def _reset(params: CartPoleParams, key: Key) -> tuple[CartPoleState, TimeStep]:
    numbers = [params.reset_bound * (2.0 * draw - 1.0) for draw in keys.uniform(key, (4,)).unbind(-1)]
    position, velocity, angle, angular_velocity = numbers
    state = CartPoleState(position=position, velocity=velocity, angle=angle, angular_velocity=angular_velocity)
    return state, first(_observe(state))


def _advance(params: CartPoleParams, state: CartPoleState, action: Tensor) -> tuple[CartPoleState, TimeStep]:
    total_mass = params.cart_mass + params.pole_mass
    share = params.pole_mass / total_mass  # constants of the loop: the divisions by the mass are done once
    swing = share * params.half_length
    push = params.force / total_mass
    sin, cos = torch.sin(state.angle), torch.cos(state.angle)
    pull = torch.where(action == 1, push, -push) + swing * state.angular_velocity * state.angular_velocity * sin
    turn = (params.gravity * sin - pull * cos) / (params.half_length * (4.0 / 3.0) - swing * cos * cos)
    acceleration = pull - swing * turn * cos
    moved = CartPoleState(
        position=state.position + params.time_step * state.velocity,
        velocity=state.velocity + params.time_step * acceleration,
        angle=state.angle + params.time_step * state.angular_velocity,
        angular_velocity=state.angular_velocity + params.time_step * turn,
    )
    terminated = (moved.position.abs() > params.position_limit) | (moved.angle.abs() > params.angle_limit)
    return moved, following(_observe(moved), torch.ones_like(moved.position), terminated)

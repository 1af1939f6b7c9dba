"""CartPole: push a cart left or right so that the pole on it stays upright."""

import math

import torch
from torch import Tensor

from .. import keys
from ..env import Env, deterministic
from ..keys import Key
from ..record import record, tensor, with_defaults
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following

POSITION_LIMIT, ANGLE_LIMIT = 2.4, math.radians(12.0)


@record
class CartPoleParams:
    """Masses, lengths and limits, in SI units. Each can be changed alone: derived quantities are computed in the step."""

    gravity: Tensor = tensor("*", "float", 9.8)
    cart_mass: Tensor = tensor("*", "float", 1.0)
    pole_mass: Tensor = tensor("*", "float", 0.1)
    half_length: Tensor = tensor("*", "float", 0.5)  # from the joint to the pole's centre of mass
    force: Tensor = tensor("*", "float", 10.0)  # of one push
    time_step: Tensor = tensor("*", "float", 0.02)
    position_limit: Tensor = tensor("*", "float", POSITION_LIMIT)  # the episode ends beyond it
    angle_limit: Tensor = tensor("*", "float", ANGLE_LIMIT)  # likewise
    reset_bound: Tensor = tensor("*", "float", 0.05)  # a reset draws each of the four numbers from [-bound, bound)


@record
class CartPoleState:
    """Positions and velocities of cart and pole.

    One tensor, not four: every leaf carried by a compiled loop costs about 0.2 microseconds per step.
    """

    motion: Tensor = tensor("* 4", "float")  # position, velocity, angle (0 is upright), angular velocity


def cartpole() -> Env[CartPoleParams, CartPoleState]:
    """CartPole-v1 without its time limit; `time_limit(cartpole(), 500)` adds it.

    Observation [4]: position, velocity, angle, angular velocity. Action: 0 pushes left, 1 right. Reward: 1 for each step.
    Terminates once |position| > 2.4 or |angle| > 12 degrees. With push F, the pole's mass m, both masses M, half length l,
    angle t and angular velocity w, a step is one explicit Euler step of

        b   = (F + m l w**2 sin t) / M
        w'  = (g sin t - b cos t) / (l (4/3 - m cos(t)**2 / M))
        x'' = b - m l w' cos t / M

    Source: Barto, Sutton and Anderson 1983, "Neuronlike adaptive elements"; as in Gymnasium's CartPole-v1.

    >>> env = cartpole()
    >>> _, timestep = env.step(env.params, CartPoleState(motion=torch.zeros(4)), torch.tensor(1), keys.key(0))
    >>> timestep.next_observation  # 0.02 s of 10 N on 1.1 kg, less the pole's inertia
    tensor([ 0.0000,  0.1951,  0.0000, -0.2927])
    """
    high = (2.0 * POSITION_LIMIT, math.inf, 2.0 * ANGLE_LIMIT, math.inf)
    return deterministic(
        with_defaults(CartPoleParams),
        _reset,
        _advance,
        observation_space=Box(tuple(-bound for bound in high), high, (4,)),
        action_space=Discrete(2),
    )


def _reset(params: CartPoleParams, key: Key) -> tuple[CartPoleState, TimeStep]:
    motion = params.reset_bound * (2.0 * keys.uniform(key, (4,)) - 1.0)
    return CartPoleState(motion=motion), first(motion.clone())


def _advance(params: CartPoleParams, state: CartPoleState, action: Tensor) -> tuple[CartPoleState, TimeStep]:
    position, velocity, angle, angular_velocity = state.motion.unbind(-1)
    # These four depend on the params only, so that one division remains per environment.
    mass = params.cart_mass + params.pole_mass
    push = params.force / mass
    swing = params.pole_mass * params.half_length / mass
    inertia = params.half_length * (4.0 / 3.0)

    sin, cos = torch.sin(angle), torch.cos(angle)
    pull = torch.where(action == 1, push, -push) + swing * angular_velocity * angular_velocity * sin
    turn = (params.gravity * sin - pull * cos) / (inertia - swing * cos * cos)
    acceleration = pull - swing * turn * cos

    position = position + params.time_step * velocity
    velocity = velocity + params.time_step * acceleration
    angle = angle + params.time_step * angular_velocity
    angular_velocity = angular_velocity + params.time_step * turn
    motion = torch.stack([position, velocity, angle, angular_velocity], -1)
    terminated = (position.abs() > params.position_limit) | (angle.abs() > params.angle_limit)
    return CartPoleState(motion=motion), following(motion.clone(), torch.ones_like(position), terminated)

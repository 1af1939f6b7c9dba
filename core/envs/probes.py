"""Five probe environments for debugging a learner: each one tests a single part, and is solved at once if it is correct.

Source: Andy Jones 2021, "Debugging reinforcement learning systems". Each takes the size of its reward from its params; the
docstrings state the optimal values for a reward of 1. One observation number, an episode of one step (discount: two).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import keys
from ..env import Env, deterministic
from ..keys import Key
from ..record import record, tensor
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following


@record
class ProbeParams:
    """The size of a probe's reward."""

    reward: Tensor = tensor("*", "float")


@record
class ProbeState:
    """The current observation."""

    signal: Tensor = tensor("*", "float")


Signal = Callable[[ProbeParams, Key], Tensor]
Gain = Callable[[Tensor, Tensor], Tensor]


def probe_constant() -> Env[ProbeParams, ProbeState]:
    """One action, observation 0, reward 1, one step: V = 1. If it fails, the value loss or the optimizer is wrong.

    >>> env = probe_constant()
    >>> state, _ = env.reset(env.params, keys.key(0))
    >>> env.step(env.params, state, torch.tensor(0), keys.key(1))[1].reward
    tensor(1.)
    """
    return _one_step(1, _zero, lambda signal, action: torch.ones_like(signal))


def probe_observation() -> Env[ProbeParams, ProbeState]:
    """One action, a random observation of +1 or -1, which is also the reward, one step: V(o) = o.

    If only this one fails, the gradients to the network's input or the batching are wrong.

    >>> env = probe_observation()
    >>> state, timestep = env.reset(env.params, keys.key(0))
    >>> env.step(env.params, state, torch.tensor(0), keys.key(1))[1].reward == timestep.observation[0]
    tensor(True)
    """
    return _one_step(1, _sign, lambda signal, action: signal)


def probe_discount() -> Env[ProbeParams, ProbeState]:
    """One action, observation 0 then 1, reward 1 at the end of the second step: V(0) = gamma, V(1) = 1.

    If only this one fails, rewards or values are discounted or bootstrapped wrongly.

    >>> env = probe_discount()
    >>> state, _ = env.reset(env.params, keys.key(0))
    >>> state, timestep = env.step(env.params, state, torch.tensor(0), keys.key(1))
    >>> timestep.next_observation, timestep.reward, timestep.terminated
    (tensor([1.]), tensor(0.), tensor(False))
    """

    def advance(params: ProbeParams, state: ProbeState, action: Tensor) -> tuple[ProbeState, TimeStep]:
        del action
        moved = ProbeState(signal=torch.ones_like(state.signal))
        return moved, following(_observe(moved), params.reward * state.signal, state.signal > 0.5)

    return _probe(1, _zero, advance)


def probe_action() -> Env[ProbeParams, ProbeState]:
    """Two actions, observation 0, reward +1 for action 1 and -1 for action 0, one step: V = 1, the best action is 1.

    If only this one fails, the advantage or the policy's update is wrong.

    >>> env = probe_action()
    >>> state, _ = env.reset(env.params, keys.key(0))
    >>> env.step(env.params, state, torch.tensor(0), keys.key(1))[1].reward
    tensor(-1.)
    """
    return _one_step(2, _zero, lambda signal, action: _direction(action, signal))


def probe_both() -> Env[ProbeParams, ProbeState]:
    """Two actions, a random observation of +1 or -1, reward o (2 a - 1), one step: V = 1, the best action is 1 where o = 1.

    If only this one fails, policy and value are trained on stale or wrongly shuffled data.

    >>> env = probe_both()
    >>> step = lambda a: env.step(env.params, ProbeState(signal=torch.tensor(-1.0)), torch.tensor(a), keys.key(0))
    >>> step(0)[1].reward, step(1)[1].reward
    (tensor(1.), tensor(-1.))
    """
    return _one_step(2, _sign, lambda signal, action: signal * _direction(action, signal))


def _zero(params: ProbeParams, key: Key) -> Tensor:
    del key
    return torch.zeros_like(params.reward)


def _sign(params: ProbeParams, key: Key) -> Tensor:
    return 2.0 * keys.bernoulli(key, 0.5).to(params.reward.dtype) - 1.0


def _direction(action: Tensor, like: Tensor) -> Tensor:
    return (2 * action - 1).to(like.dtype)


def _observe(state: ProbeState) -> Tensor:
    return state.signal.unsqueeze(-1)


def _one_step(actions: int, signal: Signal, gain: Gain) -> Env[ProbeParams, ProbeState]:
    """Return an environment that ends at its first step with gain(signal, action) times the reward."""

    def advance(params: ProbeParams, state: ProbeState, action: Tensor) -> tuple[ProbeState, TimeStep]:
        reward = params.reward * gain(state.signal, action)
        return state, following(_observe(state), reward, torch.ones_like(reward, dtype=torch.bool))

    return _probe(actions, signal, advance)


def _probe(
    actions: int,
    signal: Signal,
    advance: Callable[[ProbeParams, ProbeState, Tensor], tuple[ProbeState, TimeStep]],
) -> Env[ProbeParams, ProbeState]:
    def reset(params: ProbeParams, key: Key) -> tuple[ProbeState, TimeStep]:
        state = ProbeState(signal=signal(params, key))
        return state, first(_observe(state))

    return deterministic(
        ProbeParams(reward=torch.tensor(1.0)),
        reset,
        advance,
        observation_space=Box(-1.0, 1.0, (1,)),
        action_space=Discrete(actions),
    )

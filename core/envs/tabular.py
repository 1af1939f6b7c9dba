"""Finite Markov decision processes as environments, and the record of their probabilities and rewards."""

import torch
from torch import Tensor

from .. import keys
from ..env import Env, Hoisted
from ..errors import ShapeError, message
from ..keys import Key
from ..record import check, record, tensor
from ..spaces import Box, Discrete
from ..steps import TimeStep, first, following


@record
class TabularMDP:
    """A finite Markov decision process of S states and A actions. With leading axes, one per environment."""

    transition: Tensor = tensor("* S A S", "float")  # P(next | state, action)
    reward: Tensor = tensor("* S A S", "float")  # of (state, action, next)
    termination: Tensor = tensor("* S", "float")  # probability that entering a state ends the episode
    initial: Tensor = tensor("* S", "float")  # probability of the state after a reset


@record
class TabularState:
    """The index of the current state."""

    index: Tensor = tensor("*", "int")


def tabular_mdp(transition: Tensor, reward: Tensor, *, termination: Tensor, initial: Tensor) -> TabularMDP:
    """Return a TabularMDP in float32.

    Shapes: transition [*, S, A, S], reward [*, S, A] or [*, S, A, S], initial [*, S], termination [*, S]: a bool mask of the
    terminal states, or for each state the probability that entering it ends the episode. Rows of probabilities need not be
    normalised. Raises: ShapeError.

    >>> mdp = tabular_mdp(torch.eye(2)[:, None], torch.ones(2, 1), termination=torch.zeros(2), initial=torch.ones(2))
    >>> mdp.reward.shape
    torch.Size([2, 1, 2])
    """
    if transition.ndim < 3 or transition.shape[-1] != transition.shape[-3]:
        remedy = "pass one row of next states for each state and action"
        raise ShapeError(
            message("tabular_mdp: transition", got=list(transition.shape), wanted="[*, S, A, S]", remedy=remedy)
        )
    if reward.shape == transition.shape[:-1]:
        reward = reward.unsqueeze(-1).expand(transition.shape)
    mdp = TabularMDP(
        transition=transition.to(torch.float32),
        reward=reward.to(torch.float32, copy=True, memory_format=torch.contiguous_format),
        termination=termination.to(torch.float32),
        initial=initial.to(torch.float32),
    )
    return check(mdp, transition.shape[:-3])


def tabular(mdp: TabularMDP) -> Env[TabularMDP, TabularState]:
    """Return the env of a TabularMDP, which becomes its params: many of one size are one env under vmap over params.

    Observation [S]: the state, one-hot. With uniform numbers u, v of [0, 1), s' = #{j : P(s' <= j | s, a) <= u} and
    terminated = (v < termination(s')): probabilities 0 and 1 are exact. The hoisted `draw` returns (u, v) [2].
    Raises: ShapeError, DtypeError.

    >>> there_and_back = torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> env = tabular(tabular_mdp(there_and_back, torch.tensor([[3.0], [4.0]]), termination=torch.tensor([0, 1]),
    ...                           initial=torch.tensor([1.0, 0.0])))
    >>> state, _ = env.reset(env.params, keys.key(0))
    >>> state, timestep = env.step(env.params, state, torch.tensor(0), keys.key(1))
    >>> state.index, timestep.reward, timestep.terminated
    (tensor(1), tensor(3.), tensor(True))
    """
    check(mdp)
    states, actions = mdp.transition.shape[-3:-1]

    def step(params: TabularMDP, state: TabularState, action: Tensor, key: Key) -> tuple[TabularState, TimeStep]:
        return _advance(params, state, action, _draw(params, key))

    return Env(
        params=mdp,
        reset=_reset,
        step=step,
        observation_space=Box(0.0, 1.0, (states,)),
        action_space=Discrete(actions),
        hoisted=Hoisted(draw=_draw, step=_advance),
    )


def _draw(params: TabularMDP, key: Key) -> Tensor:
    del params
    return keys.uniform(key, (2,))


def _observe(state: TabularState, like: Tensor) -> Tensor:
    """Return the state one-hot, with the length, dtype and device of `like` [S]."""
    return (torch.arange(like.shape[-1], device=like.device) == state.index).to(like.dtype)


def _reset(params: TabularMDP, key: Key) -> tuple[TabularState, TimeStep]:
    state = TabularState(index=_pick(params.initial, keys.uniform(key)))
    return state, first(_observe(state, params.initial))


def _advance(params: TabularMDP, state: TabularState, action: Tensor, noise: Tensor) -> tuple[TabularState, TimeStep]:
    row = state.index * params.transition.shape[-2] + action
    arrival, ending = noise.unbind(-1)
    index = _pick(_entry(params.transition.flatten(0, 1), row), arrival)
    reward = _entry(_entry(params.reward.flatten(0, 1), row), index)
    terminated = ending < _entry(params.termination, index)
    moved = TabularState(index=index)
    return moved, following(_observe(moved, params.initial), reward, terminated)


def _entry(table: Tensor, index: Tensor) -> Tensor:
    """Return table[index]; indexing with a 0-d tensor would read it on the host, which vmap refuses."""
    return table.index_select(0, index.reshape(1)).squeeze(0)


def _pick(weights: Tensor, uniform: Tensor) -> Tensor:
    """Return the state whose interval of [0, 1) contains `uniform`: weights [S], [] -> int64 []. Weight 0 is never picked.

    Weights that are all 0, as after a terminal state, give the last state.
    """
    cumulative = weights.cumsum(-1)
    return (cumulative <= uniform * cumulative[-1]).sum(-1).clamp_max(weights.shape[-1] - 1)

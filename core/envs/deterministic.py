"""Environments whose step is deterministic."""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from ..env import Env, Hoisted
from ..keys import Key
from ..spaces import Space
from ..steps import TimeStep

P = TypeVar("P")
S = TypeVar("S")


def deterministic(
    params: P,
    reset: Callable[[P, Key], tuple[S, TimeStep]],
    advance: Callable[[P, S, Tensor], tuple[S, TimeStep]],
    *,
    observation_space: Space,
    action_space: Space,
    clips: bool = False,
) -> Env[P, S]:
    """Return the env with step(params, state, action, key) = advance(params, state, action).

    Its hoisted `draw` returns `()`, so that a rollout needs no keys in its loop.

    >>> import torch
    >>> from purestep.core.envs import cartpole
    >>> env, state = cartpole(), cartpole().reset(cartpole().params, torch.tensor([0, 0]))[0]
    >>> noise = env.hoisted.draw(env.params, torch.tensor([1, 0]))
    >>> noise, env.hoisted.step(env.params, state, torch.tensor(1), noise)[1].reward
    ((), tensor(1.))
    """

    def step(params: P, state: S, action: Tensor, key: object) -> tuple[S, TimeStep]:
        del key
        return advance(params, state, action)

    return Env(
        params=params,
        reset=reset,
        step=step,
        observation_space=observation_space,
        action_space=action_space,
        hoisted=Hoisted(draw=_nothing, step=step),
        clips=clips,
    )


def _nothing(params: object, key: Key) -> tuple[()]:
    del params, key
    return ()

"""Worlds that do not keep to their table: each takes a function TabularMDP -> Env and gives a wrong one."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.core.env import Hoisted, halves
from purestep.core.record import replace
from purestep.core.steps import TimeStep
from purestep.properties.strategies.walks import AnyEnv

Result = tuple[Any, TimeStep]
AnyBuild = Callable[[Any], AnyEnv]


def ends_where_it_was(build: AnyBuild) -> AnyBuild:
    """Looks up the ending before it moves."""

    def made(mdp: Any) -> AnyEnv:
        env = build(mdp)
        parts = halves(env)

        def step(params: Any, state: Any, action: Tensor, noise: Tensor) -> Result:
            after, timestep = parts.step(params, state, action, noise)
            share = params.termination.index_select(0, state.index.reshape(1)).squeeze(0)
            return after, replace(timestep, terminated=noise[..., 1] < share)

        return attrs.evolve(env, hoisted=Hoisted(draw=parts.draw, step=step))

    return made


def pays_expectation(build: AnyBuild) -> AnyBuild:
    """Pays what (state, action) is worth on average."""

    def made(mdp: Any) -> AnyEnv:
        env = build(mdp)
        parts = halves(env)
        mean = (mdp.transition * mdp.reward).sum(-1).flatten()

        def step(params: Any, state: Any, action: Tensor, noise: Tensor) -> Result:
            after, timestep = parts.step(params, state, action, noise)
            place = state.index * params.transition.shape[-2] + action
            return after, replace(timestep, reward=mean.index_select(0, place.reshape(1)).squeeze(0))

        return attrs.evolve(env, hoisted=Hoisted(draw=parts.draw, step=step))

    return made


def begins_anywhere(build: AnyBuild) -> AnyBuild:
    """Takes the initial distribution for uniform."""
    return lambda mdp: build(replace(mdp, initial=torch.ones_like(mdp.initial)))

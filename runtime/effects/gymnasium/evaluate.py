"""Evaluation of a policy in a Gymnasium environment, with the results of `evaluate`."""

from typing import Any

import torch

from ....core import keys
from ....core.errors import at_least, choose
from ....core.policy import ActorCritic, first_memory
from ....core.steps import ended
from ...evaluate import ACTIONS, Evaluate, Evaluation, trained
from ...normalizer import Normalizer, observing
from ...rollout import reset_rollout
from .importing import GymnasiumWorld


def gymnasium_evaluate(
    world: GymnasiumWorld,
    model: ActorCritic,
    *,
    steps: int,
    action: str = "mode",
    normalizer: Normalizer | None = None,
    memory: Any = (),
) -> Evaluate:
    """Return a function (state, key) -> Evaluation [B]: one episode in each of the world's B environments.

    Arguments and results are those of `evaluate`, whose episodes they are for an environment of ours: each is played to its
    first ending, and at most for `steps` steps. It steps in Python and is not compiled.
    Raises: ChoiceError; StructureError for statistics without their normaliser, or the other way round.
    """
    at_least("gymnasium_evaluate: steps", steps, 1)
    taken = choose("gymnasium_evaluate: action", action, ACTIONS)
    env, episodes = world.env, world.vector.num_envs
    scaling = observing("gymnasium_evaluate", normalizer, env.observation_space)

    @torch.no_grad()
    def run(params: Any, statistics: Any, key: Any = ()) -> Evaluation:
        params, statistics, key = trained(params, statistics, key)
        observe = scaling(statistics)
        reset_key, _, policy_key = keys.split(key, 3)
        worlds = reset_rollout(env, reset_key, memory)
        carry = memory if memory != () else first_memory(model, episodes, key.device)
        state, observation = worlds.state, worlds.observation
        returns = torch.zeros(episodes, device=key.device)
        lengths, over = torch.zeros_like(returns, dtype=torch.int64), torch.zeros_like(returns, dtype=torch.bool)
        for step_key in keys.split(policy_key, steps):
            distribution, _, carry = model.apply(params, observe(observation), carry)
            noise = torch.vmap(distribution.noise)(keys.split(step_key, episodes))
            state, timestep = env.step((), state, taken(distribution, noise), ())
            observation = timestep.observation
            returns = returns + torch.where(over, 0.0, timestep.reward)
            lengths = lengths + (~over).to(torch.int64)
            over = over | ended(timestep.terminated, timestep.truncated)
            if over.all():
                break
        return Evaluation(returns=returns, lengths=lengths, ended=over)

    return run

"""`rollout = scan(step)`: a policy acts in a batch of environments for a number of steps."""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from ..core import keys
from ..core.check import check_tensor
from ..core.env import Env, action_limiter, halves
from ..core.errors import ShapeError, at_least, message
from ..core.keys import Key
from ..core.policy import ActorCritic
from ..core.probes import unprobed
from ..core.record import record, select
from ..core.scan import scan
from ..core.spaces import tree_of
from ..core.steps import Trajectory, Transition, ended
from ..core.tree import clone, leaf_paths, leaves, same_structure, to_device

Observe = Callable[[Any], Any]


@record
class Worlds:
    """State of a batch of environments between two rollouts."""

    state: Any  # the env's, [B, ...]
    observation: Any  # the policy's next input, [B, ...]
    memory: Any  # the policy's carry, [B, ...]; () when it has none
    fresh: Any = ()  # the initial carry of an episode, a tree like `memory`


def reset_rollout(env: Env[Any, Any], key: Key, memory: Any = ()) -> Worlds:
    """Reset a batched env; `memory` [B, ...] is the policy's carry at the beginning of each episode, the first and later ones.

    Raises: StructureError, ShapeError for a memory that is no tree of tensors with a row for each environment.
    """
    state, timestep = env.reset(env.params, key)
    for path, leaf in zip(leaf_paths(memory), leaves(memory), strict=True):
        check_tensor(".".join(("begin: memory", *path)), leaf, tuple(timestep.reward.shape))
    return Worlds(state=state, observation=timestep.observation, memory=memory, fresh=clone(memory))


class RolloutFunction(Protocol):
    """Function that `rollout` returns."""

    def __call__(
        self, params: Any, worlds: Worlds, key: Key, observe: Observe = ..., env_params: Any = ...
    ) -> tuple[Worlds, Trajectory]:
        """Act for the rollout's steps: Worlds [B] -> Worlds [B], Trajectory [T, B]; `env_params` replace the env's own."""
        ...


def rollout(env: Env[Any, Any], model: ActorCritic, length: int, *, unroll: int = 1) -> RolloutFunction:
    """Return a function that runs `length` steps of `model` in `env`, which must be batched and reset itself.

    The noise of all steps, the policy's and the env's, is drawn at once before the loop; the bits are those of a draw in
    each step. `observe` maps the policy's input, e.g. by a normalisation with statistics that are constant meanwhile; the
    trajectory keeps the environment's observations. `unroll` steps form one iteration of the compiled loop. Where an episode
    ends, for either reason, the policy's memory is reset to the one that `reset_rollout` was given. The env gets actions
    clipped to its action space (`action_limiter`); the trajectory keeps the policy's own action, to which its log-prob belongs.

    Raises: StructureError for a model whose carry is not a tree like that memory.

    >>> from purestep.core.env import auto_reset, batched
    >>> from purestep.core.envs.cartpole import cartpole
    >>> from purestep.core.policy import actor_critic_mlp
    >>> env = batched(auto_reset(cartpole()), 3)
    >>> model = actor_critic_mlp(env.observation_space, env.action_space)
    >>> worlds = reset_rollout(env, keys.key(0))
    >>> worlds, trajectory = rollout(env, model, 5)(model.init(keys.key(1)), worlds, keys.key(2))
    >>> trajectory.reward.shape
    torch.Size([5, 3])
    """
    at_least("rollout: length", length, 1)
    parts, own, limited = halves(env), env.params, action_limiter(env)

    def run(
        params: Any, worlds: Worlds, key: Key, observe: Observe = lambda x: x, env_params: Any = ()
    ) -> tuple[Worlds, Trajectory]:
        physics = to_device(env_params if leaves(env_params) else own, key.device)
        env_key, policy_key = keys.split(key)
        env_noise = torch.vmap(lambda k: parts.draw(physics, k))(keys.split(env_key, length))
        # Only the distribution's shape matters for its noise; its values are unused, so the compiler drops them.
        distribution, value, memory = unprobed(model.apply)(params, observe(worlds.observation), worlds.memory)
        same_structure("rollout: the model's memory", memory, worlds.memory)
        same_structure("rollout: the memory to begin with", worlds.fresh, worlds.memory)
        if value.ndim != 1:
            where, remedy = (
                "rollout: the model's values",
                "step a batch of worlds, batched(env, n), with one value for each",
            )
            raise ShapeError(message(where, got=list(value.shape), wanted="[B]", remedy=remedy))
        policy_keys = keys.split(keys.split(policy_key, length), value.shape[0]).transpose(0, 1)
        noise = torch.vmap(distribution.noise)(policy_keys)

        def step(worlds: Worlds, drawn: tuple[Any, Any]) -> tuple[Worlds, Transition]:
            distribution, _, memory = model.apply(params, observe(worlds.observation), worlds.memory)
            action = distribution.transform(drawn[1])
            state, timestep = parts.step(physics, worlds.state, limited(action), drawn[0])
            transition = Transition(
                observation=worlds.observation,
                action=action,
                reward=timestep.reward,
                terminated=timestep.terminated,
                truncated=timestep.truncated,
                next_observation=timestep.next_observation,
                behaviour_log_prob=distribution.log_prob(action),
            )
            memory = select(ended(timestep.terminated, timestep.truncated), worlds.fresh, memory)
            after = Worlds(state=state, observation=timestep.observation, memory=memory, fresh=worlds.fresh)
            return after, transition

        one = Transition(
            observation=worlds.observation,
            action=tree_of(env.action_space, value),
            reward=value,
            terminated=value,
            truncated=value,
            next_observation=worlds.observation,
            behaviour_log_prob=value,
        )
        return scan(step, worlds, (env_noise, noise), unroll=unroll, output=one)

    return run

"""A trained policy: a model, its params and the statistics of its normaliser; a function from observations to actions."""

import math
from typing import Any

import torch
from attrs import frozen

from ..core import keys
from ..core.distributions import Distribution
from ..core.env import Env, auto_reset, batched
from ..core.errors import ChoiceError, ShapeError, StructureError, at_least, message
from ..core.keys import Key
from ..core.policy import ActorCritic, check_model, first_memory
from ..core.record import take
from ..core.spaces import Box, Fields, Space, Tuple, clip_to_space, field, parts, shape_of
from ..core.tree import leaves, tree_map
from .normalizer import Normalizer, observing, with_normalizer
from .rollout import reset_rollout, rollout
from .train import RunState

WORLDS = 8  # environments in which observations are recorded side by side


@frozen(kw_only=True)
class TrainedPolicy:
    """A policy and all that it was trained with; it takes observations as `env` shows them.

    One with memory acts by `step`, which returns the memory for the next observation.

    A run of the command line also has `recipe`, `arguments` and `iteration`, that of its newest checkpoint.
    """

    env: Env[Any, Any]  # a single environment
    model: ActorCritic  # of observations as they were scaled in training: see `raw`
    params: Any
    normalizer: (
        Normalizer | tuple[()]
    ) = ()  # () without one, or for that of `running`, which its statistics suffice for
    statistics: Any = ()
    recipe: str = ""
    arguments: Any = ()
    iteration: int = 0
    own_reset: bool = False  # whether the env begins a new episode by itself

    @property
    def raw(self) -> ActorCritic:
        """Return the model of observations as the env shows them."""
        given = () if isinstance(self.normalizer, tuple) else (self.normalizer,)
        return with_normalizer(self.model, self.statistics, *given)

    def distribution(self, observation: Any) -> Distribution:
        """Return the distribution over actions [*, ...] for an observation with any leading axes [*].

        Raises: StructureError for a policy with memory.
        """
        if leaves(self.model.memory):
            raise _with_memory("call `step` with the memory that the last step returned")
        return self.step(observation)[0]

    def step(self, observation: Any, memory: Any = ()) -> tuple[Distribution, Any]:
        """Return the distribution over actions [*, ...] for an observation [*, ...], and the memory [*, ...] after it.

        `memory` is that after the observation before; () begins an episode, and is all that a model without memory returns.
        Raises: StructureError for a model that returns a memory and does not name the one to begin with.
        """
        lead = _lead(self.env.observation_space, observation)
        rows, before = tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(lead) :]), (observation, memory))
        if not leaves(before):
            before = first_memory(self.model, math.prod(lead), leaves(observation)[0].device)
        distribution, _, after = self.raw.apply(self.params, rows, before)
        if leaves(after) and not leaves(before):
            raise _with_memory("name a model's memory in the field `memory`")
        shaped: tuple[Distribution, Any] = tree_map(
            lambda leaf: leaf.reshape((*lead, *leaf.shape[1:])), (distribution, after)
        )
        return shaped

    def action(self, observation: Any) -> Any:
        """Return the likeliest action [*, ...], within the bounds of the action space, for observation [*, ...]."""
        return clip_to_space(self.env.action_space, self.distribution(observation).mode())

    def sample(self, observation: Any, key: Key) -> Any:
        """Return a sampled action [*, ...], within the bounds of the action space; a key [*, 2] for each observation."""
        return clip_to_space(self.env.action_space, self.distribution(observation).sample(key))


def policy(
    env: Env[Any, Any], model: ActorCritic, state: RunState, *, normalizer: Normalizer | None = None
) -> TrainedPolicy:
    """Return the policy of a trainer's state: its params with its statistics, to act on observations as `env` shows them.

    `normalizer` is needed for statistics of any other than `running`. Raises: StructureError for statistics that do not fit;
    ShapeError for the state of a population.

    >>> import purestep as ps
    >>> env = ps.make("probe_both")
    >>> model = ps.actor_critic_mlp(env.observation_space, env.action_space, (4,))
    >>> trainer = ps.trainer(env, model, ps.a2c(model, ps.sgd(0.1)), envs=2, horizon=2, normalizer=ps.running())
    >>> policy(env, model, trainer.init(keys.key(0))).action(torch.zeros(3, 1)).shape
    torch.Size([3])
    """
    check_model(model)
    if state.key.ndim != 1:
        where, remedy = "policy: state", "take one member, e.g. take(state, 0)"
        raise ShapeError(message(where, got="a population's", wanted="one member's", remedy=remedy))
    observing("policy", normalizer, env.observation_space)(state.normalizer)
    given = normalizer or ()
    return TrainedPolicy(
        env=env, model=model, params=state.learner.params, normalizer=given, statistics=state.normalizer
    )


def visited(one: TrainedPolicy, count: int, key: Key, env: Env[Any, Any] | None = None) -> Any:
    """Return the observations [count, ...] of the steps that the policy plays in its env, with sampled actions.

    `env` is that of a batch of `WORLDS` that reset themselves, for an environment that cannot be mapped.

    Raises: ChoiceError for an environment that is not pure, such as Gymnasium's.
    """
    at_least("visited: count", count, 1)
    if any(leaf.device.type != "cpu" for leaf in leaves((one.params, one.statistics))):
        where, remedy = "visited: the policy", "load the run, which moves it"
        raise ChoiceError(message(where, got="on another device", wanted="on the CPU", remedy=remedy))
    if env is None:
        env = batched(one.env if one.own_reset else auto_reset(one.env), WORLDS)
    begin_key, play_key = keys.split(key)
    with torch.no_grad():
        worlds = reset_rollout(env, begin_key, first_memory(one.model, WORLDS))
        _, played = rollout(env, one.raw, -(-count // WORLDS))(one.params, worlds, play_key)
    rows = tree_map(lambda leaf: leaf.flatten(0, 1), played.observation)
    return take(rows, slice(count))


def _with_memory(remedy: str) -> StructureError:
    where = "TrainedPolicy: the model"
    return StructureError(message(where, got="one with memory", wanted="one without", remedy=remedy))


def _lead(space: Space, observation: Any) -> tuple[int, ...]:
    """Return the leading axes of an observation."""
    if isinstance(space, Fields | Tuple):
        name, inner = parts(space)[0]
        return _lead(inner, field(observation, name))
    lead = observation.ndim - len(shape_of(space))
    if lead < 0 or (isinstance(space, Box) and tuple(observation.shape[lead:]) != space.shape):
        wanted = f"[*, {', '.join(map(str, space.shape))}]" if isinstance(space, Box) else "[*]"
        remedy = "pass it as the env shows it"
        raise ShapeError(message("policy: observation", got=list(observation.shape), wanted=wanted, remedy=remedy))
    return tuple(observation.shape[:lead])

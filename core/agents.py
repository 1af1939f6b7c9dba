"""Several agents in one environment: a row for each, what each observes, and parameters of their own.

An `Env` with `agents` A has observations and actions [A, ...] and rewards [A], or [] shared by all; its spaces are those of one
agent, and an episode ends for all at once. An agent whose part is over earlier waits for the others with rewards of 0, so that
its returns are right. A trainer takes each agent for a row of its own: B environments are B A rows, those of one environment
side by side. Every algorithm then learns for all agents with the same parameters; no row sees another's rewards.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import torch
from torch import Tensor

from .env import Env, Step, map_step
from .errors import StructureError, choose, message
from .keys import Key, split
from .policy import ActorCritic, check_model, features_of
from .record import replace, select, stack, take
from .spaces import Discrete, Fields, Space, Tuple, field
from .steps import TimeStep
from .tree import leaves, tree_map

P = TypeVar("P")
S = TypeVar("S")
CRITICS = ("own", "all")


def each_agent(timestep: TimeStep, agents: int) -> TimeStep:
    """Return a time step [*] of an environment as one of its agents [*, A]: flags and a shared reward stand for each of them.

    >>> from .steps import following
    >>> told = following(torch.zeros(2, 3), torch.tensor(0.5), torch.tensor(True))
    >>> each_agent(told, 2).reward, each_agent(told, 2).terminated
    (tensor([0.5000, 0.5000]), tensor([True, True]))
    """
    lead = (*timestep.terminated.shape, agents)

    def spread(value: Tensor) -> Tensor:
        return (value[..., None] if value.ndim < len(lead) else value).expand(lead)

    flags = {"terminated": spread(timestep.terminated), "truncated": spread(timestep.truncated)}
    return replace(timestep, reward=spread(timestep.reward), **flags)


def by_rows(env: Env[P, S]) -> Env[P, S]:
    """Return a batched env [B] of A agents as one with a row for each agent [B A]; an env without agents as it is.

    Row b A + a is agent a of environment b. The state keeps its B rows.

    >>> from .env import batched
    >>> from .spaces import Box
    >>> from .steps import first, following
    >>> alike = Env((), lambda p, key: ((), first(torch.zeros(2, 3))),
    ...     lambda p, s, action, key: (s, following(torch.zeros(2, 3), action.float(), torch.tensor(False))),
    ...     Box(-1.0, 1.0, (3,)), Discrete(4), agents=2)
    >>> rows, key = by_rows(batched(alike, 2)), torch.tensor([1, 0])
    >>> rows.step((), (), torch.tensor([0, 1, 2, 3]), key)[1].reward
    tensor([0., 1., 2., 3.])
    """
    agents = env.agents
    if agents is None:
        return env

    def rows(told: TimeStep) -> TimeStep:
        result: TimeStep = tree_map(lambda leaf: leaf.flatten(0, 1), each_agent(told, agents))
        return result

    def reset(params: P, key: Key) -> tuple[S, TimeStep]:
        state, told = env.reset(params, key)
        return state, rows(told)

    def wrap(inner: Step[P, S]) -> Step[P, S]:
        def step(params: P, state: S, action: Any, noise: Any) -> tuple[S, TimeStep]:
            together = tree_map(lambda leaf: leaf.reshape(-1, agents, *leaf.shape[1:]), action)
            state, told = inner(params, state, together, noise)
            return state, rows(told)

        return step

    return attrs.evolve(map_step(env, reset, wrap), agents=None)


def by_agent(values: Tensor, agents: int) -> Tensor:
    """Return values of rows [*, B A], such as the returns of an evaluation, with an axis of agents: [*, B, A].

    >>> by_agent(torch.tensor([1.0, 2.0, 3.0, 4.0]), 2).mean(0)
    tensor([2., 3.])
    """
    return values.reshape(*values.shape[:-1], -1, agents)


def agent_views(env: Env[P, S], *, critic: str = "own") -> Env[P, S]:
    """Return an env of A agents in which each also observes its own number, and its critic, if asked for, all agents.

    With the critic "own" an observation has the fields `agent` (its number) and `own` (its observation): PPO on it is IPPO.
    With "all" it has the fields `actor`, those two, and `critic`: `agent`, `own` and `all`, the observations of all agents in
    order. A model of `central_critic` reads them: PPO with it is MAPPO. The critic's input grows with A, that of all rows with
    A^2. An action mask stays with the actor. Raises: StructureError for an env without agents; ChoiceError.

    Source: de Witt et al. 2020, arXiv:2011.09533 (IPPO); Yu et al. 2021, arXiv:2103.01955 (MAPPO, section 3).

    >>> from .spaces import Box
    >>> from .steps import first
    >>> pair = Env((), lambda p, key: ((), first(torch.tensor([[0.1], [0.2]]))), lambda *_: (), Box(-1.0, 1.0, (1,)),
    ...     Discrete(2), agents=2)
    >>> agent_views(pair).reset((), torch.tensor([1, 0]))[1].observation
    {'agent': tensor([0, 1]), 'own': tensor([[0.1000],
            [0.2000]])}
    """
    agents = env.agents
    if agents is None:
        remedy = "set the field `agents` of the Env"
        raise StructureError(message("agent_views: env", got="one without agents", wanted="one with", remedy=remedy))
    central = choose("agent_views: critic", critic, {"own": False, "all": True})
    space = env.observation_space
    features = features_of("agent_views", space)
    masked = features is not space

    def view(observation: Any) -> Any:
        own = field(observation, "features") if masked else observation
        numbers = torch.arange(agents, device=leaves(own)[0].device)
        seen = {"agent": numbers, "own": own}
        actor = {"features": seen, "action_mask": field(observation, "action_mask")} if masked else seen
        if not central:
            return actor
        everyone = tuple(tree_map(partial(_of_one, agent), own) for agent in range(agents))
        return {
            "actor": actor,
            "critic": {"agent": numbers.clone(), "own": tree_map(torch.clone, own), "all": everyone},
        }

    def shown(told: TimeStep) -> TimeStep:
        return replace(told, observation=view(told.observation), next_observation=view(told.next_observation))

    def reset(params: P, key: Key) -> tuple[S, TimeStep]:
        state, told = env.reset(params, key)
        return state, shown(told)

    def wrap(inner: Step[P, S]) -> Step[P, S]:
        def step(params: P, state: S, action: Any, noise: Any) -> tuple[S, TimeStep]:
            state, told = inner(params, state, action, noise)
            return state, shown(told)

        return step

    return attrs.evolve(map_step(env, reset, wrap), observation_space=_viewed(space, features, agents, central))


def _of_one(agent: int, leaf: Tensor) -> Tensor:
    return leaf[agent].expand(leaf.shape).clone()


def _viewed(space: Space, features: Space, agents: int, central: bool) -> Space:
    seen: Space = Fields((("agent", Discrete(agents)), ("own", features)))
    actor = seen
    if features is not space:
        actor = Fields((("features", seen), ("action_mask", dict(_named(space))["action_mask"])))
    if not central:
        return actor
    whole = Fields((("agent", Discrete(agents)), ("own", features), ("all", Tuple((features,) * agents))))
    return Fields((("actor", actor), ("critic", whole)))


def _named(space: Space) -> tuple[tuple[str, Space], ...]:
    return space.spaces if isinstance(space, Fields) else ()


def central_critic(
    build: Callable[[Space, Space], ActorCritic], observation_space: Space, action_space: Space
) -> ActorCritic:
    """Return a model whose policy sees an agent's own observation and whose value sees all, of `agent_views` with critic "all".

    `build(observation_space, action_space)`, such as `actor_critic_mlp`, makes one model for each; of the first the value, of
    the second the policy is not used. Params and memory: {"actor", "critic"}. Raises: StructureError for other observations.

    >>> from .policy import actor_critic_mlp
    >>> own = Fields((("agent", Discrete(2)), ("own", Discrete(3))))
    >>> model = central_critic(actor_critic_mlp, Fields((("actor", own), ("critic", own))), Discrete(4))
    >>> sorted(model.init(torch.tensor([1, 0])))
    ['actor', 'critic']
    """
    spaces = dict(_named(observation_space))
    if set(spaces) != {"actor", "critic"}:
        got = sorted(spaces) or type(observation_space).__name__
        remedy = 'pass the observation_space of agent_views(env, critic="all")'
        raise StructureError(
            message("central_critic: observation_space", got=got, wanted="actor and critic", remedy=remedy)
        )
    actor, critic = build(spaces["actor"], action_space), build(spaces["critic"], action_space)
    remembers = bool(leaves((actor.memory, critic.memory)))

    def init(key: Key) -> dict[str, Any]:
        actor_key, critic_key = split(key)
        return {"actor": actor.init(actor_key), "critic": critic.init(critic_key)}

    def apply(params: Any, observation: Any, memory: Any) -> Any:
        before = memory if remembers else {"actor": (), "critic": ()}
        distribution, _, kept = actor.apply(params["actor"], field(observation, "actor"), before["actor"])
        _, value, seen = critic.apply(params["critic"], field(observation, "critic"), before["critic"])
        return distribution, value, {"actor": kept, "critic": seen} if remembers else memory

    memory = {"actor": actor.memory, "critic": critic.memory} if remembers else ()
    return ActorCritic(init=init, apply=apply, memory=memory)


def own_parameters(model: ActorCritic, agents: int) -> ActorCritic:
    """Return the model with parameters of each agent's own, for observations of `agent_views`.

    Params: those of `model`, each with a leading axis [A], drawn from A keys. A row is computed with the parameters of all
    agents and the result of its own taken, so that rows may be shuffled: A times the work of shared parameters.

    >>> from .policy import actor_critic_mlp
    >>> model = own_parameters(actor_critic_mlp(Fields((("agent", Discrete(2)), ("own", Discrete(3)))), Discrete(4)), 2)
    >>> params, same = model.init(torch.tensor([1, 0])), torch.tensor([2, 2])
    >>> value = model.apply(params, {"agent": torch.tensor([0, 1]), "own": same}, ())[1]
    >>> bool(value[0] == value[1])
    False
    """
    check_model(model)

    def init(key: Key) -> Any:
        return stack([model.init(own) for own in split(key, agents).unbind(-2)])

    def apply(params: Any, observation: Any, memory: Any) -> Any:
        number = agent_number(observation)
        result = model.apply(take(params, 0), observation, memory)
        for agent in range(1, agents):
            result = select(number == agent, model.apply(take(params, agent), observation, memory), result)
        return result

    return attrs.evolve(model, init=init, apply=apply)


def agent_number(observation: Any) -> Tensor:
    """Return the number of the agent that an observation of `agent_views` belongs to: int [*].

    >>> agent_number({"actor": {"agent": torch.tensor(1), "own": torch.tensor(0)}, "critic": ()})
    tensor(1)
    """
    for name in ("actor", "features"):
        if isinstance(observation, dict) and name in observation:
            observation = observation[name]
    if not (isinstance(observation, dict) and "agent" in observation):
        remedy = "pass the env through `agent_views`"
        raise StructureError(
            message("own_parameters: observation", got="one without", wanted="the field `agent`", remedy=remedy)
        )
    number: Tensor = observation["agent"]
    return number

"""Evaluation of a policy: a fixed number of whole episodes from fixed keys, separate from training and without effect on it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from attrs import frozen
from torch import Tensor

from ..core import keys
from ..core.agents import by_rows
from ..core.distributions import Distribution
from ..core.env import Env, action_limiter, batched, halves
from ..core.errors import ShapeError, StructureError, at_least, choose, message
from ..core.keys import Key
from ..core.policy import ActorCritic, first_memory
from ..core.record import record, replace, select, tensor
from ..core.scan import scan
from ..core.steps import ended
from ..core.tree import leaves, same_structure, to_device
from .normalizer import Normalizer, observing
from .rollout import Worlds, reset_rollout
from .train import RunState


def _mode(distribution: Distribution, noise: Any) -> Any:
    del noise
    return distribution.mode()


def _sample(distribution: Distribution, noise: Any) -> Any:
    return distribution.transform(noise)


ACTIONS: Mapping[str, Callable[[Distribution, Any], Any]] = {"mode": _mode, "sample": _sample}


@record
class Evaluation:
    """Results of the episodes. Leading axes: episodes [E], behind those of a population; of several agents [E A]."""

    returns: Tensor = tensor("*", "float")  # undiscounted, with the reward of the last step
    lengths: Tensor = tensor("*", "int")  # steps
    ended: Tensor = tensor("*", "bool")  # false where the episode was still going on at the last step


@record
class _Play:
    """Episodes under way, and their results so far."""

    worlds: Worlds  # [E, ...], unchanged once an episode is over
    told: Evaluation  # [E]


class Evaluate(Protocol):
    """Function that `evaluate` returns."""

    def __call__(self, params: Any, statistics: Any, key: Any = ()) -> Evaluation:
        """Play the episodes: called with (params, statistics, key), or with (state, key) for a trainer's state."""
        ...


def trained(params: Any, statistics: Any, key: Any) -> tuple[Any, Any, Key]:
    """Return the params, statistics and key of a call of an `Evaluate`: of a state they are its own.

    Raises: StructureError for params without a key.

    >>> trained("params", (), "key")
    ('params', (), 'key')
    """
    if isinstance(params, RunState):
        if not isinstance(key, tuple):
            remedy = "pass the state and the key: its statistics are taken from it"
            raise StructureError(message("evaluate: a state", got="beside statistics", wanted="alone", remedy=remedy))
        return params.learner.params, params.normalizer, statistics
    if isinstance(key, tuple):
        remedy = "pass a trainer's state and a key, or params, statistics and a key"
        raise StructureError(message("evaluate: key", got="absent", wanted="a key behind statistics", remedy=remedy))
    return params, statistics, key


def evaluate(
    env: Env[Any, Any],
    model: ActorCritic,
    *,
    episodes: int,
    steps: int,
    action: str = "mode",
    normalizer: Normalizer | None = None,
    memory: Any = (),
) -> Evaluate:
    """Return a function (state, key) -> Evaluation [episodes], for `env`, an environment without auto-reset.

    It plays with the params of a trainer's `state`, and scales observations by the state's statistics as they were scaled in
    training. Called with (params, statistics, key) it takes both by themselves; `statistics` are `()` for params that were
    trained without a normaliser. They are not updated. `normalizer` is needed where they are of any other than `running`.

    Episode i begins with reset key split(k, episodes)[i], so the first of many episodes are those of few. Each is played to
    its first ending, and at most for `steps` steps; steps after an ending do not count. `action` chooses from the policy's
    distribution: its "mode" or a "sample"; the env gets it clipped to its action space. A policy with memory begins with the
    model's own, or with `memory` [episodes, ...], as in `reset_rollout`. Of an env with `agents` A memory and
    results have a row for each agent, [episodes A] (`by_agent`). The same arguments give the same episodes; for a
    population, see `each`.

    Raises: ChoiceError; StructureError for statistics without their normaliser, or the other way round, and for a model whose
    carry is not a tree like `memory`.

    >>> from purestep.core.envs import make
    >>> from purestep.core.policy import actor_critic_mlp
    >>> env = make("probe_discount")
    >>> model = actor_critic_mlp(env.observation_space, env.action_space)
    >>> evaluate(env, model, episodes=2, steps=9)(model.init(keys.key(0)), (), keys.key(1)).lengths
    tensor([2, 2])
    """
    at_least("evaluate: episodes", episodes, 1)
    at_least("evaluate: steps", steps, 1)
    taken = choose("evaluate: action", action, ACTIONS)
    agents = env.agents or 1
    several, scaling = by_rows(batched(env, episodes)), observing("evaluate", normalizer, env.observation_space)
    parts, limited = halves(several), action_limiter(env)

    def run(params: Any, statistics: Any, key: Any = ()) -> Evaluation:
        params, statistics, key = trained(params, statistics, key)
        observe = scaling(statistics)
        physics = to_device(several.params, key.device)
        reset_key, env_key, policy_key = keys.split(key, 3)
        begun = memory if leaves(memory) else first_memory(model, episodes * agents, key.device)
        worlds = reset_rollout(several, reset_key, begun)

        def look(worlds: Worlds) -> tuple[Distribution, Tensor, Any]:
            return model.apply(params, observe(worlds.observation), worlds.memory)

        def step(play: _Play, drawn: tuple[Any, Any]) -> tuple[_Play, tuple[()]]:
            distribution, _, carry = look(play.worlds)
            action = limited(taken(distribution, drawn[1]))
            state, timestep = parts.step(physics, play.worlds.state, action, drawn[0])
            told, going = play.told, ~play.told.ended
            after = Evaluation(
                returns=told.returns + torch.where(going, timestep.reward, 0.0),
                lengths=told.lengths + going.to(torch.int64),
                ended=told.ended | ended(timestep.terminated, timestep.truncated),
            )
            before = replace(play.worlds, state=())
            moved = replace(before, observation=timestep.observation, memory=carry)
            state = select(going[::agents], state, play.worlds.state)  # an episode ends for all its agents at once
            return _Play(worlds=replace(select(going, moved, before), state=state), told=after), ()

        distribution, value, after = look(worlds)
        same_structure("evaluate: the model's memory", after, worlds.memory)
        env_noise = torch.vmap(lambda k: parts.draw(physics, k))(keys.split(env_key, steps))
        policy_keys = keys.split(keys.split(policy_key, steps), episodes * agents).transpose(0, 1)
        noise = torch.vmap(distribution.noise)(policy_keys)
        nothing = Evaluation(
            returns=torch.zeros_like(value),
            lengths=torch.zeros_like(value, dtype=torch.int64),
            ended=torch.zeros_like(value, dtype=torch.bool),
        )
        # Under vmap all that the compiled scan carries must be mapped from the first step on; the selection maps it.
        apart = replace(worlds, state=())
        state = select(nothing.ended[::agents], worlds.state, worlds.state)
        start = _Play(worlds=replace(select(nothing.ended, apart, apart), state=state), told=nothing)
        return scan(step, start, (env_noise, noise), output=())[0].told

    return run


@frozen
class Summary:
    """Statistics of an evaluation; the deviation is that of the population of episodes, with divisor E."""

    episodes: int
    mean_return: float
    return_deviation: float
    lowest_return: float
    highest_return: float
    mean_length: float
    ended: float  # the fraction of episodes that ended

    def line(self) -> str:
        """Return the statistics as one line of text."""
        span = f"{self.lowest_return:.1f} to {self.highest_return:.1f}"
        returns = f"return {self.mean_return:.1f} ± {self.return_deviation:.1f} ({span})"
        return f"{self.episodes} episodes: {returns}, length {self.mean_length:.1f}, {self.ended:.0%} ended"


def summary(evaluation: Evaluation) -> Summary:
    """Return the statistics of one evaluation [E]; of a population's, take one member first. Raises: ShapeError.

    >>> returns, lengths, ended = torch.tensor([1.0, 3.0]), torch.tensor([4, 6]), torch.tensor([True, False])
    >>> summary(Evaluation(returns=returns, lengths=lengths, ended=ended)).line()
    '2 episodes: return 2.0 ± 1.0 (1.0 to 3.0), length 5.0, 50% ended'
    """
    returns = evaluation.returns.to(torch.float64)
    if returns.ndim != 1:
        remedy = "take one member of the population, e.g. take(evaluation, 0)"
        raise ShapeError(message("summary: returns", got=list(returns.shape), wanted="[E]", remedy=remedy))
    return Summary(
        episodes=returns.shape[0],
        mean_return=float(returns.mean()),
        return_deviation=float(returns.std(correction=0)),
        lowest_return=float(returns.min()),
        highest_return=float(returns.max()),
        mean_length=float(evaluation.lengths.to(torch.float64).mean()),
        ended=float(evaluation.ended.to(torch.float64).mean()),
    )

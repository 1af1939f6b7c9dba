"""Normalisation of the learner's input: statistics that are constant during a rollout and updated after it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import torch
from attrs import frozen

from ..core import normalize
from ..core.distributions import Distribution
from ..core.errors import ChoiceError, StructureError, message
from ..core.policy import ActorCritic
from ..core.record import record, replace, static
from ..core.spaces import Box, Fields, Space, Tuple, assembled, field, parts
from ..core.steps import Trajectory
from ..core.tree import leaf_names, leaves


@frozen
class Normalizer:
    """Pure functions of explicit statistics; to freeze them, do not call `update`."""

    init: Callable[[Space, int, torch.device], Any]  # observation space, worlds, device
    observe: Callable[[Any, Any], Any]  # statistics, observation [*, ...] -> the same shape
    scale: Callable[[Any, Trajectory], Trajectory]  # a trajectory [T, B] -> the learner's input
    update: Callable[[Any, Trajectory], Any]  # statistics, trajectory [T, B] as it was played


def check_normalizer(normalizer: Normalizer) -> Normalizer:
    """Return the argument if it is a Normalizer. Raises: StructureError.

    >>> check_normalizer(identity()).observe((), 3)
    3
    """
    if not isinstance(normalizer, Normalizer):
        got, remedy = repr(normalizer), "make it with running()"
        raise StructureError(message("trainer: normalizer", got=got, wanted="a Normalizer", remedy=remedy))
    return normalizer


def identity() -> Normalizer:
    """Return a normaliser that scales nothing and has no statistics.

    >>> identity().observe((), torch.ones(2))
    tensor([1., 1.])
    """
    return Normalizer(
        init=lambda space, worlds, device: (),
        observe=lambda statistics, observation: observation,
        scale=lambda statistics, trajectory: trajectory,
        update=lambda statistics, trajectory: statistics,
    )


@record
class RunningScales:
    """Statistics of `running`."""

    observation: Any  # normalize.Statistics, or () when observations stay as they are; a tree of these, as the space is
    reward: Any  # normalize.RewardScale, or ()
    gamma: Any  # [] float64, the discount of the returns by which rewards are scaled; () without
    clip: float = static(default=10.0)  # largest magnitude of a scaled observation or reward

    def observe(self, observation: Any) -> Any:
        """Return the observation [*, ...] as the policy sees it."""
        return _observed(self.observation, observation, self.clip)


def running(*, observations: bool = True, rewards: bool = True, gamma: float = 0.99, clip: float = 10.0) -> Normalizer:
    """Scale observations to mean 0 and variance 1, and divide rewards by the standard deviation of discounted returns.

    Both follow everything seen so far, as in the PPO2 code of OpenAI baselines, except that statistics are constant within
    a rollout. Of Fields and Tuples each Box of floats is scaled by itself; whole numbers, flags and the field `action_mask`
    stay as they are. Raises: ChoiceError when no part of the observation is a Box of floats.

    >>> scales = running().init(Box(-1.0, 1.0, (2,)), 3, torch.device("cpu"))
    >>> running().observe(scales, torch.tensor([0.5, 20.0]))
    tensor([ 0.5000, 10.0000])
    """

    def init(space: Space, worlds: int, device: torch.device) -> RunningScales:
        own = _statistics_of(space, device) if observations else ()
        if observations and not leaves(own):
            got, remedy = type(space).__name__, "pass observations=False"
            raise ChoiceError(message("running: observation space", got=got, wanted="a Box of floats", remedy=remedy))
        return RunningScales(
            observation=own,
            reward=normalize.reward_scale((worlds,), device=device) if rewards else (),
            gamma=torch.tensor(gamma, dtype=torch.float64, device=device) if rewards else (),
            clip=clip,
        )

    def scale(scales: RunningScales, trajectory: Trajectory) -> Trajectory:
        scaled = replace(
            trajectory,
            observation=scales.observe(trajectory.observation),
            next_observation=scales.observe(trajectory.next_observation),
        )
        if not rewards:
            return scaled
        return replace(scaled, reward=normalize.scale_rewards(scales.reward, trajectory.reward, clip=clip))

    def update(scales: RunningScales, trajectory: Trajectory) -> RunningScales:
        after = scales
        if observations:
            after = replace(after, observation=_updated(scales.observation, trajectory.observation))
        if rewards:
            ends = trajectory.terminated, trajectory.truncated
            reward = normalize.update_reward_scale(scales.reward, trajectory.reward, *ends, gamma=scales.gamma)
            after = replace(after, reward=reward)
        return after

    return Normalizer(init=init, observe=RunningScales.observe, scale=scale, update=update)


def _statistics_of(space: Space, device: torch.device) -> Any:
    """Return the statistics of no data of each part that is scaled, and () for each that is not."""
    if isinstance(space, Fields | Tuple):
        scaled = [() if name == "action_mask" else _statistics_of(inner, device) for name, inner in parts(space)]
        return assembled(space, scaled)
    if isinstance(space, Box) and space.dtype == torch.float32:
        return normalize.statistics(space.shape, device=device)
    return ()


def _observed(statistics: Any, observation: Any, clip: float) -> Any:
    if isinstance(statistics, normalize.Statistics):
        is_number = observation.is_floating_point()
        return normalize.normalize(statistics, observation, clip=clip) if is_number else observation
    if not leaves(statistics):
        return observation
    if isinstance(statistics, tuple):
        return tuple(_observed(own, part, clip) for own, part in zip(statistics, observation, strict=True))
    changed = {name: _observed(own, field(observation, name), clip) for name, own in statistics.items()}
    return {**observation, **changed} if isinstance(observation, dict) else replace(observation, **changed)


def _updated(statistics: Any, observation: Any) -> Any:
    if isinstance(statistics, normalize.Statistics):
        return normalize.update(statistics, observation) if observation.is_floating_point() else statistics
    if isinstance(statistics, tuple):
        return (
            tuple(_updated(own, part) for own, part in zip(statistics, observation, strict=True)) if statistics else ()
        )
    return {name: _updated(own, field(observation, name)) for name, own in statistics.items()}


def observed_part(statistics: Any) -> Any:
    """Return the statistics that observations are scaled by, without those of rewards; of another normaliser all of them.

    >>> observed_part(running().init(Box(-1.0, 1.0, (1,)), 3, torch.device("cpu"))).reward
    ()
    """
    if not isinstance(statistics, RunningScales):
        return statistics
    return replace(statistics, reward=(), gamma=())


Observe = Callable[[Any], Any]


def observing(where: str, normalizer: Normalizer | None, space: Space) -> Callable[[Any], Observe]:
    """Return a function from statistics to the function that shows an observation as the policy saw it in training.

    Statistics of `running` need no `normalizer`; those of another one need it. Raises, in the function: StructureError for
    statistics that are not the normaliser's, and for statistics of an unknown one.

    >>> scales = running().init(Box(-1.0, 1.0, (1,)), 3, torch.device("cpu"))
    >>> observing("evaluate", None, Box(-1.0, 1.0, (1,)))(scales)(torch.tensor([20.0]))
    tensor([10.])
    """
    if normalizer is None:
        return lambda statistics: _own(where, statistics)
    one = check_normalizer(normalizer)
    wanted = _named(one.init(space, 1, torch.device("cpu")))

    def found(statistics: Any) -> Observe:
        got = _named(statistics)
        if got != wanted:
            remedy = "pass those of the state that was trained with this normaliser"
            text = message(f"{where}: statistics", got=got, wanted=f"the normaliser's: {wanted}", remedy=remedy)
            raise StructureError(text)
        return lambda observation: one.observe(statistics, observation)

    return found


def _own(where: str, statistics: Any) -> Observe:
    if isinstance(statistics, RunningScales):
        return statistics.observe
    if leaves(statistics):
        got, remedy = _named(statistics), "pass normalizer=, the one it was trained with"
        raise StructureError(
            message(f"{where}: statistics", got=got, wanted="those of `running`, or ()", remedy=remedy)
        )
    return lambda observation: observation


def _named(statistics: Any) -> str:
    if isinstance(statistics, RunningScales):
        return f"of `running`, of {', '.join(leaf_names(statistics)) or 'nothing'}, clip {statistics.clip}"
    return f"{type(statistics).__name__} with {', '.join(leaf_names(statistics))}" if leaves(statistics) else "()"


def with_normalizer(model: ActorCritic, statistics: Any, normalizer: Normalizer | None = None) -> ActorCritic:
    """Return the model as one of observations as the environment shows them: scaled by `statistics`, which stay as they are.

    Params trained with a normaliser act well with this model only. `normalizer` is needed for statistics of any other than
    `running`. Raises: StructureError.

    >>> from purestep.core import keys
    >>> from purestep.core.policy import actor_critic_mlp
    >>> model, space = actor_critic_mlp(Box(-1.0, 1.0, (1,)), Box(-1.0, 1.0, (1,)), ()), Box(-1.0, 1.0, (1,))
    >>> scales = running().init(space, 3, torch.device("cpu"))
    >>> seen = replace(scales, observation=normalize.of_batch(torch.tensor([[1.0], [5.0]])))
    >>> params, observation = model.init(keys.key(0)), torch.tensor([3.0])
    >>> float(with_normalizer(model, seen).apply(params, observation, ())[1])
    0.0
    """
    observe = _own("with_normalizer", statistics) if normalizer is None else partial(normalizer.observe, statistics)

    def apply(params: Any, observation: Any, carry: Any) -> tuple[Distribution, torch.Tensor, Any]:
        return model.apply(params, observe(observation), carry)

    return attrs.evolve(model, apply=apply)

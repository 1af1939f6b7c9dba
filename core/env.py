"""Environments as values: pure reset and step, and combinators Env -> Env."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs
import torch
from attrs import frozen
from torch import Tensor

from .errors import at_least, choose
from .keys import Key, split
from .record import record, replace, select, tensor
from .spaces import Space, clip_to_space
from .steps import TimeStep, ended, restarted
from .tree import to_device

P = TypeVar("P")
S = TypeVar("S")
Noise = Any
Action = Any  # a tensor, or a dict or tuple of them
Step = Callable[[P, S, Action, Any], tuple[S, TimeStep]]


@frozen
class Hoisted(Generic[P, S]):
    """A step in two halves, bit-identical to the whole: step(p, s, a, k) = hoisted.step(p, s, a, hoisted.draw(p, k)).

    `draw` does not depend on the state, so a rollout computes it for all its steps at once, outside the loop.
    """

    draw: Callable[[P, Key], Noise]
    step: Step[P, S]


@frozen
class Env(Generic[P, S]):
    """An environment: `reset` and `step` are pure functions of `params`, the state, the action and the key."""

    params: P
    reset: Callable[[P, Key], tuple[S, TimeStep]]
    step: Step[P, S]
    observation_space: Space
    action_space: Space
    hoisted: Hoisted[P, S] | None = None
    agents: int | None = (
        None  # A: observations and actions [A, ...], rewards [A] or [] for all; the spaces are of one agent
    )
    clips: bool = False  # whether its step defines what an action outside a Box does, e.g. clips it by itself


def halves(env: Env[P, S]) -> Hoisted[P, S]:
    """Return the env's own two halves, or the trivial ones, in which the noise is the key.

    >>> from purestep.core.envs import cartpole
    >>> env = auto_reset(cartpole(), "select")
    >>> halves(env).step is env.step
    True
    """
    return env.hoisted or Hoisted(draw=lambda params, key: key, step=env.step)


def action_limiter(env: Env[Any, Any]) -> Callable[[Action], Action]:
    """Return the function that limits a policy's action [*, ...] to the env's action space; an env that `clips` needs none.

    Every function here that steps an env with a policy's actions applies it, so that none outside the space reaches an env.
    It raises: ShapeError for an action of another shape.

    >>> from purestep.core.envs import make
    >>> limited = action_limiter(attrs.evolve(make("pendulum"), clips=False))
    >>> limited(torch.tensor([[-3.0], [0.5]]))
    tensor([[-2.0000],
            [ 0.5000]])
    """
    clips, space = env.clips, env.action_space
    return lambda action: action if clips else clip_to_space(space, action)


def map_step(env: Env[P, Any], reset: Any, wrap: Callable[[Step[P, Any]], Step[P, Any]]) -> Env[P, Any]:
    """Return the env with another `reset`, and with `wrap` applied to its step and its hoisted step.

    >>> from purestep.core.envs import cartpole
    >>> plain = cartpole()
    >>> map_step(plain, plain.reset, lambda step: step) == plain
    True
    """
    hoisted = env.hoisted and Hoisted(draw=env.hoisted.draw, step=wrap(env.hoisted.step))
    return attrs.evolve(env, reset=reset, step=wrap(env.step), hoisted=hoisted)


def reset_key(key: Key) -> Key:
    """Return the key with which `auto_reset` resets if the step with `key` ends the episode.

    >>> one = torch.tensor([1, 0])
    >>> torch.equal(reset_key(one), split(one)[1])
    True
    """
    return split(key)[1]


def auto_reset(env: Env[P, S], mode: str = "pooled") -> Env[P, S]:
    """Return the env that starts a new episode in the step that ends one.

    The state and `observation` are then those of reset(params, reset_key(key)); reward, flags and next_observation still
    belong to the old episode. `mode` selects where the reset is computed, with the same result: "select" in the step itself,
    "pooled" for all steps of a rollout at once. Raises: ChoiceError.

    >>> from purestep.core.envs import cartpole
    >>> env, key = auto_reset(time_limit(cartpole(), 1)), torch.tensor([1, 0])
    >>> state, _ = env.reset(env.params, key)
    >>> after, told = env.step(env.params, state, torch.tensor(1), key)
    >>> told.truncated, after.elapsed  # one episode is over, the next has begun
    (tensor(True), tensor(0))
    """

    def join(state: S, old: TimeStep, fresh: tuple[S, Any]) -> tuple[S, TimeStep]:
        over = ended(old.terminated, old.truncated)
        return select(over, fresh[0], state), restarted(old, select(over, fresh[1], old.observation))

    def begin(params: P, key: Key) -> tuple[S, Any]:
        state, timestep = env.reset(params, key)
        return state, timestep.observation

    def step(params: P, state: S, action: Action, key: Key) -> tuple[S, TimeStep]:
        step_key, fresh_key = split(key)
        return join(*env.step(params, state, action, step_key), begin(params, fresh_key))

    inner = halves(env)

    def draw(params: P, key: Key) -> Noise:
        step_key, fresh_key = split(key)
        return inner.draw(params, step_key), begin(params, fresh_key)

    def step_drawn(params: P, state: S, action: Action, noise: Noise) -> tuple[S, TimeStep]:
        return join(*inner.step(params, state, action, noise[0]), noise[1])

    hoisted = choose("auto_reset: mode", mode, {"pooled": Hoisted(draw=draw, step=step_drawn), "select": None})
    return attrs.evolve(env, step=step, hoisted=hoisted)


def batched(env: Env[P, S], n: int, *, own_params: bool = False) -> Env[P, S]:
    """Return n copies of the env as one: every leaf of state, action and timestep gets a leading axis [n].

    Env i of a call with `key` gets split(key, n)[i]. `own_params`: params have a leading axis [n] too, one entry per env.
    The params follow the key to its device.

    >>> from purestep.core.envs import cartpole
    >>> env = batched(cartpole(), 3)
    >>> env.reset(env.params, torch.tensor([1, 0]))[1].observation.shape
    torch.Size([3, 4])
    """
    at_least("batched: n", n, 1)
    axis = 0 if own_params else None

    def reset(params: P, key: Key) -> tuple[S, TimeStep]:
        return torch.vmap(env.reset, in_dims=(axis, 0))(to_device(params, key.device), split(key, n))

    def step(params: P, state: S, action: Action, key: Key) -> tuple[S, TimeStep]:
        near = to_device(params, key.device)
        return torch.vmap(env.step, in_dims=(axis, 0, 0, 0))(near, state, action, split(key, n))

    def batch(inner: Hoisted[P, S]) -> Hoisted[P, S]:
        return Hoisted(
            draw=lambda params, key: torch.vmap(inner.draw, in_dims=(axis, 0))(
                to_device(params, key.device), split(key, n)
            ),
            step=torch.vmap(inner.step, in_dims=(axis, 0, 0, 0)),
        )

    return attrs.evolve(env, reset=reset, step=step, hoisted=env.hoisted and batch(env.hoisted))


@record
class TimeLimitState:
    """An episode's state and its elapsed steps."""

    inner: Any  # the env's own state
    elapsed: Tensor = tensor("*", "int")  # steps since the reset


def time_limit(env: Env[P, S], steps: int) -> Env[P, TimeLimitState]:
    """Return the env that truncates an episode at step number `steps`, never earlier; termination is unchanged.

    >>> from purestep.core.envs import cartpole
    >>> env, key = time_limit(cartpole(), 1), torch.tensor([1, 0])
    >>> state, _ = env.reset(env.params, key)
    >>> _, told = env.step(env.params, state, torch.tensor(1), key)
    >>> told.terminated, told.truncated
    (tensor(False), tensor(True))
    """
    at_least("time_limit: steps", steps, 1)

    def reset(params: P, key: Key) -> tuple[TimeLimitState, TimeStep]:
        state, timestep = env.reset(params, key)
        return TimeLimitState(inner=state, elapsed=torch.zeros_like(timestep.terminated, dtype=torch.int64)), timestep

    def wrap(inner_step: Step[P, S]) -> Step[P, TimeLimitState]:
        def step(params: P, state: TimeLimitState, action: Action, noise: Noise) -> tuple[TimeLimitState, TimeStep]:
            inner, timestep = inner_step(params, state.inner, action, noise)
            elapsed = state.elapsed + 1
            late = replace(timestep, truncated=timestep.truncated | (elapsed >= steps))
            return TimeLimitState(inner=inner, elapsed=elapsed), late

        return step

    return map_step(env, reset, wrap)


@record
class EpisodeStatistics:
    """Running totals of the current episode, and sums over the episodes finished since the last clear."""

    inner: Any  # the env's own state
    episode_return: Tensor = tensor("*", "float")  # of the current episode, so far
    episode_length: Tensor = tensor("*", "int")
    finished: Tensor = tensor("*", "int")  # episodes ended
    return_sum: Tensor = tensor("*", "float")  # over the finished episodes
    length_sum: Tensor = tensor("*", "int")


def episode_statistics(env: Env[P, S]) -> Env[P, EpisodeStatistics]:
    """Return the env that tracks returns and lengths; wrap it around `auto_reset`, so that resets do not clear them.

    >>> from purestep.core.envs import cartpole
    >>> env, key = episode_statistics(auto_reset(time_limit(cartpole(), 1))), torch.tensor([1, 0])
    >>> state, _ = env.reset(env.params, key)
    >>> state, _ = env.step(env.params, state, torch.tensor(1), key)
    >>> state.finished, state.return_sum, state.episode_length
    (tensor(1), tensor(1.), tensor(0))
    """

    def reset(params: P, key: Key) -> tuple[EpisodeStatistics, TimeStep]:
        state, timestep = env.reset(params, key)
        total, count = torch.zeros_like(timestep.reward), torch.zeros_like(timestep.terminated, dtype=torch.int64)
        statistics = EpisodeStatistics(
            inner=state,
            episode_return=total,
            episode_length=count,
            finished=count.clone(),
            return_sum=total.clone(),
            length_sum=count.clone(),
        )
        return statistics, timestep

    def wrap(inner_step: Step[P, S]) -> Step[P, EpisodeStatistics]:
        def step(
            params: P, state: EpisodeStatistics, action: Action, noise: Noise
        ) -> tuple[EpisodeStatistics, TimeStep]:
            inner, timestep = inner_step(params, state.inner, action, noise)
            return _count(state, inner, timestep), timestep

        return step

    return map_step(env, reset, wrap)


def _count(state: EpisodeStatistics, inner: Any, timestep: TimeStep) -> EpisodeStatistics:
    over = ended(timestep.terminated, timestep.truncated)
    total, length = state.episode_return + timestep.reward, state.episode_length + 1
    return EpisodeStatistics(
        inner=inner,
        episode_return=torch.where(over, 0.0, total),
        episode_length=torch.where(over, 0, length),
        finished=state.finished + over.to(torch.int64),
        return_sum=state.return_sum + torch.where(over, total, 0.0),
        length_sum=state.length_sum + torch.where(over, length, 0),
    )


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

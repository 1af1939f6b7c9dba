"""Laws of the way from a policy's action to the env's step. The subject plays: (env, model, length) -> Rollout.

The env writes into its reward 1 where an action lay outside its Box, and the action it got into its observation.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from attrs import evolve, frozen
from hypothesis import strategies as st
from torch import Tensor

from purestep.core import keys
from purestep.core.env import Env, batched
from purestep.core.networks import mlp
from purestep.core.policy import ActorCritic, normal_head, scalar, separate
from purestep.core.record import replace
from purestep.core.spaces import Box, clip_to_space, contains
from purestep.core.steps import TimeStep
from purestep.properties.framework.compare import ROUNDING, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import seeds
from purestep.runtime.rollout import reset_rollout

Play = Callable[..., Any]  # (env, model, length) -> Rollout

# --- mutants ---


def as_it_came(play: Play) -> Play:
    """Send the env the policy's action as it is."""
    return lambda env, model, length: play(evolve(env, clips=True), model, length)


def to_the_lower(play: Play) -> Play:
    """Clip from below alone."""

    def half(env: Env[Any, Any], model: ActorCritic, length: int) -> Any:
        space: Any = env.action_space
        return play(evolve(env, action_space=evolve(space, high=math.inf)), model, length)

    return half


def keeps_the_clipped(play: Play) -> Play:
    """Write into the trajectory the action that the env got, beside the log-prob of the policy's."""

    def made(env: Env[Any, Any], model: ActorCritic, length: int) -> Any:
        inner = play(env, model, length)

        def run(*arguments: Any, **named: Any) -> Any:
            worlds, told = inner(*arguments, **named)
            return worlds, replace(told, action=clip_to_space(env.action_space, told.action))

        return run

    return made


MUTANTS: dict[str, Callable[[Play], Play]] = {
    "sends what the policy samples": as_it_came,
    "keeps the clipped action": keeps_the_clipped,
}

# --- laws ---

SOURCE = "core.env.action_limiter: what an env gets, and what a learner is told"


@frozen
class Case:
    """A Box of some entries, each bounded on no, one or both sides, and a seed."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    seed: int


def _bounds() -> Any:
    ends = st.one_of(st.just(math.inf), st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0]))
    start = st.sampled_from([-2.0, -0.3, 0.0, 0.7])
    return st.tuples(st.one_of(st.just(-math.inf), start), ends).map(
        lambda pair: (pair[0], pair[1] if pair[0] == -math.inf else pair[0] + pair[1])
    )


_CASES = st.builds(
    lambda pairs, seed: Case(tuple(low for low, _ in pairs), tuple(high for _, high in pairs), seed),
    st.lists(_bounds(), min_size=1, max_size=3),
    seeds(),
)


def watching(space: Box) -> Env[Any, Tensor]:
    """Return an env whose reward is 1 where the action was not in its space, and whose next observation is the action."""

    def told(action: Tensor, reward: Tensor) -> TimeStep:
        no = torch.zeros_like(reward, dtype=torch.bool)
        return TimeStep(
            observation=action, reward=reward, terminated=no, truncated=no.clone(), next_observation=action.clone()
        )

    def reset(params: Any, key: keys.Key) -> tuple[Tensor, TimeStep]:
        nothing = torch.zeros(space.shape, device=key.device)
        return nothing, told(nothing.clone(), torch.zeros((), device=key.device))

    def step(params: Any, state: Tensor, action: Tensor, key: Any) -> tuple[Tensor, TimeStep]:
        return state.clone(), told(action.clone(), (~contains(space, action)).to(torch.float32))

    seen = Box(-math.inf, math.inf, space.shape)
    return Env(params=(), reset=reset, step=step, observation_space=seen, action_space=space)


def wide_model(size: int) -> ActorCritic:
    """A normal policy whose samples lie far on both sides of most bounds."""
    return separate(normal_head(mlp([size, size]), size, log_std=1.0), scalar(mlp([size, 1])))


_law = law_constructor(lambda: _CASES, SOURCE)


def action_bounds_laws() -> Suite:
    """The laws of actions on their way into an env."""
    return Suite("action_bounds_laws", (_inside(), _own()))


def _played(subject: Play, case: Case) -> tuple[Any, Any, Any, Box]:
    size = len(case.low)
    space = Box(case.low, case.high, (size,))
    env, model = batched(watching(space), 4), wide_model(size)
    params = model.init(keys.key(case.seed))
    _, trajectory = subject(env, model, 5)(params, reset_rollout(env, keys.key(1)), keys.key(case.seed))
    return model, params, trajectory, space


def _inside() -> Law:
    def check(subject: Play, drawn: Case, seen: Seen) -> None:
        _, _, told, space = _played(subject, drawn)
        beyond = ~contains(space, told.action)
        seen("an action beyond a bound", beyond.any())
        pairs = zip(drawn.low, drawn.high, strict=True)
        seen("a Box open on one side", any(math.isinf(low) != math.isinf(high) for low, high in pairs))
        require(not told.reward.any(), f"{int(told.reward.sum())} of {told.reward.numel()} actions were outside")

    mutant = ("clips from below alone", to_the_lower)
    claim = "No env sees an action outside its Box, whatever the policy samples."
    return _law("no_action_outside", claim, mutant, check, "an action beyond a bound", "a Box open on one side")


def _own() -> Law:
    def check(subject: Play, drawn: Case, seen: Seen) -> None:
        model, params, told, space = _played(subject, drawn)
        seen("an action beyond a bound", ~contains(space, told.action).all())
        distribution, _, _ = model.apply(params, told.observation.flatten(0, 1), ())
        log_prob = distribution.log_prob(told.action.flatten(0, 1)).reshape(told.reward.shape)
        same("the log-prob of the action that is kept", told.behaviour_log_prob, log_prob, ROUNDING)
        same("the nearest action", told.next_observation, clip_to_space(space, told.action))

    mutant = ("keeps the clipped action", keeps_the_clipped)
    claim = (
        "The learner is told the policy's own action, which fits its log-prob; the env gets the nearest one in its Box."
    )
    return _law("the_learner_keeps_its_action", claim, mutant, check, "an action beyond a bound")

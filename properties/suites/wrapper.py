"""Laws of wrappers of environments: auto-reset (N3) and time limits (N4)."""

from collections.abc import Callable
from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor

from ...core import env as core_env
from ...core import keys
from ...core.keys import Key
from ...core.record import replace, select
from ...core.steps import TimeStep, ended
from ..framework.compare import same
from ..framework.law import Law, Mutant, Seen, Suite, always
from ..strategies.walks import AnyEnv, Visit, Walk, is_over, key_of_step, unbroken, walks

# --- mutants ---
# Common errors in an auto-reset and in a time limit, as functions from the wrapped env to a wrongly wrapped one.


Result = tuple[Any, TimeStep]


def _after(env: AnyEnv, change: Callable[[Any, Any, Tensor, Key, Result], Result]) -> AnyEnv:
    """The env with `change(params, state, action, key, result)` applied to the result of each step."""

    def step(params: Any, state: Any, action: Tensor, key: Key) -> Result:
        return change(params, state, action, key, env.step(params, state, action, key))

    return attrs.evolve(env, step=step, hoisted=None)


def _over(timestep: TimeStep) -> Tensor:
    return ended(timestep.terminated, timestep.truncated)


def leaks_reset(env: AnyEnv) -> AnyEnv:
    """Return the new episode's first observation as the next observation of the last step."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        return after, replace(timestep, next_observation=timestep.observation)

    return _after(env, change)


def resets_early(env: AnyEnv) -> AnyEnv:
    """Compute one step ahead and reset before the last step."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        _, ahead = env.step(params, result[0], action, key)
        fresh, first = env.reset(params, core_env.reset_key(key))
        early = _over(ahead)
        observation = select(early, first.observation, result[1].observation)
        return select(early, fresh, result[0]), replace(result[1], observation=observation)

    return _after(env, change)


def ignores_truncation(env: AnyEnv) -> AnyEnv:
    """Continue a truncated episode without a reset."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        lasting = timestep.truncated & ~timestep.terminated
        observation = select(lasting, timestep.next_observation, timestep.observation)
        return select(lasting, state, after), replace(timestep, observation=observation)

    return _after(env, change)


def unpaid_ending(env: AnyEnv) -> AnyEnv:
    """Return the reset's reward, 0, with the step that ends an episode."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        return after, replace(timestep, reward=torch.where(_over(timestep), 0.0, timestep.reward))

    return _after(env, change)


def merges_endings(env: AnyEnv) -> AnyEnv:
    """Set both flags at any ending, like a single `done`."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        return after, replace(timestep, terminated=_over(timestep), truncated=_over(timestep))

    return _after(env, change)


def same_start(env: AnyEnv) -> AnyEnv:
    """Reset with the same key every time."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        after, timestep = result
        fresh, first = env.reset(params, keys.key(0))
        over = _over(timestep)
        return select(over, fresh, after), replace(
            timestep, observation=select(over, first.observation, timestep.observation)
        )

    return _after(env, change)


AUTO_RESET: dict[str, Callable[[AnyEnv], AnyEnv]] = {
    "pays nothing for the step that ends an episode": unpaid_ending,
    "sets both flags at any ending": merges_endings,
    "resets with the same key each time": same_start,
}


def late_limit(env: AnyEnv) -> AnyEnv:
    """Truncate one step late: > instead of >=."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        _, before = env.step(params, replace(result[0], elapsed=state.elapsed - 1), action, key)
        return result[0], replace(result[1], truncated=before.truncated)

    return _after(env, change)


def limit_terminates(env: AnyEnv) -> AnyEnv:
    """Set `terminated` at the limit as well."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        return result[0], replace(result[1], terminated=_over(result[1]))

    return _after(env, change)


def unpaid_limit(env: AnyEnv) -> AnyEnv:
    """Set the reward of a truncated step to 0."""

    def change(params: Any, state: Any, action: Tensor, key: Key, result: Result) -> Result:
        return result[0], replace(result[1], reward=torch.where(result[1].truncated, 0.0, result[1].reward))

    return _after(env, change)


def ageless(env: AnyEnv) -> AnyEnv:
    """Begin an episode at age 1 instead of 0."""

    def reset(params: Any, key: Key) -> Result:
        state, timestep = env.reset(params, key)
        return replace(state, elapsed=state.elapsed + 1), timestep

    return attrs.evolve(env, reset=reset, hoisted=None)


TIME_LIMIT: dict[str, Callable[[AnyEnv], AnyEnv]] = {"begins an episode at age 1": ageless}


# --- laws ---


CONTRACT = "core.env: what reset and step promise"
ENDING, INSIDE = "an ending", "a step inside an episode"


def step_key(key: Key) -> Key:
    """Return the key with which `core.env.auto_reset` steps the inner env when it is called with `key`."""
    return keys.split(key)[0]


@frozen
class _Inside:
    """The inner env, and functions that derive its keys from the wrapper's."""

    env: AnyEnv
    step_key: Callable[[Key], Key]
    reset_key: Callable[[Key], Key]

    def step(self, visit: Visit) -> tuple[Any, TimeStep]:
        """Return the result of the same step without the wrapper."""
        return self.env.step(self.env.params, visit.state, visit.action, self.step_key(visit.key))

    def reset(self, visit: Visit) -> tuple[Any, TimeStep]:
        """Return the result of the reset that a wrapper must do if this step ends an episode."""
        return self.env.reset(self.env.params, self.reset_key(visit.key))


Judge = Callable[[_Inside, Visit, tuple[Any, TimeStep]], None]


def auto_reset_laws(
    inner: AnyEnv,
    *,
    longest: int = 12,
    step_key: Callable[[Key], Key] = step_key,
    reset_key: Callable[[Key], Key] = core_env.reset_key,
) -> Suite:
    """The laws of an env that begins its next episode by itself; `inner` is the env without the auto-reset.

    The two functions derive the keys of the inner step and of the reset; the defaults are those of `core.env.auto_reset`.
    The walks must reach an ending: set `longest` to the length of a short episode, or put a time limit into `inner`.
    """
    several, inside = walks(longest, least=1), _Inside(inner, step_key, reset_key)

    def law(name: str, claim: str, mutant: Mutant, event: str, judge: Judge) -> Law:
        def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
            for visit in unbroken(env, drawn):
                wanted = inside.step(visit)
                came = ENDING if is_over(wanted[1]) else INSIDE
                seen(came)
                if came == event:
                    judge(inside, visit, wanted)

        return Law(
            name=name, claim=claim, source=CONTRACT, inputs=always(several), check=check, mutant=mutant, needs=(event,)
        )

    return Suite("auto_reset_laws", tuple(law(*row) for row in AUTO_RESET_LAWS))


def _goes_on(inside: _Inside, visit: Visit, wanted: tuple[Any, TimeStep]) -> None:
    same("inside an episode, (state, timestep)", (visit.after, visit.timestep), wanted)


def _starts_afresh(inside: _Inside, visit: Visit, wanted: tuple[Any, TimeStep]) -> None:
    state, timestep = inside.reset(visit)
    same("after an ending, the state", visit.after, state)
    same("after an ending, the observation", visit.timestep.observation, timestep.observation)


def _keeps_old(inside: _Inside, visit: Visit, wanted: tuple[Any, TimeStep]) -> None:
    for name in ("reward", "terminated", "truncated", "next_observation"):
        same(f"at an ending, {name}", getattr(visit.timestep, name), getattr(wanted[1], name))


AUTO_RESET_LAWS: tuple[tuple[str, str, Mutant, str, Judge], ...] = (
    (
        "goes_on",
        "While an episode lasts, every step is the inner env's.",
        Mutant("takes a late step for the last: resets one step early", resets_early),
        INSIDE,
        _goes_on,
    ),
    (
        "starts_afresh",
        "Where an episode ends, state and observation are those of a reset with the derived key.",
        Mutant("resets after a termination, not after a truncation", ignores_truncation),
        ENDING,
        _starts_afresh,
    ),
    (
        "old_episode_stays",
        "Reward, flags and next_observation of an ending step belong to the old episode.",
        Mutant("next_observation is the reset's: the last observation is lost", leaks_reset),
        ENDING,
        _keeps_old,
    ),
)


@frozen
class _Pair:
    """One step of the limited env and the same step of the inner env, `age` steps after the reset."""

    age: int
    limited: TimeStep
    plain: TimeStep


def time_limit_laws(inner: AnyEnv, steps: int) -> Suite:
    """The laws of an env that truncates at its step number `steps`; `inner` is the env without the limit.

    Both are called with the same keys.
    """
    several = walks(max(5, steps + 2), least=1)

    def law(name: str, claim: str, mutant: Mutant, judge: Callable[[int, _Pair], None]) -> Law:
        def check(env: AnyEnv, drawn: Walk, seen: Seen) -> None:
            for pair in _side_by_side(env, inner, drawn):
                seen("the limit", pair.age == steps)
                seen("a step before the limit", pair.age < steps)
                judge(steps, pair)

        needs = ("the limit",) if steps == 1 else ("the limit", "a step before the limit")
        return Law(
            name=name, claim=claim, source=CONTRACT, inputs=always(several), check=check, mutant=mutant, needs=needs
        )

    return Suite("time_limit_laws", tuple(law(*row) for row in TIME_LIMIT_LAWS))


def _side_by_side(env: AnyEnv, inner: AnyEnv, walk: Walk) -> list[_Pair]:
    """Return the steps of both envs up to the limit or the end of the episode, then those of further episodes."""
    pairs: list[_Pair] = []
    state: Any = None
    plain: Any = None
    age = 0
    for t, visit in enumerate(unbroken(inner, walk)):
        if age == 0:
            key = key_of_step(walk, t - 1)
            (state, _), (plain, _) = env.reset(env.params, key), inner.reset(inner.params, key)
        state, limited = env.step(env.params, state, visit.action, visit.key)
        plain, timestep = inner.step(inner.params, plain, visit.action, visit.key)
        age += 1
        pairs.append(_Pair(age, limited, timestep))
        if is_over(limited) or is_over(timestep):
            age = 0
    return pairs


def _on_time(steps: int, pair: _Pair) -> None:
    wanted = pair.plain.truncated | torch.full_like(pair.plain.truncated, pair.age >= steps)
    same(f"truncated at step {pair.age} of {steps}", pair.limited.truncated, wanted)


def _never_terminates(steps: int, pair: _Pair) -> None:
    same(f"terminated at step {pair.age} of {steps}", pair.limited.terminated, pair.plain.terminated)


def _world_unchanged(steps: int, pair: _Pair) -> None:
    for name in ("observation", "reward", "next_observation"):
        where = f"{name} at step {pair.age} of {steps}"
        same(where, getattr(pair.limited, name), getattr(pair.plain, name))


TIME_LIMIT_LAWS: tuple[tuple[str, str, Mutant, Callable[[int, _Pair], None]], ...] = (
    (
        "truncates_on_time",
        "The episode is truncated at its step number n, and by the limit never elsewhere.",
        Mutant("counts one step too many before it truncates", late_limit),
        _on_time,
    ),
    (
        "never_terminates",
        "The limit leaves `terminated` as the world set it.",
        Mutant("calls the limit a termination as well", limit_terminates),
        _never_terminates,
    ),
    (
        "world_unchanged",
        "Observations and rewards are those of the world without a limit.",
        Mutant("pays nothing for the step at the limit", unpaid_limit),
        _world_unchanged,
    ),
)

"""How people get worlds of text wrong: edits of a TextEnv."""

import random
from collections.abc import Callable
from typing import Any

from attrs import evolve

from ...core.keys import Key
from ...core.language.parsers import Call
from ...core.language.world import Outcome, TextEnv

World = TextEnv[Any, Any]


def asks_by_chance(env: World) -> World:
    """Draws the task from Python's own random numbers."""
    drawn = random.Random(0)

    def reset(params: Any, key: Key) -> tuple[Any, str]:
        state, question = env.reset(params, key)
        return state, f"{question} ({drawn.random()})"

    return evolve(env, reset=reset)


def knows_calls_alone(env: World) -> World:
    """Fails for an action that is no call of a tool."""

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        if isinstance(action, Call):
            return env.step(params, state, action, key)
        raise KeyError(action)

    return evolve(env, step=step)


def remembers_beside_the_state(env: World) -> World:
    """Pays less for what was done before, in whatever episode."""
    known: list[Any] = []

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        after, outcome = env.step(params, state, action, key)
        known.append(action)
        return after, evolve(outcome, reward=outcome.reward - known[:-1].count(action))

    return evolve(env, step=step)


class Notes(list[Any]):
    """A state that no checkpoint knows."""


def keeps_notes(env: World) -> World:
    """Keeps its state in a list of its own kind."""

    def reset(params: Any, key: Key) -> tuple[Any, str]:
        state, question = env.reset(params, key)
        return Notes([state]), question

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        after, outcome = env.step(params, state[0], action, key)
        return Notes([after]), outcome

    return evolve(env, reset=reset, step=step, tools={})


def pays_answers_with_nan(env: World) -> World:
    """Pays NaN for what is no call of a tool."""

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        after, outcome = env.step(params, state, action, key)
        return after, evolve(outcome, reward=outcome.reward if isinstance(action, Call) else float("nan"))

    return evolve(env, step=step)


def tools_get_tired(env: World) -> World:
    """Lets an auxiliary tool answer once."""
    used: list[tuple[str, str]] = []

    def tired(name: str) -> Any:
        def tool(params: Any, state: Any, argument: str) -> str:
            used.append((name, argument))
            return env.tools[name](params, state, argument) if used.count((name, argument)) == 1 else "again?"

        return tool

    return evolve(env, tools={name: tired(name) for name in env.tools})


MUTANTS: dict[str, Callable[[World], World]] = {"pays NaN for what is no call of a tool": pays_answers_with_nan}

"""Laws of text environments, for any `TextEnv`: pure functions of parameters, state, action and key, for any parsed action.

from purestep.properties import check, text_env_laws
test_my_world = check(text_env_laws(my_parser(), "PEEK[x]", classes=(MyState,)), my_world())
"""

import json
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ....core import keys
from ....core.keys import Key
from ....core.language.parsers import Call, Parser
from ....core.language.text_env import Outcome, TextEnv
from ....runtime.machine.json_codec import decode, encode
from ...framework.compare import require, same
from ...framework.law import Law, Mutant, Seen, Suite, law_constructor
from ...strategies.language import texts
from ...strategies.values import seeds

# --- mutants ---
# Common errors in text environments: edits of a TextEnv.


World = TextEnv[Any, Any]


def asks_by_chance(env: World) -> World:
    """Draw the task from Python's random generator."""
    drawn = random.Random(0)

    def reset(params: Any, key: Key) -> tuple[Any, str]:
        state, question = env.reset(params, key)
        return state, f"{question} ({drawn.random()})"

    return evolve(env, reset=reset)


def knows_calls_alone(env: World) -> World:
    """Raise for an action that is not a tool call."""

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        if isinstance(action, Call):
            return env.step(params, state, action, key)
        raise KeyError(action)

    return evolve(env, step=step)


def remembers_beside_the_state(env: World) -> World:
    """Lower the reward of an action for each earlier use, in this or any other episode."""
    known: list[Any] = []

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        after, outcome = env.step(params, state, action, key)
        known.append(action)
        return after, evolve(outcome, reward=outcome.reward - known[:-1].count(action))

    return evolve(env, step=step)


class Notes(list[Any]):
    """A state of a class that a checkpoint cannot hold."""


def keeps_notes(env: World) -> World:
    """Keep the state in a `Notes` list."""

    def reset(params: Any, key: Key) -> tuple[Any, str]:
        state, question = env.reset(params, key)
        return Notes([state]), question

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        after, outcome = env.step(params, state[0], action, key)
        return Notes([after]), outcome

    return evolve(env, reset=reset, step=step, tools={})


def pays_answers_with_nan(env: World) -> World:
    """Return a reward of NaN for an action that is not a tool call."""

    def step(params: Any, state: Any, action: Any, key: Key) -> tuple[Any, Outcome]:
        after, outcome = env.step(params, state, action, key)
        return after, evolve(outcome, reward=outcome.reward if isinstance(action, Call) else float("nan"))

    return evolve(env, step=step)


def tools_get_tired(env: World) -> World:
    """Answer the same call of an auxiliary tool only once."""
    used: list[tuple[str, str]] = []

    def tired(name: str) -> Any:
        def tool(params: Any, state: Any, argument: str) -> str:
            used.append((name, argument))
            return env.tools[name](params, state, argument) if used.count((name, argument)) == 1 else "again?"

        return tool

    return evolve(env, tools={name: tired(name) for name in env.tools})


MUTANTS: dict[str, Callable[[World], World]] = {"pays NaN for what is no call of a tool": pays_answers_with_nan}


# --- laws ---


Script = tuple[int, list[str]]
SOURCE = "properties.md N1, N2, N5, for texts; core.language.text_env"


def text_env_laws(parser: Parser, *moves: str, classes: tuple[type, ...] = (), tools: Iterable[str] = ()) -> Suite:
    """The laws of a TextEnv whose actions `parser` reads.

    `moves` are completions that it can parse; other texts are tried as well. A text that the parser cannot parse is no action:
    the protocol never passes it to the environment, and neither do these laws. `classes` are the frozen classes of its states.
    `tools` are arguments for its auxiliary tools; without any, the law about them is left out.
    """
    scripts = st.tuples(seeds(), st.lists(texts(*moves, *moves, *moves), min_size=1, max_size=8))

    def acted(text: str) -> Any:
        parsed = parser(text)
        return () if parsed.failed else parsed.action

    laws = (_key(), _total(acted, scripts), _loop(acted, scripts), _saved(acted, scripts, classes))
    arguments = tuple(tools)
    return Suite("text_env_laws", (*laws, _tools(acted, scripts, arguments)) if arguments else laws)


_law = law_constructor(st.nothing, SOURCE)


def play_scripted(env: World, acted: Callable[[str], Any], script: Script) -> list[tuple[Any, Outcome]]:
    """The states and outcomes of an episode, up to its end; texts that cannot be parsed are skipped."""
    seed, said = script
    state, question = env.reset(env.params, keys.key(seed))
    states = [(state, Outcome(question))]
    for number, text in enumerate(understood(acted, said)):
        state, outcome = env.step(env.params, state, acted(text), keys.key(number))
        states.append((state, outcome))
        if outcome.terminated or outcome.truncated:
            break
    return states


def understood(acted: Callable[[str], Any], said: Iterable[str]) -> list[str]:
    """The texts that parse to an action."""
    return [text for text in said if acted(text) != ()]


def _key() -> Law:
    def check(env: World, several: list[int], seen: Seen) -> None:
        first = [env.reset(env.params, keys.key(seed)) for seed in several]
        again = [env.reset(env.params, keys.key(seed)) for seed in reversed(several)][::-1]
        seen("a world that was drawn twice")
        for one, other in zip(first, again, strict=True):
            same("the world of a key", other, one)
            require(isinstance(one[1], str), "the first observation is a text")

    mutant = Mutant("draws its task from Python's own random numbers", asks_by_chance)
    claim = "A reset depends on its key alone."
    inputs = st.lists(seeds(), min_size=2, max_size=6)
    return _law("key", claim, mutant, check, "a world that was drawn twice", inputs=inputs)


def _total(acted: Callable[[str], Any], scripts: SearchStrategy[Script]) -> Law:
    def check(env: World, script: Script, seen: Seen) -> None:
        seen("a text that means nothing", len(understood(acted, script[1])) < len(script[1]))
        for number, (_, outcome) in enumerate(play_scripted(env, acted, script)):
            seen("an action", number > 0)
            require(isinstance(outcome.observation, str), "an observation is a text")
            require(math.isfinite(outcome.reward), f"a reward is finite, got {outcome.reward}")
            flags = (outcome.terminated, outcome.truncated)
            require(all(isinstance(flag, bool) for flag in flags), "terminated and truncated are flags")

    mutant = Mutant("fails for an action that is no call of a tool", knows_calls_alone)
    claim = "Whatever a parser makes of a text has an outcome: a text, a finite reward, two flags."
    return _law("total", claim, mutant, check, "a text that means nothing", "an action", inputs=scripts)


def _loop(acted: Callable[[str], Any], scripts: SearchStrategy[Script]) -> Law:
    def check(env: World, script: Script, seen: Seen) -> None:
        first = play_scripted(env, acted, script)
        seen("a step", len(first) > 1)
        same("the episode, played again", play_scripted(env, acted, script), first)

    mutant = Mutant("remembers beside its state", remembers_beside_the_state)
    claim = "The same actions under the same keys are the same episode."
    return _law("closed_loop", claim, mutant, check, "a step", inputs=scripts)


def _saved(acted: Callable[[str], Any], scripts: SearchStrategy[Script], classes: tuple[type, ...]) -> Law:
    def check(env: World, script: Script, seen: Seen) -> None:
        states = play_scripted(env, acted, script)
        for number, (state, _) in enumerate(states[:-1]):
            seen("a state that goes on")
            loaded = decode(json.loads(json.dumps(encode(state))), classes)
            same("a state as text", loaded, state)
            action = acted(understood(acted, script[1])[number])
            after = env.step(env.params, loaded, action, keys.key(number))
            same("the step behind a state that was loaded", after, states[number + 1])

    mutant = Mutant("keeps its state in a list of its own kind", keeps_notes)
    claim = "States are values of numbers, strings, tuples and frozen classes: saved and loaded they go on the same."
    return _law("saved", claim, mutant, check, "a state that goes on", inputs=scripts)


def _tools(acted: Callable[[str], Any], scripts: SearchStrategy[Script], arguments: tuple[str, ...]) -> Law:
    def check(env: World, script: Script, seen: Seen) -> None:
        for state, _ in play_scripted(env, acted, script):
            for name, argument in ((name, argument) for name in env.tools for argument in arguments):
                said = env.tools[name](env.params, state, argument)
                require(isinstance(said, str), f"what {name} says is a text")
                same(f"what {name} says, asked again", env.tools[name](env.params, state, argument), said)
                seen("a tool")

    mutant = Mutant("lets an auxiliary tool answer once", tools_get_tired)
    claim = "An auxiliary tool only reads: asked again in the same state it says the same."
    return _law("tools_only_read", claim, mutant, check, "a tool", inputs=scripts)

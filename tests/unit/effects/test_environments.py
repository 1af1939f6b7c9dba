"""Environments of other libraries as text environments: sessions that keep state, repeated where they are elsewhere."""

import threading
from typing import Any

import pytest

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.text_env import Outcome
from purestep.runtime.effects.environments.openenv import observation_text, openenv_task, parsed
from purestep.runtime.effects.environments.sessions import session_env
from purestep.runtime.effects.environments.verifiers import verifiers_task


class Tower:
    """A session that adds up what it is given to its seed, ends at 9 or more, and counts itself."""

    open = 0
    most = 0
    steps = 0

    def __init__(self) -> None:
        Tower.open += 1
        Tower.most = max(Tower.most, Tower.open)
        self.sum = 0

    def begin(self, seed: int) -> Outcome:
        self.sum = seed % 5
        return Outcome(f"at {self.sum}")

    def step(self, action: Any) -> Outcome:
        Tower.steps += 1
        if action == "break":
            raise RuntimeError("out of order")
        self.sum += action
        return Outcome(f"at {self.sum}", float(action), terminated=self.sum >= 9)

    def close(self) -> None:
        Tower.open -= 1


@pytest.fixture(autouse=True)
def fresh() -> None:
    Tower.open = Tower.most = Tower.steps = 0


def tower(most: int) -> Any:
    return session_env(Tower, most=most, seed_of=lambda key: int(keys.randint(key, (), 0, 100)))


@pytest.mark.parametrize("most", [1, 3, 50])
def test_episodes_side_by_side_are_those_played_alone_whatever_the_number_of_sessions(most: int) -> None:
    """Twelve episodes, a step of each in turn, from states that others have left behind."""
    alone, shared = tower(1), tower(most)
    begun = [shared.reset(shared.params, keys.key(seed)) for seed in range(12)]
    states = [state for state, _ in begun]
    traces: list[list[Any]] = [[shown] for _, shown in begun]
    for _ in range(4):
        for place, state in enumerate(states):
            states[place], outcome = shared.step(shared.params, state, 2, keys.key(0))
            traces[place].append(outcome)
    for seed, trace in enumerate(traces):
        state, shown = alone.reset(alone.params, keys.key(seed))
        expected: list[Any] = [shown]
        for _ in range(4):
            state, outcome = alone.step(alone.params, state, 2, keys.key(0))
            expected.append(outcome)
        assert trace == expected
    assert Tower.most <= most + 1
    if most == 50:
        assert Tower.steps == 12 * 4 + 12 * 4  # none is repeated where there are enough
    else:
        assert Tower.steps > 2 * 12 * 4


def test_a_state_can_be_stepped_again_and_otherwise() -> None:
    env = tower(2)
    state, _ = env.reset(env.params, keys.key(0))
    once, again = (env.step(env.params, state, 3, keys.key(0)) for _ in range(2))
    assert once == again
    assert env.step(env.params, state, 4, keys.key(0)) != once
    assert state.actions == ()


def test_a_session_that_raises_is_closed_and_others_go_on() -> None:
    env = tower(1)
    state, _ = env.reset(env.params, keys.key(0))
    with pytest.raises(RuntimeError, match="out of order"):
        env.step(env.params, state, "break", keys.key(0))
    assert Tower.open == 0
    assert env.step(env.params, state, 1, keys.key(0))[1].reward == 1.0
    env.params.close()
    assert Tower.open == 0


def test_an_environment_that_draws_on_its_own_is_told_apart() -> None:
    class Clock(Tower):
        def begin(self, seed: int) -> Outcome:
            return Outcome(f"at {Tower.steps}")

    env = session_env(Clock, most=1, seed_of=lambda key: 0)
    state, _ = env.reset(env.params, keys.key(0))
    env.step(env.params, state, 1, keys.key(0))
    with pytest.raises(RuntimeError, match="shows something else"):
        env.step(env.params, state, 1, keys.key(0))


def test_threads_wait_for_a_session() -> None:
    env = tower(2)
    found: list[Any] = []

    def play(seed: int) -> None:
        state, _ = env.reset(env.params, keys.key(seed))
        outcomes = []
        for _ in range(3):
            state, outcome = env.step(env.params, state, 1, keys.key(0))
            outcomes.append(outcome.reward)
        found.append(outcomes)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [[1.0] * 3] * 8
    assert Tower.most <= 2


@pytest.mark.parametrize(
    ("schema", "text", "action"),
    [
        ({"required": ["say"], "properties": {"say": {"type": "string"}}}, " hello ", {"say": "hello"}),
        ({"required": ["say"], "properties": {"say": {"type": "string"}}}, '{"say": "hi"}', {"say": "hi"}),
        ({"required": ["n"], "properties": {"n": {"type": "integer"}}}, "7", {"n": 7}),
        ({"required": ["n"], "properties": {"n": {"type": "integer"}}}, "seven", ()),
        ({"required": ["x", "y"], "properties": {"x": {}, "y": {}}}, '{"x": 1, "y": [2]}', {"x": 1, "y": [2]}),
        ({"required": ["x", "y"], "properties": {"x": {}, "y": {}}}, '{"x": 1, "z": 2}', ()),
        ({"properties": {"x": {}}}, "{}", {}),
    ],
)
def test_texts_become_actions_by_the_schema(schema: dict[str, Any], text: str, action: Any) -> None:
    found = parsed(schema, text)
    assert found.action == action
    assert found.failed == (action == ())
    assert bool(found.feedback) == found.failed


def test_observations_become_texts() -> None:
    assert observation_text({"board": "x", "done": True, "reward": 1.0, "metadata": {}}) == "x"
    assert observation_text({"a": 1, "done": False}) == '{"a": 1}'


def test_what_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises((ChoiceError, ModuleNotFoundError), match=r"openenv.* (is|wanted)"):
        openenv_task("http://127.0.0.1:9")
    with pytest.raises((ChoiceError, ModuleNotFoundError), match="verifiers"):
        verifiers_task("no_such_taskset")

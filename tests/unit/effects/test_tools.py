"""Tools that raise, hang or die: the model is told, the state is as it was, and nobody waits for ever."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from purestep.core import keys
from purestep.core.errors import ChoiceError
from purestep.core.language.episode import Completion, total_reward
from purestep.core.language.events import Feedback, System, ToolResult, User
from purestep.core.language.parsers import Call, answer, either, tool_call
from purestep.core.language.prompts import PromptRow, prompt_env
from purestep.core.language.protocol import begin_episode, protocol, turn_after
from purestep.core.language.text_env import Outcome, Terminated, TextEnv
from purestep.core.language.zorplex.env import ZorplexEnv, ZorplexState, zorplex, zorplex_parser
from purestep.runtime.effects.tools.calls import (
    DIED,
    RAISED,
    TIMED_OUT,
    Perform,
    Returned,
    ToolError,
    ToolFailure,
    in_processes,
    in_threads,
)
from purestep.runtime.effects.tools.guard import ToolFailed, guarded

KEY = keys.key(0)
PARSER = either(answer(), tool_call(["ADD", "READ"]))


@contextmanager
def threads() -> Iterator[Perform]:
    yield in_threads()


both = pytest.mark.parametrize("performers", [threads, in_processes])


# --- one call ---


@both
def test_a_call_gives_its_value_or_says_how_it_failed(performers: Any) -> None:
    with performers() as perform:
        assert perform(divmod, (7, 2), 5.0) == Returned((3, 1))
        assert perform(int, ("seven\nlines",), 5.0).kind == RAISED
        assert perform(divmod, (7, 0), 5.0) == ToolFailure(
            RAISED, "ZeroDivisionError: integer division or modulo by zero"
        )
        assert perform(exec, ("raise SystemExit(3)",), 5.0) == ToolFailure(RAISED, "SystemExit: 3")
        assert perform(time.sleep, (30,), 0.05) == ToolFailure(TIMED_OUT)
        assert perform(divmod, (9, 2), 5.0) == Returned((4, 1))


def test_a_thread_that_was_given_up_runs_on_and_too_many_of_them_are_refused() -> None:
    perform, release = in_threads(1, given_up=1), threading.Event()
    for _ in range(2):
        assert perform(release.wait, (30,), 0.01) == ToolFailure(TIMED_OUT)
    with pytest.raises(ToolError, match="2 running on, wanted 1; use in_processes"):
        perform(divmod, (7, 2), 5.0)
    release.set()
    for _ in range(1000):
        with suppress(ToolError):
            assert perform(divmod, (7, 2), 5.0) == Returned((3, 1))
            break
        time.sleep(0.001)
    else:
        pytest.fail("calls that have ended still count as running on")


def running(group: int) -> list[str]:
    """The processes of a group, those aside that have ended and that nobody has asked about yet."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            state, _, its_group, *_ = rest.split()
            if int(its_group) == group and state != "Z":
                found.append(name)
    return found


def gone(group: int) -> bool:
    """Whether a group that was killed ends within seconds: a signal is sent at once and obeyed when there is time."""
    until = time.monotonic() + 5.0
    while running(group) and time.monotonic() < until:
        time.sleep(0.001)
    return not running(group)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux lists them")
def test_a_worker_that_hangs_is_killed_with_what_it_has_started() -> None:
    with in_processes(1) as perform:
        first = perform(os.getpid, (), 5.0)
        assert perform(os.getpid, (), 5.0) == first  # one worker serves many calls
        assert isinstance(first, Returned)
        assert first.value != os.getpid()
        assert perform(os.system, ("sleep 30",), 0.05) == ToolFailure(TIMED_OUT)
        assert gone(first.value)
        second = perform(os.getpid, (), 5.0)
        assert isinstance(second, Returned)
        assert second.value != first.value
        assert running(second.value)
    assert gone(second.value)


def test_a_worker_that_dies_is_replaced() -> None:
    with in_processes(1) as perform:
        assert perform(signal.raise_signal, (signal.SIGKILL,), 5.0) == ToolFailure(DIED, "its process ended")
        alive = perform(os.getpid, (), 5.0)
        assert isinstance(alive, Returned)
        os.kill(alive.value, 9)
        os.waitid(os.P_PID, alive.value, os.WEXITED | os.WNOWAIT)
        assert perform(divmod, (7, 2), 5.0) == Returned((3, 1))  # a death between two calls is no failure of the next


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux lists them")
def test_a_call_under_way_ends_with_the_block_and_none_is_made_after_it(tmp_path: Path) -> None:
    made: list[Any] = []
    told = tmp_path / "told"
    with in_processes(1) as perform:
        call = f"echo $PPID > {told}.new; mv {told}.new {told}; sleep 30"
        caller = threading.Thread(target=lambda: made.append(perform(os.system, (call,), 20.0)))
        caller.start()
        until = time.monotonic() + 15.0
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.001)
        assert running(int(told.read_text()))
    caller.join(timeout=10.0)
    assert made == [ToolFailure(DIED, "its process ended")]
    assert gone(int(told.read_text()))
    with pytest.raises(ToolError, match="in_processes: call is made after the block, wanted one inside it"):
        perform(divmod, (7, 2), 5.0)


@pytest.mark.parametrize("function", [lambda: 0, threading.Lock().acquire], ids=["lambda", "lock"])
def test_what_cannot_be_sent_to_a_worker_is_refused(function: Any) -> None:
    with in_processes(1) as perform, pytest.raises(ToolError, match="in_processes: call is not to be sent"):
        perform(function, (), 5.0)


def test_no_more_calls_run_at_once_than_allowed() -> None:
    perform = in_threads(2)
    running, most, lock = 0, 0, threading.Lock()

    def busy() -> None:
        nonlocal running, most
        with lock:
            running, most = running + 1, max(most, running + 1)
        time.sleep(0.01)
        with lock:
            running -= 1

    callers = [threading.Thread(target=perform, args=(busy, (), 5.0)) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert most == 2


@pytest.mark.parametrize("make", [in_threads, in_processes])
def test_nobody_to_perform_is_refused(make: Any) -> None:
    with pytest.raises(ChoiceError, match="limit is 0, wanted at least 1"), make(0) as _:
        pass


# --- a world ---


def adding(params: int, state: int, action: Any, key: Any) -> tuple[int, Outcome]:
    """Adds what is asked for; hangs at "hang", ends at an answer."""
    if not isinstance(action, Call):
        return state, Outcome(reward=float(action.value == state), terminated=True)
    if action.argument == "hang":
        time.sleep(30)
    after = state + int(action.argument)
    return after, Outcome(str(after), 0.5)


def read(params: int, state: int, argument: str) -> str:
    """Tells the state; has no word for what is no text."""
    if argument == "none":
        return None  # type: ignore[return-value]
    return str({"state": state}[argument])


WORLD = TextEnv(5, lambda params, key: (params, "Add."), adding, {"READ": read})


def played(world: TextEnv[int, int], *texts: str) -> Any:
    rules = protocol(world, PARSER, max_steps=8)
    episode, _ = begin_episode(rules, KEY)
    for text in texts:
        episode, _ = turn_after(rules, episode, Completion(text), KEY)
    return episode


def test_a_guarded_world_in_which_nothing_fails_is_the_world() -> None:
    texts = ("ADD[2]", "READ[state]", "hm", "ADD[3]", "[ANSWER] 10")
    assert played(guarded(WORLD, in_threads(), timeout=5.0), *texts) == played(WORLD, *texts)


def test_a_guarded_world_begins_with_its_own_messages() -> None:
    world = prompt_env([PromptRow((("system", "Add."), ("user", "2 + 3?")))])
    guard = guarded(world, in_threads(), timeout=5.0)
    rules = protocol(guard, answer(), system="Be brief.", max_steps=1)
    assert begin_episode(rules, KEY)[0].events == (System("Add."), User("2 + 3?"))


def looked_up(world: TextEnv[ZorplexEnv, ZorplexState]) -> Any:
    rules = protocol(world, zorplex_parser(), max_steps=5)
    return turn_after(rules, begin_episode(rules, KEY)[0], Completion("LOOKUP[quomun]"), KEY)


@pytest.mark.slow  # the worker imports torch
def test_a_world_of_ours_runs_in_processes() -> None:
    with in_processes(1) as perform:
        assert looked_up(guarded(zorplex(), perform, timeout=5.0)) == looked_up(zorplex())


def test_the_model_is_told_of_a_failure_and_the_state_is_as_it_was() -> None:
    failures: list[ToolFailed] = []
    world = guarded(WORLD, in_threads(), timeout=0.05, record=failures.append)
    episode = played(world, "ADD[2]", "ADD[much]", "ADD[hang]", "READ[more]", "READ[none]", "ADD[3]", "[ANSWER] 10")
    assert episode.end == Terminated()
    assert total_reward(episode) == 2.0  # of two sums and the answer; failures pay nothing
    told = [event.text for event in episode.events if isinstance(event, ToolResult)]
    assert told == [
        "7",
        "The tool failed: ValueError: invalid literal for int() with base 10: 'much'.",
        "The tool gave no answer within 0.05 s.",
        "The tool failed: KeyError: 'more'.",
        "The tool failed: NoneType given, a text wanted.",
        "10",
    ]
    assert not [event for event in episode.events if isinstance(event, Feedback)]
    assert [(failed.tool, failed.argument, failed.failure.kind) for failed in failures] == [
        ("ADD", "much", RAISED),
        ("ADD", "hang", TIMED_OUT),
        ("READ", "more", RAISED),
        ("READ", "none", RAISED),
    ]


def refusing(params: int, key: Any) -> tuple[int, str]:
    """A reset that has nothing to give."""
    return params // 0, "Add."


def test_a_world_that_does_not_begin_says_so() -> None:
    world = guarded(TextEnv(0, refusing, adding), in_threads(), timeout=5.0)
    with pytest.raises(ToolError, match="guarded: reset is 'The tool failed: ZeroDivisionError"):
        world.reset(0, KEY)


@pytest.mark.parametrize("begun", [(), (5,), (5, 7), [5, "Add."], "ab"])
def test_a_reset_that_gives_something_else_is_refused(begun: Any) -> None:
    world = guarded(TextEnv(0, lambda params, key: begun, adding), in_threads(), timeout=5.0)
    kind = type(begun).__name__
    with pytest.raises(ToolError, match=rf"guarded: reset is 'The tool failed: {kind} given, \(state, text\) wanted"):
        world.reset(0, KEY)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_no_time_at_all_is_refused(timeout: float) -> None:
    with pytest.raises(ChoiceError, match="guarded: timeout"):
        guarded(WORLD, in_threads(), timeout=timeout)

"""Child processes: started in one place, ended with all that they have started, and gone when their parent is killed."""

import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from child_parts import hang, idle  # type: ignore[import-not-found]

from purestep.runtime.effects.tools.calls import TIMED_OUT, ToolFailure, in_processes
from purestep.runtime.effects.workers.pool import WorkerMessage, working
from purestep.runtime.effects.workers.process import ChildProcess, run_body
from purestep.runtime.effects.workers.survivor import ended_afterwards

from ...support.engine_contract import left
from ...support.engine_contract import running as runs

STARTS = re.compile(r"\bPopen\(|subprocess\.(run|call|check_)|os\.(fork|system|spawn|posix_spawn)|get_context\(")
SUPPORT = Path(__file__).parents[2] / "support"
HERE = os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux lists them")


# --- how a child ends ---


def test_how_a_program_has_ended() -> None:
    for command, how in (("exit 3", "code 3"), ("kill -TERM $$", "SIGTERM")):
        child = ChildProcess(["sh", "-c", command])
        assert child.wait(20.0) == how
        child.end()
        child.end()
        assert child.ended() == how


def test_a_program_has_its_seconds_to_end_by_itself_and_no_more() -> None:
    for trap, how in (("exit 7", "code 7"), ("", "SIGKILL")):
        child = ChildProcess(
            ["sh", "-c", f"trap '{trap}' TERM; echo; while :; do sleep 0.05; done"], stdout=subprocess.PIPE
        )
        assert child.process.stdout is not None
        with child.process.stdout as told:
            told.readline()
        child.end(5.0 if trap else 0.3)
        assert child.ended() == how


@pytest.mark.slow
def test_a_child_ends_with_what_has_left_its_group_also_where_it_has_ended_before() -> None:
    for last in ("sleep 600", "exit 0"):
        program = "import child_parts as it, os; print(it.start_in_a_group_of_its_own(), flush=True); os.system"
        command = [sys.executable, "-c", f"{program}({last!r})"]
        child = ChildProcess(command, environment={"PYTHONPATH": HERE}, stdout=subprocess.PIPE)
        assert child.process.stdout is not None
        with child.process.stdout as told:
            pid = int(told.readline())
        if last == "exit 0":
            assert child.wait(20.0) == "code 0"
        assert runs(pid)
        child.end()
        assert not runs(pid)


@pytest.mark.parametrize("kind", ["worker", "tool"])
@pytest.mark.slow
def test_workers_and_tools_end_with_what_has_left_their_group(kind: str, tmp_path: Path) -> None:
    if kind == "tool":
        with in_processes(1) as perform:
            assert perform(hang, (str(tmp_path),), 1.0) == ToolFailure(TIMED_OUT)
            pids = {int(path.name) for path in tmp_path.iterdir()}
            assert left(pids) == set()
    else:
        with working(idle, size=1, patience=60.0, grace=0.1) as crew:
            while not isinstance(report := crew.receive(20.0), WorkerMessage):
                pass
            pids = {*report.payload}
    assert len(pids) == 2
    assert left(pids) == set()


@pytest.mark.slow
def test_a_death_is_reported_once_and_last() -> None:
    said: Queue[tuple[Any, ...]] = Queue()
    child = run_body(pickle.dumps((idle, ())), said.put, name="example")
    (ready, (_, (pid, started))) = said.get(timeout=20.0), said.get(timeout=20.0)
    assert ready == ("ready",)
    os.kill(pid, 9)
    assert said.get(timeout=5.0) == ("died", "its process ended (SIGKILL)")
    child.stop()
    assert runs(started)
    child.process.end()
    assert not runs(started)
    time.sleep(0.5)
    assert said.empty()


# --- a parent that is killed ---


def test_an_heir_ends_a_program_of_a_parent_that_is_killed_and_no_other() -> None:
    program = """
import sys, time
from purestep.runtime.effects.workers.process import ChildProcess
from purestep.runtime.effects.workers.survivor import ended_afterwards
child = ChildProcess(["sleep", "600"])
with ended_afterwards(child):
    print(child.pid, flush=True)
    time.sleep(600)
"""
    other = ChildProcess(["sleep", "600"])
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with parent, ended_afterwards(other):
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert runs(pid)
        parent.kill()
        assert left({pid}) == set()
    assert not other.ended()
    other.end()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tools", "workers", "members", "server"])
def test_nothing_is_left_ten_seconds_after_the_parent_is_killed(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    parent = subprocess.Popen([sys.executable, str(SUPPORT / "child_parts.py"), kind, str(folder)])
    with parent:
        until = time.monotonic() + 30.0
        while len(pids := {int(path.name) for path in folder.iterdir()}) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        assert len(pids) == 2
        assert all(map(runs, pids))
        parent.kill()
        assert left(pids, 10.0) == set()


# --- one launcher ---


def test_processes_are_started_in_one_place() -> None:
    found = {path.name for path in (ROOT / "runtime").rglob("*.py") if STARTS.search(path.read_text())}
    assert found == {"process.py", "built_in.py"}  # the latter: a program under limits, in the session of its worker

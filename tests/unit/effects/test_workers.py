"""Workers that die, hang, lie or never begin: reported, replaced, their work handed back, and none left at the end."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.workers.pool import (
    Body,
    Engine,
    Inbox,
    Report,
    WorkerAnswer,
    WorkerHandle,
    WorkerJoined,
    WorkerLost,
    WorkerMessage,
    Workers,
    WorkersError,
    in_process,
    in_thread,
    working,
)

BODIES = '''
import os
import subprocess
import sys
import time

def told(mailbox, what):
    """What a worker does when it is told to."""
    if what == "exit":
        sys.exit(3)
    if what == "raise":
        raise KeyError("dosk")
    if what == "hang":
        time.sleep(60)
    if what == "strange":
        mailbox.answer(12345, "who asked?")
    if what == "garbage":
        mailbox.connection.send_bytes(b"no pickle")
    if what == "words":
        mailbox.send("answer", 1)
    if what == "child":
        return subprocess.Popen(["sleep", "60"]).pid
    if what == "busy":
        for _ in range(8):
            time.sleep(0.1)
            mailbox.note("still here")
    if what == "large":
        return "x" * (1 << 22)
    return what.upper()

def echo(mailbox, greeting=""):
    if greeting:
        mailbox.note((greeting, os.getpid()))
    while True:
        given = mailbox.receive(0.5)
        if given:
            task, what = given
            mailbox.answer(task, told(mailbox, what))

def ends(mailbox):
    """Does nothing at all."""

def late(mailbox):
    time.sleep(0.3)
    echo(mailbox)

def deaf(mailbox):
    time.sleep(60)
'''
both = pytest.mark.parametrize("engine", [in_process, in_thread])


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "worker_bodies.py").write_text(BODIES)
    sys.path.insert(0, str(folder))
    try:
        import worker_bodies  # type: ignore[import-not-found]

        yield worker_bodies
    finally:
        sys.path.remove(str(folder))


def until(workers: Workers, kind: type, seconds: float = 20.0) -> Any:
    """The next report of a kind."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        report = workers.receive(end - time.monotonic())
        if isinstance(report, kind):
            return report
    raise AssertionError(f"no {kind.__name__} within {seconds} s")


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not asked about does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@both
def test_tasks_are_answered_by_the_worker_they_were_sent_to(bodies: Any, engine: Engine) -> None:
    with working(bodies.echo, size=2, patience=20.0, engine=engine) as workers:
        assert {until(workers, WorkerJoined).worker for _ in range(2)} == {0, 1}
        assert workers.alive() == (0, 1)
        for task in range(6):
            workers.send(task % 2, task, f"word {task}")
        answers = [until(workers, WorkerAnswer) for _ in range(6)]
        assert sorted((one.worker, one.task, one.payload) for one in answers) == [
            (task % 2, task, f"WORD {task}") for task in (0, 2, 4, 1, 3, 5)
        ]
        assert workers.receive(0.0) == ()
    assert workers.stop() == ()


def lost(workers: Workers, what: str) -> tuple[WorkerLost, float]:
    """Tells a worker to go wrong, with more work behind; gives the report and how long it took."""
    until(workers, WorkerJoined)
    worker = workers.alive()[-1]
    workers.send(worker, 1, what)
    workers.send(worker, 2, "next")
    start = time.monotonic()
    report = until(workers, WorkerLost)
    assert report.worker == worker
    assert report.work == ((1, what), (2, "next"))
    return report, time.monotonic() - start


@both
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("exit", "raised: SystemExit: 3"),
        ("raise", "raised: KeyError: 'dosk'"),
        ("strange", "garbage: an answer to task 12345, which it does not have"),
    ],
)
def test_a_worker_that_goes_wrong_is_replaced_and_its_work_comes_back(
    bodies: Any, engine: Engine, what: str, why: str
) -> None:
    with working(bodies.echo, size=1, patience=20.0, engine=engine) as workers:
        report, _ = lost(workers, what)
        assert report.why == why
        again = until(workers, WorkerJoined).worker
        assert again == report.worker + 1
        for task, _ in report.work:
            workers.send(again, task, "once more")
        assert [until(workers, WorkerAnswer).task for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("what", "why"), [("garbage", "9 bytes that are no message"), ("words", r"('answer', 1), which is no message")]
)
def test_what_is_no_message_is_refused_by_name(bodies: Any, what: str, why: str) -> None:
    with working(bodies.echo, size=1, patience=20.0) as workers:
        assert why in lost(workers, what)[0].why


def test_a_worker_that_is_killed_is_reported_within_a_second(bodies: Any) -> None:
    with working(bodies.echo, ("hello",), size=1, patience=60.0) as workers:
        pid = until(workers, WorkerMessage).payload[1]
        assert pid != os.getpid()
        workers.send(0, 7, "hang")
        os.kill(pid, signal.SIGKILL)
        start = time.monotonic()
        report = until(workers, WorkerLost)
        assert time.monotonic() - start < 1.0
        assert report == WorkerLost(0, "died: its process ended (SIGKILL)", ((7, "hang"),))
        assert until(workers, WorkerMessage).payload[1] != pid
    assert not running(pid)


@both
@pytest.mark.slow
def test_a_worker_that_hangs_is_found_by_its_silence(bodies: Any, engine: Engine) -> None:
    with working(bodies.echo, size=1, patience=0.6, engine=engine, grace=0.1) as workers:
        until(workers, WorkerJoined)
        assert workers.receive(0.8) == ()  # without work it may be silent
        workers.send(0, 1, "busy")
        assert [type(workers.receive(5.0)) for _ in range(9)] == [WorkerMessage] * 8 + [
            WorkerAnswer
        ]  # longer than its patience
        workers.send(0, 2, "hang")
        report = until(workers, WorkerLost)
        assert report.why.startswith("hung: silent for 0.")
        assert report.work == ((2, "hang"),)
        until(workers, WorkerJoined)
        workers.send(1, 2, "not this time")
        assert until(workers, WorkerAnswer) == WorkerAnswer(1, 2, "NOT THIS TIME")
    assert workers.stop() == ((0,) if engine is in_thread else ())  # nobody can end a thread


def test_a_worker_that_never_begins_is_found(bodies: Any) -> None:
    def unheard(number: int, body: Body, arguments: tuple[Any, ...], inbox: Inbox) -> WorkerHandle:
        return in_process(number, body, arguments, Queue())  # what it says goes astray

    with working(bodies.echo, size=1, patience=20.0, start=0.3, engine=unheard, tries=2, grace=0.1) as workers:
        assert until(workers, WorkerLost).why.startswith("hung: silent for 0.3 s at its start")
        until(workers, WorkerLost)
        with pytest.raises(WorkersError, match=r"given up .2 workers were lost in a row"):
            workers.receive(5.0)


@both
def test_a_body_that_always_ends_is_given_up(bodies: Any, engine: Engine) -> None:
    with working(bodies.ends, size=1, patience=20.0, engine=engine, tries=3) as workers:
        whys = [until(workers, WorkerLost).why for _ in range(3)]
        assert set(whys) == {"returned: its body came to an end"}
        with pytest.raises(WorkersError, match="3 workers were lost in a row; the last one returned"):
            workers.receive(5.0)


def test_work_for_a_worker_that_is_gone_comes_back(bodies: Any) -> None:
    with working(bodies.echo, size=1, patience=20.0, engine=in_thread) as workers:
        lost(workers, "raise")
        workers.send(0, 9, "too late")
        assert until(workers, WorkerLost) == WorkerLost(0, "gone before it was sent", ((9, "too late"),))


def test_one_lost_worker_costs_only_its_own_work(bodies: Any) -> None:
    with working(bodies.echo, size=2, patience=20.0, engine=in_thread) as workers:
        until(workers, WorkerJoined)
        until(workers, WorkerJoined)
        workers.send(0, 1, "busy")
        workers.send(1, 2, "raise")
        assert until(workers, WorkerLost).work == ((2, "raise"),)
        assert until(workers, WorkerAnswer) == WorkerAnswer(0, 1, "BUSY")


def test_an_answer_in_which_a_fault_is_found_is_garbage(bodies: Any) -> None:
    def refuse(task: int, payload: Any) -> str:
        return f"task {task} came back as {payload!r}" if payload == "BAD" else ""

    with working(bodies.echo, size=1, patience=20.0, engine=in_thread, refuse=refuse) as workers:
        until(workers, WorkerJoined)
        workers.send(0, 1, "good")
        assert until(workers, WorkerAnswer).payload == "GOOD"
        workers.send(0, 2, "bad")
        assert until(workers, WorkerLost) == WorkerLost(0, "garbage: task 2 came back as 'BAD'", ((2, "bad"),))


def test_what_a_lost_worker_says_later_does_not_count(bodies: Any) -> None:
    with working(bodies.echo, size=1, patience=0.3, engine=in_thread, tries=9) as workers:
        until(workers, WorkerJoined)
        release = threading.Event()

        class Slow(str):
            """A word that takes its time."""

            def upper(self) -> str:
                release.wait(20.0)
                return "late"

        workers.send(0, 1, Slow("word"))
        assert until(workers, WorkerLost).work == ((1, "word"),)
        until(workers, WorkerJoined)
        workers.send(1, 1, "word")
        release.set()
        reports: list[Report | tuple[()]] = [workers.receive(0.5), workers.receive(0.5)]
        assert reports == [WorkerAnswer(1, 1, "WORD"), ()]


def test_a_task_that_is_out_is_not_sent_twice(bodies: Any) -> None:
    with working(bodies.echo, size=2, patience=20.0, engine=in_thread) as workers:
        until(workers, WorkerJoined)
        until(workers, WorkerJoined)
        workers.send(0, 1, "busy")
        with pytest.raises(ChoiceError, match="task 1 is with a worker, wanted free"):
            workers.send(1, 1, "busy")
        assert until(workers, WorkerAnswer) == WorkerAnswer(0, 1, "BUSY")
        workers.send(1, 1, "again")
        assert until(workers, WorkerAnswer) == WorkerAnswer(1, 1, "AGAIN")


def test_nothing_is_left_when_the_block_ends(bodies: Any) -> None:
    with working(bodies.echo, ("hello",), size=2, patience=60.0, grace=0.3) as workers:
        pids = [until(workers, WorkerMessage).payload[1] for _ in range(2)]
        workers.send(0, 1, "child")
        child = until(workers, WorkerAnswer).payload
        workers.send(1, 2, "hang")
        assert running(child)
        start = time.monotonic()
    assert time.monotonic() - start < 10.0
    assert [pid for pid in (*pids, child) if running(pid)] == []


ORPHANS = """
import sys, time
sys.path.insert(0, {place!r})
import {bodies} as bodies
from purestep.runtime.effects.workers.pool import WorkerMessage, working

with working(bodies.echo, ("hello",), size=2, patience=60.0) as workers:
    pids = []
    while len(pids) < 2:
        report = workers.receive(1.0)
        pids += [report.payload[1]] if isinstance(report, WorkerMessage) else []
    workers.send(1, 0, "hang")
    print(*pids, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_workers_end_without_a_word_when_their_parent_is_killed_whatever_they_are_at(bodies: Any) -> None:
    program = ORPHANS.format(place=str(Path(bodies.__file__).parent), bodies=bodies.__name__)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert [running(pid) for pid in pids] == [True, True]
        process.kill()
        until = time.monotonic() + 10.0
        while any(map(running, pids)) and time.monotonic() < until:
            time.sleep(0.01)
        assert [running(pid) for pid in pids] == [False, False]
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_worker_that_does_not_read_blocks_nobody(bodies: Any) -> None:
    with working(bodies.deaf, size=1, patience=0.5, grace=0.1) as workers:
        until(workers, WorkerJoined)
        start = time.monotonic()
        for task in range(20):
            workers.send(0, task, "x" * (1 << 20))
        assert time.monotonic() - start < 5.0
        assert len(until(workers, WorkerLost).work) == 20


def test_what_cannot_be_sent_is_refused_and_the_worker_goes_on(bodies: Any) -> None:
    with working(bodies.echo, size=1, patience=0.5) as workers:
        until(workers, WorkerJoined)
        with pytest.raises(WorkersError, match=r"workers: task 1 is not to be sent \(.*lock.*\), wanted") as error:
            workers.send(0, 1, threading.Lock())
        assert "\n" not in str(error.value)
        assert workers.receive(0.8) == ()  # it has nothing to do, so that its silence is no fault
        workers.send(0, 1, "word")
        assert until(workers, WorkerAnswer) == WorkerAnswer(0, 1, "WORD")


def test_large_answers_come_whole(bodies: Any) -> None:
    with working(bodies.echo, size=1, patience=20.0) as workers:
        until(workers, WorkerJoined)
        workers.send(0, 1, "large")
        assert len(until(workers, WorkerAnswer).payload) == 1 << 22


def test_a_body_that_cannot_be_sent_is_refused() -> None:
    with (
        pytest.raises(WorkersError, match="body is not to be sent"),
        working(lambda mailbox: None, size=1, patience=1.0),
    ):
        pass
    with pytest.raises(ChoiceError, match="size is 0"), working(print, size=0, patience=1.0):
        pass

"""Crews of workers on a cluster: the same bodies as anywhere, on other hosts too; who is lost is replaced."""

import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from attrs import evolve

from purestep.runtime.effects.cluster import ENGINES, open_cluster, replicas, worker_rules
from purestep.runtime.effects.cluster.interface import Cluster, Mesh
from purestep.runtime.effects.cluster.local.cluster import State
from purestep.runtime.effects.cluster.local.members import HostAccess, here
from purestep.runtime.effects.cluster.worker_actor import Post
from purestep.runtime.effects.cluster.worker_handles import on
from purestep.runtime.effects.tools.calls import RAISED, TIMED_OUT, Returned, ToolError, ToolFailure
from purestep.runtime.effects.tools.service import HEALTHY, serving
from purestep.runtime.effects.workers.pool import (
    WorkerAnswer,
    WorkerJoined,
    WorkerLost,
    WorkerMessage,
    Workers,
    WorkersError,
    working,
)
from purestep.runtime.effects.workers.program import NOTE

from ...support.engine_contract import left

BODIES = '''
import os
import time

def echo(mailbox):
    """Says who it is, then answers in capitals."""
    mailbox.note(os.getpid())
    while True:
        given = mailbox.receive(0.5)
        if given:
            task, what = given
            if what == "raise":
                raise KeyError("dosk")
            if what == "hang":
                time.sleep(60.0)
            mailbox.answer(task, what.upper())

def device(mailbox, name):
    """Says on which device it is, and who it is."""
    mailbox.note((name, os.getpid()))
    while True:
        mailbox.receive(0.5)

def slots(mailbox):
    """Has up to three tasks under way, and looks for more while it has room."""
    under_way = []
    while True:
        given = mailbox.receive(0.0 if under_way else 0.5) if len(under_way) < 3 else ()
        if given:
            under_way.append([*given, 3])
        time.sleep(0.002)
        for one in under_way:
            one[2] -= 1
        for task, what, left in [*under_way]:
            if left <= 0:
                mailbox.answer(task, what.upper())
        under_way = [one for one in under_way if one[2] > 0]
'''


CALL = ContextVar("CALL", default="none")


def body_that_looks(mailbox: Any) -> None:
    """Says in whose call it was started."""
    mailbox.note(CALL.get())


def test_a_body_runs_in_the_context_of_the_call_that_starts_it() -> None:
    """Monarch's calls from any other are those of a second client, which cannot listen on every host."""
    token = CALL.set("the engine's")
    try:
        post = Post(pickle.dumps((body_that_looks, ())))
        post.setup()
    finally:
        CALL.reset(token)
    assert post.thread is not None
    post.thread.join()
    said = [pickle.loads(letter) for letter in worker_rules.parcel(post.box).letters]
    assert (NOTE, "the engine's") in said


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "hand_bodies.py").write_text(BODIES)
    sys.path.insert(0, str(folder))
    try:
        import hand_bodies  # type: ignore[import-not-found]

        yield hand_bodies
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def cluster(bodies: Any) -> Iterator[Cluster]:
    """A cluster that other hosts can join: they are this machine, too."""
    state = State()

    def add_host(name: str, /, *, timeout: float) -> str:
        del timeout
        state.take_in(name, here(state.handle_report))
        return name

    state.take_in("local", here(state.handle_report))
    yield Cluster(
        name="several",
        hosts=state.hosts,
        add_host=add_host,
        spawn=state.spawn,
        failure=state.failure,
        stop=state.stop,
    )
    state.stop(timeout=10.0)


def lost(cluster: Cluster, name: str) -> None:
    """Cut off that host and end it; all hosts here are processes of this machine."""
    state: State = cluster.hosts.__self__  # type: ignore[attr-defined]
    place: HostAccess = state.places[name]
    state.lost(name, [place], "its cable was cut")
    place.close()


@pytest.fixture(scope="module", params=list(ENGINES))
def any_cluster(request: pytest.FixtureRequest, bodies: Any) -> Iterator[Cluster]:
    """A cluster of each engine that is installed."""
    if request.param != "processes":
        pytest.importorskip(request.param)
    with open_cluster(request.param) as cluster:
        yield cluster


def until(workers: Workers, kind: type, seconds: float = 60.0) -> Any:
    """The next report of a kind."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        report = workers.receive(end - time.monotonic())
        if isinstance(report, kind):
            return report
    raise AssertionError(f"no {kind.__name__} within {seconds} s")


@pytest.mark.slow
def test_a_crew_goes_on_when_its_workers_raise_hang_or_are_killed(bodies: Any, any_cluster: Cluster) -> None:
    with working(bodies.echo, size=1, patience=3.0, engine=on(any_cluster)) as workers:
        pids = []
        for number, what in enumerate(("kill", "raise", "hang")):
            assert until(workers, WorkerJoined).worker == number
            pids.append(until(workers, WorkerMessage).payload)
            workers.send(number, 10 * number, "word")
            assert until(workers, WorkerAnswer) == WorkerAnswer(number, 10 * number, "WORD")
            workers.send(number, 10 * number + 1, "hang" if what == "kill" else what)
            if what == "kill":
                os.kill(pids[0], signal.SIGKILL)
            lost = until(workers, WorkerLost)
            why = {"kill": "died: ", "raise": "raised: KeyError: 'dosk'", "hang": "hung: silent for 3."}
            assert lost.why.startswith(why[what])
            assert [task for task, _ in lost.work] == [10 * number + 1]
            assert left({pids[-1]}) == set()
        last = until(workers, WorkerJoined).worker
        pids.append(until(workers, WorkerMessage).payload)
        workers.send(last, 21, "not this time")
        assert until(workers, WorkerAnswer) == WorkerAnswer(last, 21, "NOT THIS TIME")
        assert workers.stop() == ()
    assert left({*pids}) == set()


def test_a_body_with_room_gets_its_tasks_while_it_works(bodies: Any, cluster: Cluster) -> None:
    name = cluster.add_host("roomy", timeout=10.0)
    with working(bodies.slots, size=1, patience=20.0, engine=on(cluster, hosts=(name,))) as workers:
        until(workers, WorkerJoined)
        words = {task: f"word {task}" for task in range(60)}
        for task in range(3):
            workers.send(0, task, words[task])
        got = {}
        for task in range(3, 63):
            answer = until(workers, WorkerAnswer)
            got[answer.task] = answer.payload
            if task in words:
                workers.send(0, task, words[task])
        assert got == {task: word.upper() for task, word in words.items()}
    lost(cluster, name)


def test_a_replacement_gets_the_host_and_the_device_that_are_used_least(bodies: Any, cluster: Cluster) -> None:
    """The first of two hosts is lost, too, and comes back as the last one."""
    spawned = list[tuple[str, str]]()

    def spawn(
        actor: type[Any],
        arguments: tuple[Any, ...] = (),
        /,
        *,
        size: int,
        hosts: tuple[str, ...] = (),
        timeout: float,
    ) -> Mesh:
        (host,), (_, (device,)) = hosts, pickle.loads(arguments[0])
        spawned.append((host, device))
        return cluster.spawn(actor, arguments, size=size, hosts=hosts, timeout=timeout)

    def begun(count: int) -> list[tuple[str, str]]:
        """Where that many workers have begun, in any order."""
        for _ in range(count):
            note = until(workers, WorkerMessage)
            pids[note.worker] = note.payload[1]
        where, spawned[:] = sorted(spawned), []
        return where

    def kill(worker: int) -> None:
        os.kill(pids[worker], signal.SIGKILL)
        assert until(workers, WorkerLost).worker == worker

    first, second = (cluster.add_host(name, timeout=20.0) for name in ("first", "second"))
    devices, pids = ("cuda:0", "cuda:1"), dict[int, int]()
    engine = on(
        evolve(cluster, spawn=spawn), hosts=(first, second), devices=devices, fitted=lambda _, device: (device,)
    )
    with working(bodies.device, size=2, patience=60.0, engine=engine, tries=9) as workers:
        assert begun(2) == sorted(((first, "cuda:0"), (second, "cuda:1")))
        kill(1)
        assert begun(1) == [(second, "cuda:1")]
        lost(cluster, first)
        assert begun(1) == [(second, "cuda:0")]
        cluster.add_host(first, timeout=20.0)
        assert cluster.hosts()[-1] == first
        kill(3)
        assert begun(1) == [(first, "cuda:0")]
    lost(cluster, first)
    lost(cluster, second)


def test_a_worker_waits_for_a_host(bodies: Any, cluster: Cluster) -> None:
    with working(bodies.echo, size=1, patience=60.0, engine=on(cluster, hosts=("late",))) as workers:
        assert workers.receive(0.3) == ()
        cluster.add_host("late", timeout=20.0)
        assert until(workers, WorkerJoined).worker == 0
    lost(cluster, "late")


def test_what_cannot_be_had_is_said(bodies: Any, cluster: Cluster) -> None:
    with (
        pytest.raises(WorkersError, match="body is not to be sent"),
        working(lambda mailbox: None, size=1, patience=1.0, engine=on(cluster)),
    ):
        pass
    with working(
        bodies.echo, size=1, patience=1.0, engine=on(cluster, hosts=("nowhere",), start=0.2), tries=1
    ) as workers:
        assert "on: hosts is none for 0.2 s" in until(workers, WorkerLost).why


@pytest.mark.slow
def test_replicas_of_a_service_are_members_too(any_cluster: Cluster) -> None:
    with serving(replicas.on(any_cluster), 2, pause=0.1) as service:
        assert [service.perform(divmod, (7, n), 20.0) for n in (2, 3)] == [Returned((3, 1)), Returned((2, 1))]
        raised = service.perform(divmod, (7, 0), 20.0)
        assert isinstance(raised, ToolFailure)
        assert (raised.kind, raised.error.partition(":")[0]) == (RAISED, "ZeroDivisionError")
        with pytest.raises(ToolError, match="not to be sent"):
            service.perform(lambda: 7, (), 20.0)
        first = service.perform(os.getpid, (), 20.0)
        assert isinstance(first, Returned)
        os.kill(first.value, signal.SIGKILL)
        pids = {first.value}
        for _ in range(4):  # whoever is asked, a living one answers
            answer = service.perform(os.getpid, (), 20.0)
            assert isinstance(answer, Returned)
            pids.add(answer.value)
        end = time.monotonic() + 60.0
        while {one.state for one in service.health()} != {HEALTHY} and time.monotonic() < end:
            time.sleep(0.05)
        assert service.perform(time.sleep, (60.0,), 0.5) == ToolFailure(TIMED_OUT)
    assert left({*pids}) == set()

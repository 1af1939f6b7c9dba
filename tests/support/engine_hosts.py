"""Hosts of an engine in namespaces, and what a cluster on them must outlive: a slow line, a lost link, a killed host."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import frozen
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.runtime.effects.cluster.interface import Cluster, Done, MemberLost, Mesh, Unanswered, late
from purestep.runtime.effects.cluster.worker_handles import on
from purestep.runtime.effects.workers.pool import (
    WorkerAnswer,
    WorkerJoined,
    WorkerLost,
    WorkerMessage,
    Workers,
    working,
)

from .engine_contract import SOON, left, path_with, running, values
from .engine_spaces import Space, spaces
from .network_spaces import Line, detour
from .programs import END, START, first_line

WORK = 180.0  # seconds in which a pool comes so far
TASKS = 60
DELAY, LOSS = 0.05, 0.05  # seconds each way, share of packets
CALLS = 40
LARGE = 1 << 12  # a MiB: what a host that is not heard would be given up for, were it sent at one stroke
BODIES = '''
import os
import time

def slow(mailbox):
    """Says who it is, then answers each task after a while."""
    mailbox.note(os.getpid())
    while True:
        given = mailbox.receive(0.5)
        if given:
            time.sleep(0.2)
            mailbox.answer(given[0], given[1].upper())
'''


@frozen
class Host:
    """A host that runs in a namespace."""

    space: Space
    process: subprocess.Popen[str]
    address: str


@contextmanager
def hosted(engine: str, there: Sequence[Space], folder: Path) -> Iterator[tuple[Host, ...]]:
    """`purestep host` of that engine in each of the namespaces, which all find our addresses.

    In the end those that were not killed end well at SIGTERM; none is left, whatever happens.
    """
    (folder / "space_bodies.py").write_text(BODIES)
    program = [sys.executable, "-m", "purestep.runtime.cli.main", "host", "--engine", engine]
    path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": path_with(Path(path))}
    processes = list[subprocess.Popen[str]]()
    try:
        for one in there:
            subprocess.run(["ip", "-n", one.name, "route", "add", "default", "via", one.ours], check=True)
            command = one.command(*program, "--listen", f"{one.address}:7000")
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        yield tuple(Host(one, each, first_line(each)) for one, each in zip(there, processes, strict=True))
        killed = [each.poll() for each in processes]
        for each in processes:
            each.terminate()
        codes = [each.wait(END) for each in processes]
        assert codes == [0 if code is None else -signal.SIGKILL for code in killed]  # SIGTERM is a good end
    finally:
        for each in processes:
            each.kill()
            each.wait()
            assert each.stdout is not None
            each.stdout.close()


# --- a slow line ---


def alive_behind_a_slow_line(cluster: Cluster, hosts: Sequence[Host], wire: Line) -> None:
    """Calls to members of which the even ones are behind that line; in the end one of them is killed."""
    mesh = cluster.spawn(Counter, size=4, timeout=START)
    assert mesh.hosts == tuple(host.address for host in hosts) * 2
    asked = [mesh.ask("add", (1,), timeout=SOON) for _ in range(CALLS)]  # many are under way
    assert [waiting() for waiting in asked] == [(Done(n),) * 4 for n in range(1, CALLS + 1)]
    for n in range(10):  # and one at a time
        assert mesh.call("echo", ((n, b"\0" * 2000),), timeout=SOON) == (Done((n, b"\0" * 2000)),) * 4
    large = bytes(range(256)) * LARGE
    assert mesh.slice((0, 1)).call("echo", (large,), timeout=START) == (Done(large),) * 2
    _time_runs_out(mesh)
    assert cluster.failure(8.0) == ()  # nor is anybody lost while nothing is asked
    assert cluster.hosts() == tuple(host.address for host in hosts)
    assert wire.dropped > 10
    _one_is_killed(cluster, mesh)


def _time_runs_out(mesh: Mesh) -> None:
    """A member that is busy behind the line, and who is not: each call ends with its own time."""
    busy = values(mesh, "pid")[0]
    begun = time.monotonic()
    waiting = mesh.ask("nap_if", (busy, 6.0), timeout=4.0)
    assert mesh.slice((0,)).call("add", timeout=0.5) == (late(0.5),)
    assert time.monotonic() - begun < 3.0
    answers = waiting()
    assert 4.0 <= time.monotonic() - begun < 6.0
    assert answers == (late(4.0), *[Done("awake")] * 3)
    mesh.call("prepared", timeout=SOON)  # it goes on with the next call, and what comes late is nobody's
    assert values(mesh, "add", 1) == [CALLS + 2, *[CALLS + 1] * 3]


def _one_is_killed(cluster: Cluster, mesh: Mesh) -> None:
    """It is told once, and it alone is lost."""
    pids = values(mesh, "pid")
    os.kill(pids[2], signal.SIGKILL)
    told = cluster.failure(SOON)
    assert isinstance(told, MemberLost)
    assert (told.host, told.mesh, told.member) == (mesh.hosts[2], mesh.number, 2)
    answers = mesh.call("pid", timeout=SOON)
    assert isinstance(answers[2], Unanswered)
    assert answers[2].lost
    assert [answers[i] for i in (0, 1, 3)] == [Done(pids[i]) for i in (0, 1, 3)]
    assert cluster.failure(1.0) == ()
    mesh.stop(timeout=SOON)
    assert left({*pids}, SOON) == set()


# --- a pool ---


class Ward:
    """A pool's work: what is out, what is done, who is where."""

    def __init__(self, workers: Workers) -> None:
        self.workers, self.todo = workers, list(range(TASKS))
        self.done: dict[int, str] = {}
        self.pids: dict[int, int] = {}
        self.losses: list[WorkerLost] = []

    def go_on(self, until: Callable[[], bool]) -> None:
        """Gives out work and takes answers until something is so."""
        end = time.monotonic() + WORK
        while not until():
            assert time.monotonic() < end, (self.done, self.losses, self.pids)
            report = self.workers.receive(0.5)
            if isinstance(report, WorkerLost):
                self.losses.append(report)
                self.todo += [task for task, _ in report.work]
                continue
            if isinstance(report, WorkerMessage):
                self.pids[report.worker] = report.payload
            if isinstance(report, WorkerAnswer):
                assert report.task not in self.done
                self.done[report.task] = report.payload
            if isinstance(report, WorkerAnswer | WorkerJoined) and self.todo:
                task = self.todo.pop(0)
                self.workers.send(report.worker, task, f"task {task}")


def outlives_a_lost_link_and_a_killed_host(cluster: Cluster, hosts: Sequence[Host], body: Any) -> Ward:
    """A crew on two hosts does all its work, each task once, though one loses its link and the other one is killed."""
    first, second = hosts
    assert cluster.hosts() == (first.address, second.address)
    with working(body, size=2, patience=2 * SOON, engine=on(cluster)) as workers:
        ward = Ward(workers)
        ward.go_on(lambda: len(ward.pids) == 2 and len(ward.done) > 4)
        first.space.cut()  # worker 0 is there
        ward.go_on(lambda: len(ward.losses) == 1)
        assert ward.losses[0].worker == 0
        assert cluster.hosts() == (second.address,)
        ward.go_on(lambda: len(ward.pids) == 3 and not running(ward.pids[0]))  # its host has missed us, too
        first.space.mend()
        assert cluster.add_host(first.address, timeout=START) == first.address
        second.process.kill()  # workers 1 and 2 are there
        ward.go_on(lambda: len(ward.losses) == 3)
        assert left({ward.pids[1], ward.pids[2]}, SOON) == set()
        assert cluster.hosts() == (first.address,)
        ward.go_on(lambda: len(ward.done) == TASKS)
    assert ward.done == {task: f"TASK {task}" for task in range(TASKS)}
    return ward


@contextmanager
def behind(host: Host) -> Iterator[Line]:
    """For a block a slow line that loses packets leads to that host, and back."""
    with detour(host.space, delay=DELAY, loss=LOSS) as wire:
        yield wire


def outlived(
    engine: str, clustered: Callable[..., AbstractContextManager[Cluster]], silence: float, folder: Path
) -> tuple[WorkerLost, ...]:
    """All of this, one after the other, on two hosts of that engine: whom its crew has lost.

    `folder` holds what the hosts import.
    """
    with spaces(2) as there, hosted(engine, there, folder) as hosts:
        first, second = addresses = tuple(host.address for host in hosts)
        with behind(hosts[0]) as wire, clustered(addresses, silence=silence) as cluster:
            alive_behind_a_slow_line(cluster, hosts, wire)
        body = import_module("space_bodies").slow
        with clustered(addresses, silence=silence) as cluster:
            ward = outlives_a_lost_link_and_a_killed_host(cluster, hosts, body)
            told = [cluster.failure(1.0) for _ in range(4)]
            assert [getattr(one, "host", "") for one in told] == [first, second, second, ""]
        assert left({*ward.pids.values()}, SOON) == set()
    return tuple(ward.losses)

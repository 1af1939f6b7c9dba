"""A crew on two hosts in namespaces of their own: one loses its link, one is killed, and the work is done all the same."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from purestep.runtime.effects.engine.hands import on
from purestep.runtime.effects.engine.processes import clustered
from purestep.runtime.effects.workers import Answer, Joined, Lost, Note, Workers, working

from .engine_contract import left, path_with, running
from .engine_spaces import Space, spaces

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


@contextmanager
def hosts(there: Sequence[Space], folder: Path) -> Iterator[list[tuple[str, subprocess.Popen[str]]]]:
    """`purestep host` in each of the namespaces: its address and its process."""
    (folder / "key").write_text("0123456789abcdef" * 2)
    environment = {**os.environ, "PYTHONPATH": path_with(folder)}
    program = [sys.executable, "-m", "purestep.runtime.cli", "host", "--key", str(folder / "key"), "--listen"]
    processes = [
        subprocess.Popen(
            one.command(*program, f"{one.address}:7000"), stdout=subprocess.PIPE, text=True, env=environment
        )
        for one in there
    ]
    try:
        yield [(process.stdout.readline().strip(), process) for process in processes if process.stdout]
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(30.0) for process in processes]
        for process in processes:
            assert process.stdout is not None
            process.stdout.close()
    assert codes == [0, -signal.SIGKILL]  # SIGTERM is a good end


class Ward:
    """A crew's work: what is out, what is done, who is where."""

    def __init__(self, workers: Workers, tasks: int) -> None:
        self.workers, self.todo = workers, list(range(tasks))
        self.done: dict[int, str] = {}
        self.pids: dict[int, int] = {}
        self.losses: list[Lost] = []

    def go_on(self, until: Any, seconds: float = 90.0) -> None:
        """Gives out work and takes answers until something is so."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, (self.done, self.losses, self.pids)
            report = self.workers.receive(0.5)
            if isinstance(report, Lost):
                self.losses.append(report)
                self.todo += [task for task, _ in report.work]
                continue
            if isinstance(report, Note):
                self.pids[report.worker] = report.payload
            if isinstance(report, Answer):
                assert report.task not in self.done
                self.done[report.task] = report.payload
            if isinstance(report, Answer | Joined) and self.todo:
                task = self.todo.pop(0)
                self.workers.send(report.worker, task, f"task {task}")


@pytest.mark.slow
def test_a_crew_outlives_a_lost_link_and_a_killed_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "space_bodies.py").write_text(BODIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    import space_bodies  # type: ignore[import-not-found]

    with spaces(2) as there, hosts(there, tmp_path) as started:
        (first, _), (second, process) = started
        with clustered((first, second), key=tmp_path / "key", silence=1.5) as cluster:
            assert cluster.hosts() == (f"{there[0].address}:7000", f"{there[1].address}:7000")
            with working(space_bodies.slow, size=2, patience=30.0, engine=on(cluster)) as workers:
                ward = Ward(workers, 60)
                ward.go_on(lambda: len(ward.pids) == 2 and len(ward.done) > 4)
                there[0].cut()  # worker 0 is there
                ward.go_on(lambda: len(ward.losses) == 1)
                assert ward.losses[0].worker == 0
                assert "its host is lost (silent for 1.5 s)" in ward.losses[0].why
                assert cluster.hosts() == (second,)
                ward.go_on(lambda: len(ward.pids) == 3 and not running(ward.pids[0]))  # its host has missed us, too
                there[0].mend()
                assert cluster.add_host(first, timeout=20.0) == first
                process.kill()  # workers 1 and 2 are there
                ward.go_on(lambda: len(ward.losses) == 3)
                assert left({ward.pids[1], ward.pids[2]}) == set()
                assert all(one.why.startswith("died: its host is lost (") for one in ward.losses)
                assert cluster.hosts() == (first,)
                ward.go_on(lambda: len(ward.done) == 60)
            assert ward.done == {task: f"TASK {task}" for task in range(60)}
            told = [cluster.failure(1.0) for _ in range(4)]
            assert [getattr(one, "host", "") for one in told] == [first, second, second, ""]
        assert left({*ward.pids.values()}) == set()

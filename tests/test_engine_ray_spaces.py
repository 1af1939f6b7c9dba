"""A crew on two hosts of Ray in namespaces of their own: one loses its link, one is killed, and all the work is done."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.hands import on
from purestep.runtime.effects.engine.ray_engine import clustered
from purestep.runtime.effects.workers import working

from .engine_contract import SOON, left, path_with, running
from .engine_spaces import Space, spaces
from .test_engine_spaces import BODIES, Ward

SILENCE = 3.0


@contextmanager
def hosts(there: Sequence[Space], folder: Path) -> Iterator[list[tuple[str, subprocess.Popen[str]]]]:
    """`purestep host --engine ray` in each of the namespaces, which all find our addresses: its address and its process."""
    (folder / "key").write_text("0123456789abcdef" * 2)
    program = [sys.executable, "-m", "purestep.runtime.cli", "host", "--engine", "ray", "--key", str(folder / "key")]
    processes = []
    for one in there:
        subprocess.run(["ip", "-n", one.name, "route", "add", "default", "via", one.ours], check=True)
        command = one.command(*program, "--listen", f"{one.address}:7000")
        environment = {**os.environ, "PYTHONPATH": path_with(folder)}
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    try:
        yield [(process.stdout.readline().strip(), process) for process in processes if process.stdout]
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(SOON) for process in processes]
        for process in processes:
            assert process.stdout is not None
            process.stdout.close()
    assert codes == [0, -signal.SIGKILL]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")
def test_a_crew_on_ray_outlives_a_lost_link_and_a_killed_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "space_bodies.py").write_text(BODIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    import space_bodies  # type: ignore[import-not-found]

    with spaces(2) as there, hosts(there, tmp_path) as started:
        (first, _), (second, process) = started
        with clustered((first, second), key=tmp_path / "key", silence=SILENCE) as cluster:
            assert cluster.hosts() == (f"{there[0].address}:7000", f"{there[1].address}:7000")
            with working(space_bodies.slow, size=2, patience=2 * SOON, engine=on(cluster)) as workers:
                ward = Ward(workers, 60)
                ward.go_on(lambda: len(ward.pids) == 2 and len(ward.done) > 4)
                there[0].cut()  # worker 0 is there
                ward.go_on(lambda: len(ward.losses) == 1)
                assert ward.losses[0].worker == 0
                assert cluster.hosts() == (second,)
                ward.go_on(lambda: len(ward.pids) == 3 and not running(ward.pids[0]))  # its host has missed us, too
                there[0].mend()
                assert cluster.add_host(first, timeout=SOON) == first
                process.kill()  # workers 1 and 2 are there
                ward.go_on(lambda: len(ward.losses) == 3)
                assert cluster.hosts() == (first,)
                ward.go_on(lambda: len(ward.done) == 60)
            assert ward.done == {task: f"TASK {task}" for task in range(60)}
        assert left({*ward.pids.values()}, SOON) == set()

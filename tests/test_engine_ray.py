"""The engine on Ray keeps the contract of engines, here and on hosts that join; without Ray it says what to install."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.runtime.effects.engine import opened
from purestep.runtime.effects.engine.interface import EngineError, Failure, late
from purestep.runtime.effects.engine.processes_there import hosting
from purestep.runtime.effects.engine.ray_folders import PREFIX, made, sweep
from purestep.runtime.effects.engine.ray_hosts import hosted
from purestep.runtime.effects.engine.ray_version import tried

from .engine_contract import CONTRACT, FOUND, SOON, Bench, Claim, descendants, left, name_of, path_with, values
from .programs import first_line, last_words

HERE = Path(__file__).parent
KEY = "0123456789abcdef" * 2
INSTALLED = find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="Ray is an extra")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PURESTEP_KEY", KEY)
        with opened("ray") as cluster:
            yield Bench(
                cluster=cluster,
                host=lambda: hosted("127.0.0.1:0", KEY.encode()),
                opened=lambda: opened("ray"),
                nowhere="127.0.0.1:1",
                start=10.0,
                quiet=1.0,
            )


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("claim", CONTRACT, ids=name_of)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)


def test_what_a_kill_has_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, hold = made()
    old = tmp_path / f"{PREFIX}old"
    old.mkdir()
    (old / "log").write_text("")
    assert sweep(tmp_path) == 0  # it may be about to be taken hold of
    assert sweep(tmp_path, young=0.0) == 1
    assert [*tmp_path.iterdir()] == [Path(folder)]
    os.close(hold)
    assert sweep(tmp_path, young=0.0) == 1


@pytest.mark.skipif(INSTALLED, reason="it is there")
def test_without_ray_it_says_what_to_install() -> None:
    for there in (opened("ray"), hosted("127.0.0.1:0", KEY.encode())):
        with (
            pytest.raises(EngineError, match=r"ray is not installed, wanted installed; pip install 'purestep\[ray\]'"),
            there,
        ):
            pass


@pytest.mark.parametrize("version", ["2.59.1", "2.61.0", "3.0.0", "2.6.0", "1.60", "dev", ""])
def test_a_version_that_was_not_tried_is_refused(version: str) -> None:
    assert tried("2.60.7") == "2.60.7"
    with pytest.raises(EngineError, match=f"version of ray is {version}, wanted 2.60; pip install"):
        tried(version)


# --- beyond the contract ---


@contextmanager
def said(*command: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process in a session of its own, and the first line it prints; killed after the block."""
    own = {"PURESTEP_KEY": KEY, "PYTHONPATH": path_with(HERE), "RAY_AUTH_MODE": "disabled"}
    environment = {**os.environ, **own, **more}
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        yield process, first_line(process)
    finally:
        last_words(process)


def host() -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """A host as a process of its own, and its address."""
    return said("-m", "purestep.runtime.cli", "host", "--engine", "ray", "--listen", "127.0.0.1:0")


def part_of(pid: int, name: str) -> int:
    """The process of that name among those that a process has started, and those have."""
    (found,) = (one for one in descendants(pid) if Path(f"/proc/{one}/comm").read_text().strip() == name)
    return found


@pytest.mark.slow
@needs_ray
def test_hosts_are_lost_and_others_take_their_place(bench: Bench) -> None:
    with host() as (one, a), host() as (two, b), host() as (three, c), opened("ray", hosts=(a, b)) as cluster:
        assert cluster.hosts() == (a, b)
        mesh, other = (
            cluster.spawn(Counter, size=2, timeout=SOON),
            cluster.spawn(Counter, size=1, hosts=(b,), timeout=SOON),
        )
        pids, children = values(mesh, "pid"), values(mesh, "child")
        assert {*pids, *children} <= descendants(one.pid) | descendants(two.pid)
        waiting = mesh.ask("nap", (SOON,), timeout=4 * FOUND)
        one.kill()  # with all that it has to say
        told = cluster.failure(FOUND)
        assert isinstance(told, Failure)
        assert (told.host, told.mesh, told.member) == (a, mesh.number, 0)
        assert "its host is lost" in told.why
        assert cluster.hosts() == (b,)
        assert [getattr(answer, "lost", None) for answer in waiting()] == [True, False]
        assert values(other, "add", 1) == [1]
        assert left({pids[0], children[0]}, SOON) == set()
        assert cluster.add_host(c, timeout=SOON) == c
        again = cluster.spawn(Counter, size=2, timeout=SOON)
        assert again.hosts == (b, c)
        assert values(again, "add", 1) == [1, 1]
        os.kill(part_of(three.pid, "raylet"), signal.SIGKILL)  # the host is there, its node is not
        told = cluster.failure(FOUND)
        assert isinstance(told, Failure)
        assert (told.host, told.mesh, told.member) == (c, again.number, 1)
        assert values(other, "add", 1) == [2]
        assert cluster.failure(bench.quiet) == ()
        until = time.monotonic() + SOON
        while cluster.hosts() != (b,) and time.monotonic() < until:
            time.sleep(0.05)
        assert cluster.hosts() == (b,)
        cluster.add_host(c, timeout=SOON)  # it takes part again
        assert values(cluster.spawn(Counter, size=1, hosts=(c,), timeout=SOON), "add", 1) == [1]
        there = descendants(two.pid) | descendants(three.pid)
        assert {pids[1], children[1]} <= there
        cluster.stop(timeout=SOON)
        assert left(there, SOON) == set()  # the hosts are there and have nothing left
        assert (two.poll(), three.poll()) == (None, None)
        three.terminate()
        assert three.wait(SOON) == 0


@pytest.mark.slow
@needs_ray
def test_stop_ends_what_cannot_hear_and_what_was_started(bench: Bench) -> None:
    mesh = bench.cluster.spawn(Counter, size=2, timeout=SOON)
    pids, children = values(mesh, "pid"), values(mesh, "child")
    os.kill(pids[0], signal.SIGSTOP)
    assert mesh.slice((0,)).call("add", timeout=0.5) == (late(0.5),)
    mesh.stop(timeout=SOON)
    assert left({*pids, *children}, 0.0) == set()
    killed = bench.cluster.spawn(Counter, size=1, timeout=SOON)
    pids, children = values(killed, "pid"), values(killed, "child")
    os.kill(pids[0], signal.SIGKILL)
    assert isinstance(bench.cluster.failure(FOUND), Failure)
    assert left({*children}) == set()


@pytest.mark.slow
@needs_ray
def test_ray_is_left_as_it_was_found() -> None:
    short = tempfile.TemporaryDirectory(prefix="r")  # in which Ray's sockets can have names
    with short as folder, said(str(HERE / "engine_ray_alone.py"), TMPDIR=folder) as (process, line):
        found = json.loads(line)
        assert {"raylet", "gcs_server"} <= {*found["first"]}  # its processes, one of which was killed
        assert sorted(why[:2] for why in found["told"]) == ["0 ", "1 "]
        assert found["lost"] == [[True, True], []]
        assert found["after"] == 0
        assert found["refused"].startswith("engine ray: Ray is in use by this process, wanted not yet in use; ")
        assert found["kept"]  # the handler of SIGTERM
        assert {*found["changed"]} <= {
            "PYTHONBREAKPOINT",
            "RAY_CLIENT_MODE",
        }  # in the environment, by the import of Ray
        assert len(found["processes"]) >= 8
        assert left({*found["processes"]}, 0.0) == {*found["processes"]}
        assert len([*Path(folder).glob("purestep-node-*")]) == 1
        process.kill()
        assert left({*found["processes"]}, SOON) == set()
        assert [*Path(folder).glob("purestep-node-*")] == []


@pytest.mark.slow
@needs_ray
def test_a_host_for_something_else_is_refused(bench: Bench) -> None:
    with (
        hosting("127.0.0.1:0", KEY.encode()) as address,
        pytest.raises(EngineError, match=r"not joined \(.*--engine ray"),
    ):
        bench.cluster.add_host(address, timeout=SOON)
    with hosted("127.0.0.1:0", KEY.encode()) as address, opened("processes") as cluster:
        cluster.add_host(address, timeout=SOON)
        with pytest.raises(EngineError, match="it has nodes of Ray"):
            cluster.spawn(Counter, size=1, hosts=(address,), timeout=SOON)

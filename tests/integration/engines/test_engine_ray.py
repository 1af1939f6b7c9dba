"""The engine on Ray keeps the contract of engines here; without Ray it says what to install."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.runtime.effects.cluster import open_cluster, serve_host
from purestep.runtime.effects.cluster.interface import EngineError, MemberLost, late
from purestep.runtime.effects.cluster.ray.folders import PREFIX, new_locked_folder, remove_folders
from purestep.runtime.effects.cluster.version import tried

from ...support.engine_contract import (
    CONTRACT,
    FOUND,
    SOON,
    Bench,
    Claim,
    descendants,
    left,
    name_of,
    path_with,
    values,
)
from ...support.programs import first_line, last_words, suspend

HERE = Path(__file__).parents[2] / "support"
INSTALLED = find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="Ray is an extra")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_cluster("ray") as cluster:
        yield Bench(
            cluster=cluster,
            host=None,
            opened=lambda: open_cluster("ray"),
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
    folder, hold = new_locked_folder()
    old = tmp_path / f"{PREFIX}old"
    old.mkdir()
    (old / "log").write_text("")
    assert remove_folders(tmp_path) == 0  # it may be about to be taken hold of
    assert remove_folders(tmp_path, young=0.0) == 1
    assert [*tmp_path.iterdir()] == [Path(folder)]
    os.close(hold)
    assert remove_folders(tmp_path, young=0.0) == 1


@pytest.mark.skipif(INSTALLED, reason="it is there")
def test_without_ray_it_says_what_to_install() -> None:
    why = r"ray is not installed, wanted installed; pip install 'purestep\[ray\]'"
    with pytest.raises(EngineError, match=why), open_cluster("ray"):
        pass
    with pytest.raises(EngineError, match=why):
        serve_host("ray", "127.0.0.1:0", ready=print)


@pytest.mark.parametrize("version", ["2.59.1", "2.61.0", "3.0.0", "2.6.0", "1.60", "dev", ""])
def test_a_version_that_was_not_tried_is_refused(version: str) -> None:
    assert tried("ray", "2.60.7") == "2.60.7"
    with pytest.raises(EngineError, match=f"version of ray is {version}, wanted 2.60; pip install"):
        tried("ray", version)


# --- beyond the contract ---


@contextmanager
def said(*command: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process in a session of its own, and the first line it prints; killed after the block."""
    own = {"PYTHONPATH": path_with(HERE), "RAY_AUTH_MODE": "disabled"}
    environment = {**os.environ, **own, **more}
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        yield process, first_line(process)
    finally:
        last_words(process)


@pytest.mark.slow
@needs_ray
def test_stop_ends_what_cannot_hear_and_what_was_started(bench: Bench) -> None:
    mesh = bench.cluster.spawn(Counter, size=2, timeout=SOON)
    pids, children = values(mesh, "pid"), values(mesh, "child")
    suspend(pids[0])
    assert mesh.slice((0,)).call("add", timeout=0.5) == (late(0.5),)
    mesh.stop(timeout=SOON)
    assert left({*pids, *children}, 0.0) == set()
    killed = bench.cluster.spawn(Counter, size=1, timeout=SOON)
    pids, children = values(killed, "pid"), values(killed, "child")
    os.kill(pids[0], signal.SIGKILL)
    assert isinstance(bench.cluster.failure(FOUND), MemberLost)
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
def test_hosts_are_nodes_of_ray(bench: Bench) -> None:
    why = "^host 10.0.0.2:7000 is given to the engine ray, wanted a node of Ray; run `ray start"
    with pytest.raises(EngineError, match=why), open_cluster("ray", hosts=("10.0.0.2:7000",)):
        pass
    with pytest.raises(EngineError, match=why):
        bench.cluster.add_host("10.0.0.2:7000", timeout=1.0)
    with pytest.raises(EngineError, match=why):
        serve_host("ray", "10.0.0.2:7000", ready=print)


@pytest.mark.slow
@needs_ray
def test_a_ray_of_this_machine_listens_here_alone(bench: Bench) -> None:
    ours, listening = descendants(), set[str]()
    for line in subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines():
        if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & ours:
            listening.add(line.split()[3].rpartition(":")[0].strip("[]").removeprefix("::ffff:"))
    assert listening == {"127.0.0.1"}

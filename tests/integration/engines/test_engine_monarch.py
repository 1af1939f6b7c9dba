"""The engine on Monarch keeps the contract of engines, here and on hosts that join; without Monarch it says what to install."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import EngineError, MemberLost, late
from purestep.runtime.effects.cluster.monarch.engine import SILENCE, hosted
from purestep.runtime.effects.cluster.monarch.members import LEAST
from purestep.runtime.effects.cluster.monarch.runtime import check_reached
from purestep.runtime.effects.cluster.version import installed, tried

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
INSTALLED = find_spec("monarch") is not None
needs_monarch = pytest.mark.skipif(not INSTALLED, reason="Monarch is an extra")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_cluster("monarch") as cluster:
        yield Bench(
            cluster=cluster,
            host=further,
            opened=lambda: open_cluster("monarch"),
            nowhere="127.0.0.1:1",
            start=8.0,
            quiet=1.0,
        )


@contextmanager
def further() -> Iterator[str]:
    with hosted("127.0.0.1:0") as (address, _):
        yield address


@pytest.mark.slow
@needs_monarch
@pytest.mark.parametrize("claim", CONTRACT, ids=name_of)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)


@pytest.mark.skipif(INSTALLED, reason="it is there")
def test_without_monarch_it_says_what_to_install() -> None:
    why = r"torchmonarch is not installed, wanted installed; pip install 'purestep\[monarch\]'"
    for there in (open_cluster("monarch"), hosted("127.0.0.1:0")):
        with pytest.raises(EngineError, match=why), there:
            pass


@pytest.mark.parametrize("version", ["0.6.9", "0.8.0", "0.70.0", "1.0.7", "10.7", "dev", ""])
def test_a_version_that_was_not_tried_is_refused(version: str) -> None:
    assert tried("monarch", "0.7.1") == "0.7.1"
    assert tried("monarch", "0.7.0rc2") == "0.7.0rc2"
    with pytest.raises(EngineError, match=f"version of torchmonarch is {version}, wanted 0.7.x; pip install"):
        tried("monarch", version)


def test_a_host_that_cannot_reach_us_is_refused() -> None:
    with pytest.raises(EngineError, match=r"host 10.0.0.2:7000 is unable to reach us at 127.0.0.1, .* new process"):
        check_reached("127.0.0.1", "10.0.0.1", "10.0.0.2:7000")


def test_another_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(EngineError, match="the system is darwin, wanted linux"):
        installed("monarch")


# --- beyond the contract ---


@contextmanager
def said(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process in a session of its own, and the first line it prints; killed after the block."""
    environment = {**os.environ, "PYTHONPATH": path_with(HERE)}
    process = subprocess.Popen([*command], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    try:
        yield process, first_line(process)
    finally:
        last_words(process)


def host(listen: str = "127.0.0.1:0", *before: str) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """A host as a process of its own, and its address."""
    return said(*before, sys.executable, "-m", "purestep.runtime.cli.main", "host", "--listen", listen)


def node_of(pid: int) -> int:
    """The host of Monarch that a process has started."""
    (found,) = (one for one in descendants(pid) if b"host of Monarch" in Path(f"/proc/{one}/cmdline").read_bytes())
    return found


@pytest.mark.slow
@needs_monarch
def test_hosts_are_lost_and_others_take_their_place(bench: Bench) -> None:
    with host() as (one, a), host() as (two, b), open_cluster("monarch", hosts=(a, b)) as cluster:
        assert cluster.hosts() == (a, b)
        mesh = cluster.spawn(Counter, size=2, timeout=SOON)
        other = cluster.spawn(Counter, size=1, hosts=(b,), timeout=SOON)
        pids, children = values(mesh, "pid"), values(mesh, "child")
        assert pids[0] in descendants(one.pid)
        assert {pids[1], children[1]} <= descendants(two.pid)
        waiting = mesh.ask("nap", (SOON,), timeout=SILENCE + 2 * FOUND)
        one.kill()
        assert_lost(cluster.failure(SILENCE + FOUND), (a, mesh.number, 0))
        assert cluster.hosts() == (b,)
        assert [getattr(answer, "lost", None) for answer in waiting()] == [True, False]
        assert values(other, "add", 1) == [1]
        assert left({pids[0], children[0]}, SOON) == set()
        with host(a) as (three, c):
            assert cluster.add_host(c, timeout=SOON) == a  # the same address, and another host
            again = cluster.spawn(Counter, size=2, timeout=SOON)
            assert again.hosts == (b, c)
            assert values(again, "add", 1) == [1, 1]
            there = descendants(two.pid) | descendants(three.pid)
            assert {pids[1], children[1]} <= there
            cluster.stop(timeout=SOON)
            assert left({pids[1], children[1]}, SOON) == set()  # the hosts are there and have nothing of ours left
            assert (two.poll(), three.poll()) == (None, None)
            os.kill(node_of(two.pid), signal.SIGKILL)  # the host is there, Monarch's is not
            assert two.wait(SOON) == 1
            three.terminate()
            assert three.wait(SOON) == 0
            assert left(there, SOON) == set()


def assert_lost(told: MemberLost | tuple[()], whom: tuple[str, int, int]) -> None:
    assert isinstance(told, MemberLost)
    assert (told.host, told.mesh, told.member) == whom
    assert "its host is lost" in told.why


@pytest.mark.slow
@needs_monarch
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
    told = bench.cluster.failure(FOUND)
    assert isinstance(told, MemberLost)
    assert told.why == "its process ended (SIGKILL)"
    assert left({*children}) == set()


@pytest.mark.slow
@needs_monarch
def test_a_process_survives_its_actors_and_leaves_nothing() -> None:
    with said(sys.executable, str(HERE / "engine_monarch_alone.py")) as (process, line):
        found = json.loads(line)
        assert sorted(why[:16] for why in found["told"]) == ["0 its host is lo", "1 its host is lo"]
        assert found["lost"] == [[True, True], []]
        assert found["after"] == 0
        assert "mine" in found["heard"]  # what concerns others reaches them
        assert "purestep" not in found["heard"]
        assert found["changed"] == []  # in the environment
        assert len(found["processes"]) >= 5
        assert left({*found["processes"]}, 0.0) == {*found["processes"]}
        process.kill()
        assert left({*found["processes"]}, SOON) == set()


@pytest.mark.slow
@needs_monarch
def test_a_host_serves_two_runs_and_ends_what_a_killed_one_has_left() -> None:
    with host() as (one, a), said(sys.executable, str(HERE / "engine_monarch_guest.py"), a) as (guest, line):
        theirs = {int(word) for word in line.split()}
        with open_cluster("monarch", hosts=(a,)) as cluster:
            mesh = cluster.spawn(Counter, size=1, timeout=SOON)
            guest.kill()
            assert left(theirs, 2 * LEAST + FOUND) == set()
            assert values(mesh, "add", 1) == [1]
        assert one.poll() is None


@pytest.mark.slow
@needs_monarch
def test_a_host_listens_at_one_address_that_is_its_own() -> None:
    with pytest.raises(EngineError, match="is any address of this machine, wanted one address"), hosted("0.0.0.0:0"):
        pass
    with (
        pytest.raises(EngineError, match=r"a host of Monarch is not begun \(.*, wanted running; see that its address"),
        hosted("192.0.2.77:0"),
    ):
        pass

"""The engine on a cluster of Ray that somebody else has started: its nodes are the hosts, and it is there afterwards."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.engine import opened
from purestep.runtime.effects.engine.interface import EngineError, Failure
from purestep.runtime.effects.engine.ray_nodes import Node, head, joining

from .engine_contract import FOUND, SOON, descendants, left, values

TOKEN = "0123456789abcdef" * 4
pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")]


@pytest.fixture
def there() -> Iterator[Node]:
    """A node that is none of the engine's, and what a user of it has in the environment."""
    node = head("", TOKEN, timeout=2 * SOON)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # for nodes that join
            patch.setenv("RAY_ADDRESS", node.gcs)
            patch.setenv("RAY_AUTH_MODE", "token")
            patch.setenv("RAY_AUTH_TOKEN", TOKEN)
            yield node
    finally:
        node.end()


def soon(so: Callable[[], bool]) -> bool:
    """Whether something comes to be so."""
    until = time.monotonic() + SOON
    while not so() and time.monotonic() < until:
        time.sleep(0.05)
    return so()


def test_nodes_come_and_go(there: Node) -> None:
    before = descendants()
    with opened("ray") as cluster:
        (first,) = cluster.hosts()
        assert first == there.ip
        mesh = cluster.spawn(Counter, size=2, timeout=SOON)
        pids = values(mesh, "pid")
        os.kill(pids[0], signal.SIGKILL)
        told = cluster.failure(FOUND)
        assert isinstance(told, Failure)
        assert (told.host, told.mesh, told.member) == (first, mesh.number, 0)
        with pytest.raises(EngineError, match=r"host 10\.0\.0\.9 is none of .*, wanted a node of Ray"):
            cluster.add_host("10.0.0.9", timeout=0.2)
        other = joining(there.gcs, "", TOKEN, timeout=2 * SOON)
        try:
            assert soon(lambda: len(cluster.hosts()) == 2)
            second = cluster.hosts()[1]
            assert second.startswith(f"{first}:")  # both are on this machine
            assert cluster.add_host(second, timeout=SOON) == second
            again = cluster.spawn(Counter, size=2, timeout=SOON)
            assert again.hosts == (first, second)
            pids += values(again, "pid")
        finally:
            other.end()
        told = cluster.failure(SOON)
        assert isinstance(told, Failure)
        assert (told.host, told.mesh, told.member) == (second, again.number, 1)
        assert soon(lambda: cluster.hosts() == (first,))
        assert values(mesh.slice((1,)), "add", 1) == values(again.slice((0,)), "add", 1) == [1]
    assert left({*pids}) == set()
    assert there.running()
    assert descendants() >= before - {*pids}
    with pytest.MonkeyPatch.context() as patch, opened("ray") as cluster:  # it can be used again
        patch.delenv("RAY_ADDRESS")
        with pytest.raises(EngineError, match="Ray is in use by another cluster"), opened("ray"):
            pass


def test_one_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with (
        pytest.raises(EngineError, match=r"engine ray: 127.0.0.1:1 is unreachable .* or unset RAY_ADDRESS"),
        opened("ray"),
    ):
        pass
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    with pytest.raises(ChoiceError, match="address is 'nowhere', wanted HOST:PORT"), opened("ray"):
        pass

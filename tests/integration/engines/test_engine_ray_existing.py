"""The engine on a cluster of Ray that `ray start` began: its nodes are the hosts, and it is there afterwards."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import EngineError, MemberLost
from purestep.runtime.effects.weight_sync import weight_publisher
from purestep.runtime.effects.weight_sync.shared_memory.layout import WeightsError

from ...support.engine_contract import FOUND, SOON, left, values
from ...support.ray_clusters import TOKEN, Node, head, node, own_address

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Node]:
    """A cluster that is none of the engine's, and what a user of it has in the environment."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        with head(own_address()) as first:
            patch.setenv("RAY_ADDRESS", first.address)
            yield first


def soon(so: Callable[[], bool]) -> bool:
    """Whether something comes to be so."""
    until = time.monotonic() + 2 * SOON
    while not so() and time.monotonic() < until:
        time.sleep(0.05)
    return so()


def test_nodes_come_and_go(there: Node) -> None:
    with open_cluster("ray") as cluster:
        (first,) = cluster.hosts()
        assert first == there.address.rpartition(":")[0]
        mesh = cluster.spawn(Counter, size=2, timeout=SOON)
        pids = values(mesh, "pid")
        os.kill(pids[0], signal.SIGKILL)
        told = cluster.failure(FOUND)
        assert isinstance(told, MemberLost)
        assert (told.host, told.mesh, told.member) == (first, mesh.number, 0)
        with pytest.raises(EngineError, match=r"host 10\.0\.0\.9 is none of .*, wanted a node of Ray"):
            cluster.add_host("10.0.0.9", timeout=0.2)
        with node(f"--address={there.address}"):
            assert soon(lambda: len(cluster.hosts()) == 2)
            second = cluster.hosts()[1]
            assert second.startswith(f"{first}:")  # both are on this machine
            assert cluster.add_host(second, timeout=SOON) == second
            again = cluster.spawn(Counter, size=2, timeout=SOON)
            assert again.hosts == (first, second)
            pids += values(again, "pid")
        told = cluster.failure(SOON)
        assert isinstance(told, MemberLost)
        assert (told.host, told.mesh, told.member) == (second, again.number, 1)
        assert soon(lambda: cluster.hosts() == (first,))
        assert values(mesh.slice((1,)), "add", 1) == values(again.slice((0,)), "add", 1) == [1]
        refused = pytest.raises(WeightsError, match=rf"Ray's object store on {first} is \d+ bytes, wanted at least")
        with refused, weight_publisher("ray", {"w": torch.zeros(30_000_000)}):
            pass
    assert left({*pids}) == set()
    assert there.process.poll() is None
    with pytest.MonkeyPatch.context() as patch, open_cluster("ray") as cluster:  # it can be used again
        patch.delenv("RAY_ADDRESS")
        with pytest.raises(EngineError, match="Ray is in use by another cluster"), open_cluster("ray"):
            pass


def test_one_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with (
        pytest.raises(EngineError, match=r"engine ray: 127.0.0.1:1 is unreachable .* or unset RAY_ADDRESS"),
        open_cluster("ray"),
    ):
        pass
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    with pytest.raises(ChoiceError, match="address is 'nowhere', wanted HOST:PORT"), open_cluster("ray"):
        pass

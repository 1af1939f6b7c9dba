"""The engine `ray` on two hosts in namespaces of their own: a slow line, a lost link, a killed host."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.ray_engine import clustered

from .engine_contract import SOON, left
from .engine_hosts import Host, alive_behind_a_slow_line, behind, hosted, outlives_a_lost_link_and_a_killed_host
from .engine_spaces import spaces

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")]
SILENCE = 5.0  # Ray's starts may keep a machine with few cores from all else for seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def hosts(folder: Path) -> Iterator[Sequence[Host]]:
    with spaces(2) as there, hosted("ray", there, folder) as found:
        yield found


def test_a_slow_line_that_loses_packets_loses_nobody(hosts: Sequence[Host], folder: Path) -> None:
    addresses = tuple(host.address for host in hosts)
    with behind(hosts[0]) as wire, clustered(addresses, key=folder / "key", silence=SILENCE) as cluster:
        alive_behind_a_slow_line(cluster, hosts, wire)


def test_a_crew_outlives_a_lost_link_and_a_killed_host(
    hosts: Sequence[Host], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    body = import_module("space_bodies").slow
    addresses = tuple(host.address for host in hosts)
    with clustered(addresses, key=folder / "key", silence=SILENCE) as cluster:
        ward = outlives_a_lost_link_and_a_killed_host(cluster, hosts, body)
    assert left({*ward.pids.values()}, SOON) == set()

"""The engine `processes` on two hosts in namespaces of their own: a slow line, a lost link, a killed host."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.processes import clustered

from .engine_contract import left
from .engine_hosts import Host, alive_behind_a_slow_line, behind, hosted, outlives_a_lost_link_and_a_killed_host
from .engine_spaces import spaces

pytestmark = pytest.mark.slow
SILENCE = 1.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def hosts(folder: Path) -> Iterator[Sequence[Host]]:
    with spaces(2) as there, hosted("processes", there, folder) as found:
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
    first, second = (host.address for host in hosts)
    with clustered((first, second), key=folder / "key", silence=SILENCE) as cluster:
        ward = outlives_a_lost_link_and_a_killed_host(cluster, hosts, body)
        assert f"its host is lost (silent for {SILENCE} s)" in ward.losses[0].why
        assert all(one.why.startswith("died: its host is lost (") for one in ward.losses)
        told = [cluster.failure(1.0) for _ in range(4)]
        assert [getattr(one, "host", "") for one in told] == [first, second, second, ""]
    assert left({*ward.pids.values()}) == set()

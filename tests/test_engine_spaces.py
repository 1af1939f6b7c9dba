"""The engine `processes` on two hosts in namespaces of their own: a slow line, a lost link, a killed host."""

from importlib import import_module
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.processes import clustered

from .engine_contract import left
from .engine_hosts import alive_behind_a_slow_line, behind, hosted, outlives_a_lost_link_and_a_killed_host
from .engine_spaces import spaces

pytestmark = pytest.mark.slow
SILENCE = 1.5


def test_two_hosts_lose_nobody_to_a_slow_line_and_their_crew_outlives_a_lost_link_and_a_killed_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other on the same hosts, of which one is killed at last."""
    key = tmp_path / "key"
    with spaces(2) as there, hosted("processes", there, tmp_path) as hosts:
        first, second = addresses = tuple(host.address for host in hosts)
        with behind(hosts[0]) as wire, clustered(addresses, key=key, silence=SILENCE) as cluster:
            alive_behind_a_slow_line(cluster, hosts, wire)
        monkeypatch.syspath_prepend(str(tmp_path))
        body = import_module("space_bodies").slow
        with clustered(addresses, key=key, silence=SILENCE) as cluster:
            ward = outlives_a_lost_link_and_a_killed_host(cluster, hosts, body)
            assert f"its host is lost (silent for {SILENCE} s)" in ward.losses[0].why
            assert all(one.why.startswith("died: its host is lost (") for one in ward.losses)
            told = [cluster.failure(1.0) for _ in range(4)]
            assert [getattr(one, "host", "") for one in told] == [first, second, second, ""]
        assert left({*ward.pids.values()}) == set()

"""The engine `ray` on two hosts in namespaces of their own: a slow line, a lost link, a killed host."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.ray_engine import clustered

from .engine_contract import SOON, left
from .engine_hosts import alive_behind_a_slow_line, behind, hosted, outlives_a_lost_link_and_a_killed_host
from .engine_spaces import spaces

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")]
SILENCE = 5.0  # Ray's starts may keep a machine with few cores from all else for seconds


def test_two_hosts_lose_nobody_to_a_slow_line_and_their_crew_outlives_a_lost_link_and_a_killed_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other on the same hosts, of which one is killed at last."""
    key = tmp_path / "key"
    with spaces(2) as there, hosted("ray", there, tmp_path) as hosts:
        addresses = tuple(host.address for host in hosts)
        with behind(hosts[0]) as wire, clustered(addresses, key=key, silence=SILENCE) as cluster:
            alive_behind_a_slow_line(cluster, hosts, wire)
        monkeypatch.syspath_prepend(str(tmp_path))
        body = import_module("space_bodies").slow
        with clustered(addresses, key=key, silence=SILENCE) as cluster:
            ward = outlives_a_lost_link_and_a_killed_host(cluster, hosts, body)
        assert left({*ward.pids.values()}, SOON) == set()

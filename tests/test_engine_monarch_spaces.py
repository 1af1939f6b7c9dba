"""The engine `monarch` on two hosts in namespaces of their own: a slow line, a lost link, a killed host.

Monarch listens at one address in a process, so that this runs in a process of its own.
"""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.monarch_engine import clustered

from .engine_contract import SOON, left
from .engine_hosts import alive_behind_a_slow_line, behind, hosted, outlives_a_lost_link_and_a_killed_host
from .engine_spaces import spaces

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("monarch") is None, reason="Monarch is an extra")]
ALONE = "PURESTEP_TEST_ALONE"
SILENCE = 3.0
alone = pytest.mark.skipif(ALONE not in os.environ, reason="it runs in a process of its own")


@pytest.mark.skipif(ALONE in os.environ, reason="it is that process")
def test_in_a_process_of_its_own() -> None:
    with spaces(1):
        pass  # it is skipped here where they are not allowed
    command = [sys.executable, "-m", "pytest", "-q", "-m", "slow", "-p", "no:cacheprovider", str(Path(__file__))]
    run = subprocess.run(command, env={**os.environ, ALONE: "1"}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 passed, 1 skipped" in run.stdout


@alone
def test_two_hosts_lose_nobody_to_a_slow_line_and_their_crew_outlives_a_lost_link_and_a_killed_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other on the same hosts, of which one is killed at last."""
    key = tmp_path / "key"
    with spaces(2) as there, hosted("monarch", there, tmp_path) as hosts:
        addresses = tuple(host.address for host in hosts)
        with behind(hosts[0]) as wire, clustered(addresses, key=key, silence=SILENCE) as cluster:
            alive_behind_a_slow_line(cluster, hosts, wire)
        monkeypatch.syspath_prepend(str(tmp_path))
        body = import_module("space_bodies").slow
        with clustered(addresses, key=key, silence=SILENCE) as cluster:
            ward = outlives_a_lost_link_and_a_killed_host(cluster, hosts, body)
        assert left({*ward.pids.values()}, SOON) == set()

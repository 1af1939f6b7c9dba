"""The engine `monarch` on two hosts in namespaces of their own: a slow line, a lost link, a killed host.

Monarch listens at one address in a process, so that this runs in a process of its own.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.cluster.monarch.engine import clustered

from ...support.engine_hosts import outlived
from ...support.engine_spaces import spaces

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
    monkeypatch.syspath_prepend(str(tmp_path))
    assert outlived("monarch", clustered, SILENCE, tmp_path)

"""The engine `ray` on two hosts in namespaces of their own: a slow line, a lost link, a killed host."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.engine.ray_engine import clustered

from .engine_hosts import outlived

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra")]
SILENCE = 5.0  # Ray's starts may keep a machine with few cores from all else for seconds


def test_two_hosts_lose_nobody_to_a_slow_line_and_their_crew_outlives_a_lost_link_and_a_killed_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert outlived("ray", clustered, SILENCE, tmp_path)

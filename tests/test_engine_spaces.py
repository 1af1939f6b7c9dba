"""The engine `processes` on two hosts in namespaces of their own: a slow line, a lost link, a killed host."""

from pathlib import Path

import pytest

from purestep.runtime.effects.engine.processes import clustered

from .engine_hosts import outlived

pytestmark = pytest.mark.slow
SILENCE = 1.5


def test_two_hosts_lose_nobody_to_a_slow_line_and_their_crew_outlives_a_lost_link_and_a_killed_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    losses = outlived("processes", clustered, SILENCE, tmp_path)
    assert f"its host is lost (silent for {SILENCE} s)" in losses[0].why
    assert all(one.why.startswith("died: its host is lost (") for one in losses)

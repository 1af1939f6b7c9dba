"""The engine of plain processes keeps the contract of engines, on this machine alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from purestep.runtime.effects.cluster import open_cluster, serve_host
from purestep.runtime.effects.cluster.interface import EngineError

from ...support.engine_contract import CONTRACT, Bench, Claim, name_of

LONG = ("what_does_not_begin_leaves_nothing", "time_runs_out", "a_busy_member_delays_nobody_else")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with open_cluster("processes") as cluster:
        yield Bench(
            cluster=cluster,
            host=None,
            opened=lambda: open_cluster("processes"),
            nowhere="127.0.0.1:1",
            start=2.0,
            quiet=0.3,
        )


@pytest.mark.parametrize(
    "claim",
    [pytest.param(one, marks=pytest.mark.slow if name_of(one) in LONG else [], id=name_of(one)) for one in CONTRACT],
)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)


def test_other_hosts_are_those_of_other_engines(bench: Bench) -> None:
    why = "^host 10.0.0.2:7000 is given to the engine processes, wanted this machine alone; take the engine monarch .* or ray"
    with pytest.raises(EngineError, match=why), open_cluster("processes", hosts=("10.0.0.2:7000",)):
        pass
    with pytest.raises(EngineError, match=why):
        bench.cluster.add_host("10.0.0.2:7000", timeout=1.0)
    with pytest.raises(EngineError, match=why):
        serve_host("processes", "10.0.0.2:7000", ready=print)

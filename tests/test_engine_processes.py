"""The engine of plain processes keeps the contract of engines, on this machine and on hosts over TCP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from purestep.runtime.effects.engine import opened
from purestep.runtime.effects.engine.processes_there import hosting

from .engine_contract import CONTRACT, Bench, Claim, name_of

KEY = "0123456789abcdef" * 2


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PURESTEP_KEY", KEY)
        yield


@pytest.fixture(scope="module")
def bench(key: None) -> Iterator[Bench]:
    with opened("processes") as cluster:
        yield Bench(
            cluster=cluster,
            host=lambda: hosting("127.0.0.1:0", KEY.encode()),
            opened=lambda: opened("processes"),
            nowhere="127.0.0.1:1",
            start=2.0,
            quiet=0.3,
        )


@pytest.mark.parametrize("claim", CONTRACT, ids=name_of)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)

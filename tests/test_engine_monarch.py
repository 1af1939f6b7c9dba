"""The engine on Monarch keeps the contract of engines, on this machine and on hosts that join."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from purestep.runtime.effects.engine import opened

from .engine_contract import CONTRACT, Bench, Claim, name_of

pytest.importorskip("monarch")

from purestep.runtime.effects.engine.monarch_engine import hosted

KEY = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PURESTEP_KEY", KEY)
        with opened("monarch") as cluster:
            yield Bench(
                cluster=cluster,
                host=lambda: hosted("127.0.0.1:0", KEY.encode()),
                opened=lambda: opened("monarch"),
                nowhere="127.0.0.1:1",
                start=2.0,
                quiet=1.0,
            )


@pytest.mark.parametrize("claim", CONTRACT, ids=name_of)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)

"""The engine on Ray keeps the contract of engines, on this machine and on hosts that join; without Ray it says what to install."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from purestep.runtime.effects.engine import opened
from purestep.runtime.effects.engine.interface import EngineError
from purestep.runtime.effects.engine.ray_hosts import hosted
from purestep.runtime.effects.engine.ray_version import tried

from .engine_contract import CONTRACT, Bench, Claim, name_of

KEY = "0123456789abcdef" * 2
INSTALLED = find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="Ray is an extra")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PURESTEP_KEY", KEY)
        with opened("ray") as cluster:
            yield Bench(
                cluster=cluster,
                host=lambda: hosted("127.0.0.1:0", KEY.encode()),
                opened=lambda: opened("ray"),
                nowhere="127.0.0.1:1",
                start=10.0,
                quiet=1.0,
            )


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("claim", CONTRACT, ids=name_of)
def test_the_contract(claim: Claim, bench: Bench, tmp_path: Path) -> None:
    claim(bench, tmp_path)


@pytest.mark.skipif(INSTALLED, reason="it is there")
def test_without_ray_it_says_what_to_install() -> None:
    for there in (opened("ray"), hosted("127.0.0.1:0", KEY.encode())):
        with (
            pytest.raises(EngineError, match=r"ray is not installed, wanted installed; pip install 'purestep\[ray\]'"),
            there,
        ):
            pass


@pytest.mark.parametrize("version", ["2.59.1", "2.61.0", "3.0.0", "2.6.0", "1.60", "dev", ""])
def test_a_version_that_was_not_tried_is_refused(version: str) -> None:
    assert tried("2.60.7") == "2.60.7"
    with pytest.raises(EngineError, match=f"version of ray is {version}, wanted 2.60; pip install"):
        tried(version)

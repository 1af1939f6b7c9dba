"""Engines that cannot be had are refused before anything of theirs is imported; who waits says how long."""

import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
from engine_actors import Plain  # type: ignore[import-not-found]

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Cluster, Done, EngineError
from purestep.runtime.effects.cluster.monarch import engine as monarch_engine
from purestep.runtime.effects.cluster.monarch import runtime
from purestep.runtime.effects.weight_sync import weight_publisher, weight_reader

WRONG = {"monarch": ("torchmonarch", "0.8.0", "0.7.x"), "ray": ("ray", "2.61.0", "2.60")}


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of packages, in place of what is installed."""
    told: dict[str, str] = {}
    installed = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: told.get(name) or installed(name))
    monkeypatch.setattr(monarch_engine, "shared", type(runtime.shared)())  # as in a process that has not used it
    return told


@pytest.mark.parametrize("engine", WRONG)
def test_an_engine_of_another_version_is_refused_by_name(engine: Any, versions: dict[str, str]) -> None:
    package, version, wanted = WRONG[engine]
    versions[package] = version
    there = {name for name in sys.modules if name.partition(".")[0] == engine}
    said = rf"^engine {engine}: the version of {package} is {version}, wanted {wanted}; pip install 'purestep\[{engine}\]'$"
    with pytest.raises(EngineError, match=said), open_cluster(engine):
        pass
    assert {name for name in sys.modules if name.partition(".")[0] == engine} == there


def test_weights_by_monarch_ask_for_the_same_version(versions: dict[str, str]) -> None:
    versions["torchmonarch"] = "0.8.0"
    for made in (weight_publisher("monarch", {}), weight_reader("monarch://gAROLg==", {})):
        with pytest.raises(EngineError, match=r"torchmonarch is 0\.8\.0, wanted 0\.7\.x"), made:
            pass


def test_an_engine_that_nobody_knows_is_refused() -> None:
    with (
        pytest.raises(ChoiceError, match=r"engine is 'dask', wanted one of \['monarch', 'processes', 'ray'\]"),
        open_cluster("dask"),
    ):
        pass


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with open_cluster("processes") as found:
        yield found


def test_whoever_waits_says_how_long(cluster: Cluster) -> None:
    mesh = cluster.spawn(Plain, size=1, timeout=30.0)
    waits: dict[str, Any] = {
        "call": lambda **more: mesh.call("word", **more),
        "ask": lambda **more: mesh.ask("word", **more),
        "slice": lambda **more: mesh.slice((0,)).call("word", **more),
        "stop": mesh.stop,
        "spawn": lambda **more: cluster.spawn(Plain, size=1, **more),
        "end": cluster.stop,
    }
    for act in waits.values():
        with pytest.raises(TypeError, match="timeout"):
            act()
        for none in (0.0, float("inf"), float("nan")):
            with pytest.raises(ChoiceError, match=r"timeout is .*, wanted a number of seconds above 0"):
                act(timeout=none)
    with pytest.raises(TypeError):
        cluster.failure()  # type: ignore[call-arg, misc]
    assert mesh.call("word", timeout=30.0) == (Done("plain"),)
    mesh.stop(timeout=30.0)

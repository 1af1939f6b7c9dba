"""Generators on hosts of an engine: what is refused, how weights reach them, hosts that come again."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen

from purestep.core.errors import CheckpointError, ChoiceError
from purestep.runtime.async_rl import placement
from purestep.runtime.async_rl.placement import assign_generators, on_devices, probe_hosts
from purestep.runtime.async_rl.rollout_worker import Spec, generate
from purestep.runtime.async_rl.version_check import packages
from purestep.runtime.cli import run
from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Cluster, EngineError
from purestep.runtime.effects.cluster.rejoining import rejoining
from purestep.runtime.effects.weight_sync import this_host, weight_reader
from purestep.runtime.effects.workers.pool import WorkerLost, WorkerMessage, in_thread, working
from purestep.runtime.effects.workers.program import Mailbox
from purestep.runtime.recipes.zorplex import zorplex_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.text import run as session
from purestep.runtime.text.async_config import AsyncConfig

from ...support.programs import until
from ...support.run_folders import begun
from ...unit.async_rl.test_asynchronous import silent, tiny

SOON = 60.0


# --- what is refused ---


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": "10.0.0.2:7000"}, "--engine and --hosts is given without generators"),
        ({"engine": "ray"}, "--engine and --hosts is given without generators"),
        ({"mode": "async", "hosts": "a:1", "generator_engine": "thread"}, "--generator-engine is 'thread' with"),
        ({"mode": "async", "engine": "monarch", "hosts": "a:1,10.0.0.2"}, "--hosts is '10.0.0.2', wanted HOST:PORT"),
        ({"mode": "async", "hosts": "a:1,b:1,a:1"}, "--hosts is a:1,b:1,a:1, wanted each host once"),
        ({"mode": "async", "engine": "monarch", "hosts": "a:1", "devices": "meta"}, "--devices is 'meta', wanted cpu"),
        (
            {"mode": "async", "hosts": "a:1"},
            "--hosts is given with --engine processes, .*, wanted --engine monarch, or --engine ray with RAY_ADDRESS",
        ),
        (
            {"mode": "async", "transfer": "monarch"},
            "--transfer is 'monarch' with --engine processes, wanted --engine mon",
        ),
        (
            {"mode": "async", "engine": "monarch", "hosts": "a:1", "transfer": "ray"},
            "--transfer is 'ray' with --engine monarch, wanted --engine ray",
        ),
    ],
)
def test_what_leads_nowhere_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        changed(zorplex_defaults(), given).check()


def test_hosts_that_cannot_be_had_are_told_in_one_line_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for engine, hosts in (("monarch", "127.0.0.1:9"), ("ray", "")):
        gone = tiny(generator_engine="process", engine=engine, hosts=hosts)
        with pytest.raises(EngineError, match=r"127.0.0.1:9 is unreachable|is not installed") as raised:
            session.start(tmp_path / "run", gone, overwrite=False, notice=silent)
        assert "\n" not in str(raised.value)
        assert not (tmp_path / "run" / "arguments.json").exists()


@pytest.mark.parametrize(("engine", "package"), [("monarch", "torchmonarch"), ("ray", "ray")])
def test_an_engine_that_is_not_installed_says_what_to_install(engine: Any, package: str) -> None:
    if find_spec(engine):
        pytest.skip("it is there")
    given = AsyncConfig(engine=engine, hosts="127.0.0.1:9")
    with (
        pytest.raises(EngineError, match=rf"{package} is not installed, .*pip install"),
        assign_generators(given, silent),
    ):
        pass


def elsewhere(verbs: bool = False) -> Any:
    """A host with memory of its own."""
    return evolve(this_host(), name="elsewhere", memory="its own", verbs=verbs)


@contextmanager
def nobodys(name: str, *, hosts: Any = (), store: int = 0) -> Iterator[Cluster]:
    """A cluster of any engine, which is one of plain processes."""
    del name, hosts, store
    with open_cluster("processes") as cluster:
        yield cluster


def test_what_nobody_encrypts_wants_a_network_that_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(placement, "open_cluster", nobodys)
    monkeypatch.setattr(placement, "rejoining", lambda *_: nullcontext())
    monkeypatch.setattr(placement, "weight_publisher", lambda way, params: nullcontext())
    monkeypatch.setattr(placement, "probe_hosts", lambda *_: [elsewhere()])
    given = AsyncConfig(engine="monarch", hosts="10.0.0.2:7000")
    refused = pytest.raises(
        EngineError, match=r"^Monarch's buffers over TCP is not encrypted and goes to 10.0.0.2, .*; --trust-network"
    )
    with refused, assign_generators(given, said.append):
        pass
    assert "without TLS" in said[0]
    assert "Monarch's buffers fall back to TCP" in said[1]
    for more in ({"trust_network": True}, {"hosts": "127.0.0.1:7000"}):
        with assign_generators(evolve(given, **more), said.append):
            pass
    with monkeypatch.context() as encrypted:
        encrypted.setattr(placement, "monarch_scheme", lambda: "tls")
        with assign_generators(given, said.append):
            pass
    monkeypatch.setattr(placement, "this_host", lambda: elsewhere(verbs=True))
    monkeypatch.setattr(placement, "probe_hosts", lambda *_: [elsewhere(verbs=True)])
    with assign_generators(evolve(given, transfer="monarch"), said.append):
        pass
    assert said[-1] == "weights go by monarch: asked for, 1 host, all with RDMA"


@pytest.mark.slow
def test_a_host_with_other_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    has = packages()
    with open_cluster("processes") as cluster:
        assert [one.name for one in probe_hosts(cluster)] == ["local"]
        monkeypatch.setattr(placement, "packages", lambda: {**has, "torch": "0.1"})
        with pytest.raises(ChoiceError, match=rf"host local: torch is {has['torch']}, wanted 0.1 as where it trains"):
            probe_hosts(cluster)
    spec = Spec(arguments=tiny(), tokenizer={}, weights="shared://nowhere", packages={**has, "purestep": "0.0"})
    with pytest.raises(ChoiceError, match=f"purestep is {has['purestep']}, wanted 0.0"):
        generate(None, spec)  # type: ignore[arg-type]


def test_only_where_it_works_may_be_another_where_a_run_is_resumed(tmp_path: Path) -> None:
    begun(tmp_path, {"recipe": "zorplex", "mode": "sync", "generators": -1})
    with pytest.raises(ChoiceError, match="--hosts is given, wanted a run with generators"):
        run.resume_command([str(tmp_path), "--hosts", "10.0.0.2:7000"])
    begun(tmp_path, {"recipe": "zorplex", "mode": "async", "generators": -1})
    with pytest.raises(ChoiceError, match="--server is given, wanted a run without generators"):
        run.resume_command([str(tmp_path), "--server", "http://127.0.0.1:8000/v1"])
    with pytest.raises(CheckpointError):
        session.resume(tmp_path / "absent", notice=silent, moved={"hosts": ""})


# --- weights, and hosts that come again ---


def test_generators_of_this_machine_read_shared_memory() -> None:
    params = {"w": torch.arange(3.0)}
    with assign_generators(AsyncConfig(), silent) as place, place.publishing(params) as weights:
        weights.publish(0, params)
        with weight_reader(weights.address, params) as reader:
            version, found = reader.fetch(-1)
    assert (weights.way, version, found["w"].tolist()) == ("shared", 0, [0.0, 1.0, 2.0])


@frozen
class OnDevice:
    """What a generator is told, as far as it counts here."""

    device: str = "cpu"


def says_device(mailbox: Mailbox, spec: OnDevice) -> None:
    """Says its device, and ends with its first task."""
    mailbox.note(spec.device)
    while not mailbox.receive(1.0):
        pass


def test_a_generator_of_this_machine_gets_the_device_of_the_one_it_replaces() -> None:
    engine, devices = on_devices(in_thread, ("cuda:0", "cuda:1")), list[Any]()
    for _ in range(2):  # the next pool begins anew
        with working(says_device, (OnDevice(),), size=2, patience=SOON, engine=engine) as workers:

            def said(kind: type[Any], workers: Any = workers) -> Any:
                return next(one for one in iter(lambda: workers.receive(SOON), ()) if isinstance(one, kind))

            assert [said(WorkerMessage).payload for _ in range(2)] == ["cuda:0", "cuda:1"]
            workers.send(1, 0, "end")
            assert said(WorkerLost).worker == 1
            devices.append(said(WorkerMessage).payload)
    assert devices == ["cuda:1", "cuda:1"]


@pytest.mark.slow
def test_a_lost_host_is_taken_in_again_whatever_an_engine_raises() -> None:
    """At first nobody listens; its neighbour has never been away."""
    said, there, errors = list[str](), ["neighbour:1"], [RuntimeError("of a\nlibrary")]
    with socket.create_server(("127.0.0.1", 0)) as listener, open_cluster("processes") as cluster:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def add_host(host: str, /, *, timeout: float) -> str:
            if errors:
                raise errors.pop()
            there.append(host)
            return host

        own = evolve(cluster, hosts=lambda: tuple(there), add_host=add_host)
        with rejoining(own, (address, "neighbour:1"), said.append):
            until(lambda: said[-1:] == [f"host {address} is there again"], "it is there again", said=lambda: said)
    assert said == [
        f"host {address} is lost; it is taken in again when it is there",
        f"host {address} listens and cannot be taken in again: of a library",
        f"host {address} is there again",
    ]

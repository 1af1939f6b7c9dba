"""Generators on hosts of an engine: what is refused, how weights reach them, a host that is killed, a run that moves."""

import json
import os
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen

from purestep.core.errors import CheckpointError, ChoiceError
from purestep.runtime import language_commands
from purestep.runtime.asynchronous import placing, session
from purestep.runtime.asynchronous.alike import packages
from purestep.runtime.asynchronous.generating import Spec, generate
from purestep.runtime.asynchronous.placing import on_devices, placed, seen, served_at
from purestep.runtime.asynchronous.replaying import replayed
from purestep.runtime.asynchronous.report import audit
from purestep.runtime.effects.engine import opened
from purestep.runtime.effects.engine.interface import EngineError
from purestep.runtime.effects.engine.outward import outward
from purestep.runtime.effects.engine.processes import clustered
from purestep.runtime.effects.engine.processes_there import hosting
from purestep.runtime.effects.engine.rejoining import rejoining
from purestep.runtime.effects.transfer import inlet, this_host
from purestep.runtime.effects.weights_layout import WeightsError
from purestep.runtime.effects.workers import Lost, Note, working
from purestep.runtime.effects.workers_engines import Mailbox, in_thread
from purestep.runtime.recipes.arguments import changed
from purestep.runtime.recipes.asynchronous import Asynchronous
from purestep.runtime.recipes.zorplex import check, zorplex_defaults

from .engine_spaces import Space, spaces
from .programs import host, until
from .run_folders import begun
from .test_asynchronous import silent, tiny

SOON = 60.0
SECRET = "0123456789abcdef" * 2
ANY = "127.0.0.1:0"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text(SECRET)
    return tmp_path / "key"


# --- what is refused ---


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": "10.0.0.2:7000"}, "--engine and --hosts is given without generators"),
        ({"engine": "ray"}, "--engine and --hosts is given without generators"),
        ({"mode": "async", "hosts": "a:1", "generator_engine": "thread"}, "--generator-engine is 'thread' with"),
        ({"mode": "async", "hosts": "a:1,10.0.0.2"}, "--hosts is '10.0.0.2', wanted HOST:PORT"),
        ({"mode": "async", "hosts": "a:1,b:1,a:1"}, "--hosts is a:1,b:1,a:1, wanted each host once"),
        ({"mode": "async", "hosts": "a:1", "weights": "7100"}, "--weights is '7100', wanted HOST:PORT"),
        ({"mode": "async", "hosts": "a:1", "weights": "a:70000"}, "--weights is 'a:70000', wanted HOST:PORT"),
        (
            {"mode": "async", "hosts": "a:1", "weights": "0.0.0.0:0"},
            "--weights is '0.0.0.0:0', wanted the address under",
        ),
        ({"mode": "async", "hosts": "a:1", "weights": "[::]:7100"}, r"--weights is '\[::\]:7100', wanted the address"),
        ({"mode": "async", "hosts": "a:1", "devices": "meta"}, "--devices is 'meta', wanted cpu"),
        ({"mode": "async", "weights": "a:7100"}, "--weights is given without --hosts"),
        ({"mode": "async", "key": "key"}, "--key is given without --hosts"),
        ({"mode": "async", "transfer": "tcp"}, "--transfer is 'tcp' without --hosts"),
        (
            {"mode": "async", "transfer": "monarch"},
            "--transfer is 'monarch' with --engine processes, wanted --engine mon",
        ),
        (
            {"mode": "async", "engine": "ray", "hosts": "a:1", "transfer": "monarch"},
            "--transfer is 'monarch' with --engine ray",
        ),
        (
            {"mode": "async", "engine": "monarch", "hosts": "a:1", "weights": "a:7100", "transfer": "monarch"},
            "--weights is given with --transfer monarch, wanted one of the two",
        ),
    ],
)
def test_what_leads_nowhere_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        check(changed(zorplex_defaults(), given))


def test_hosts_that_cannot_be_had_are_told_in_one_line_before_anything_is_done(
    key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PURESTEP_KEY", raising=False)
    other = tmp_path / "other"
    other.write_text(SECRET[::-1])
    with hosting(ANY, SECRET.encode()) as address:
        for given, said in (
            ({"hosts": "127.0.0.1:9"}, "PURESTEP_KEY is 0 bytes long"),
            ({"hosts": address, "key": str(other)}, "is not to be had .* has the same key"),
            ({"hosts": "a..b:7000", "key": str(key)}, r"host a\.\.b:7000 is unreachable"),
        ):
            with pytest.raises(EngineError, match=said) as raised, placed(changed(Asynchronous(), given), silent):
                pass
            assert "\n" not in str(raised.value)
    gone = tiny(generator_engine="process", hosts=address, key=str(key))
    with pytest.raises(EngineError, match=f"host {address} is unreachable .*purestep host --listen"):
        session.start(tmp_path / "run", gone, overwrite=False, notice=silent)
    assert not (tmp_path / "run" / "arguments.json").exists()


@pytest.mark.parametrize(("engine", "package"), [("monarch", "torchmonarch"), ("ray", "ray")])
def test_an_engine_that_is_not_installed_says_what_to_install(engine: Any, package: str, key: Path) -> None:
    if find_spec(engine):
        pytest.skip("it is there")
    given = Asynchronous(engine=engine, hosts="127.0.0.1:9", key=str(key))
    with pytest.raises(EngineError, match=rf"{package} is not installed, .*pip install"), placed(given, silent):
        pass


def test_where_weights_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"host a\.\.b:7000 is unreachable"):
        outward("a..b:7000")
    for hosts in ("", ","):
        with pytest.raises(WeightsError, match="--weights is not given, wanted HOST:PORT"):
            served_at(Asynchronous(engine="ray", hosts=hosts))
    with socket.create_server(("127.0.0.1", 0)) as taken, hosting(ANY, SECRET.encode()) as address:
        monkeypatch.setenv("PURESTEP_KEY", SECRET)
        monkeypatch.setattr(placing, "seen", lambda cluster: [this_host(), elsewhere()])
        port = taken.getsockname()[1]
        refused = pytest.raises(WeightsError, match=rf"127.0.0.1:{port} is not to be had .*Address already in use")
        with refused, placed(Asynchronous(hosts=address, weights=f"127.0.0.1:{port}"), silent):
            pass
        with placed(Asynchronous(hosts=address), silent) as place, place.publishing({"w": torch.ones(2)}) as weights:
            weights.publish(3, {"w": torch.ones(2)})
            with inlet(weights.address, {"w": torch.zeros(2)}, key=place.key) as reader:
                assert reader.fetch(-1)[0] == 3
            assert len(place.key) == 32
            assert repr(place.key) not in f"{place} {Spec(tiny(), {}, weights.address, key=place.key)}"
            assert weights.address.startswith("tcp://127.0.0.1:")


def elsewhere() -> Any:
    """A host with memory of its own."""
    return evolve(this_host(), name="elsewhere", memory="its own")


def test_the_way_is_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With RDMA everywhere the engine that cannot use it says so."""
    monkeypatch.setenv("PURESTEP_KEY", SECRET)
    params, said = {"w": torch.ones(2)}, list[str]()
    monkeypatch.setattr(placing, "seen", lambda cluster: [this_host()])
    with hosting(ANY, SECRET.encode()) as address:
        given = Asynchronous(hosts=address, transfer="tcp")
        with placed(given, said.append) as place, place.publishing(params) as weights:
            assert (weights.way, len(place.key)) == ("tcp", 32)
        assert said == ["weights go by tcp: it is asked for"]
        able = [evolve(one, monarch=True, verbs=True) for one in (this_host(), elsewhere())]
        monkeypatch.setattr(placing, "this_host", lambda: able[0])
        monkeypatch.setattr(placing, "seen", lambda cluster: able[1:])
        with placed(evolve(given, transfer="auto"), said.append) as place, place.publishing(params) as weights:
            assert weights.way == "tcp"
        why = "2 hosts, RDMA on all of them, which takes the engine monarch, and hosts may come and go"
        assert said[1:] == [f"weights go by tcp: {why}"]
        refused = pytest.raises(ChoiceError, match="the way of weights is shared, wanted tcp, which these hosts can do")
        with refused, placed(evolve(given, transfer="shared"), silent):
            pass


def test_a_host_with_other_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    has = packages()
    with opened("processes") as cluster:
        assert [one.name for one in seen(cluster)] == ["local"]
        monkeypatch.setattr(placing, "packages", lambda: {**has, "torch": "0.1"})
        with pytest.raises(ChoiceError, match=rf"host local: torch is {has['torch']}, wanted 0.1 as where it trains"):
            seen(cluster)
    spec = Spec(arguments=tiny(), tokenizer={}, weights="shared://nowhere", packages={**has, "purestep": "0.0"})
    with pytest.raises(ChoiceError, match=f"purestep is {has['purestep']}, wanted 0.0"):
        generate(None, spec)  # type: ignore[arg-type]


def test_only_where_it_works_may_be_another_where_a_run_is_resumed(tmp_path: Path) -> None:
    begun(tmp_path, {"recipe": "zorplex", "mode": "sync", "generators": -1})
    with pytest.raises(ChoiceError, match="--hosts is given, wanted a run with generators"):
        language_commands.resume([str(tmp_path), "--hosts", "10.0.0.2:7000"])
    begun(tmp_path, {"recipe": "zorplex", "mode": "async", "generators": -1})
    with pytest.raises(ChoiceError, match="--server is given, wanted a run without generators"):
        language_commands.resume([str(tmp_path), "--server", "http://127.0.0.1:8000/v1"])
    with pytest.raises(ChoiceError, match="resume: argument is 'steps'"):
        session.resume(tmp_path, notice=silent, moved={"steps": 3})
    with pytest.raises(CheckpointError):
        session.resume(tmp_path / "absent", notice=silent, moved={"hosts": ""})


# --- weights, and hosts that come again ---


def test_generators_of_this_machine_read_shared_memory() -> None:
    params = {"w": torch.arange(3.0)}
    with placed(Asynchronous(), silent) as place, place.publishing(params) as weights:
        weights.publish(0, params)
        with inlet(weights.address, params) as reader:
            version, found = reader.fetch(-1)
    assert (weights.way, place.key, version, found["w"].tolist()) == ("shared", b"", 0, [0.0, 1.0, 2.0])


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
    for _ in range(2):  # the next crew begins anew
        with working(says_device, (OnDevice(),), size=2, patience=SOON, engine=engine) as workers:

            def said(kind: type[Any], workers: Any = workers) -> Any:
                return next(one for one in iter(lambda: workers.receive(SOON), ()) if isinstance(one, kind))

            assert [said(Note).payload for _ in range(2)] == ["cuda:0", "cuda:1"]
            workers.send(1, 0, "end")
            assert said(Lost).worker == 1
            devices.append(said(Note).payload)
    assert devices == ["cuda:1", "cuda:1"]


def test_a_lost_host_is_taken_in_again(key: Path) -> None:
    """A stranger listens in its place at first; its neighbour has never been away."""
    said = list[str]()
    with hosting(ANY, SECRET.encode()) as neighbour, ExitStack() as first:
        address = first.enter_context(hosting(ANY, SECRET.encode()))
        both = (address, neighbour)
        with clustered(both, key=key, silence=60.0) as cluster, rejoining(cluster, both, said.append):
            first.close()
            until(lambda: len(said) == 1, "the host is lost", said=lambda: said)
            assert cluster.hosts() == (neighbour,)
            with hosting(address, SECRET[::-1].encode()):
                until(lambda: len(said) == 2, "the stranger is told", said=lambda: said)
            with hosting(address, SECRET.encode()):
                until(lambda: said[-1:] == [f"host {address} is there again"], "it is there again", said=lambda: said)
                assert {*cluster.hosts()} == {*both}
    assert said[0] == f"host {address} is lost; it is taken in again when it is there"
    assert said[1].startswith(f"host {address} listens and cannot be taken in again: host {address} is not to be had (")


def test_whatever_an_engine_raises_a_host_is_tried_again(key: Path) -> None:
    said, errors = list[str](), iter([RuntimeError("of a\nlibrary")])
    with hosting(ANY, SECRET.encode()) as address, clustered((), key=key) as cluster:

        def add_host(host: str, /, *, timeout: float) -> str:
            for error in errors:
                raise error
            return cluster.add_host(host, timeout=timeout)

        with rejoining(evolve(cluster, add_host=add_host), (address,), said.append):
            until(lambda: said[-1:] == [f"host {address} is there again"], "it is there again", said=lambda: said)
            assert address in cluster.hosts()
    assert said[1] == f"host {address} listens and cannot be taken in again: of a library"


# --- a whole run ---


@pytest.mark.slow
def test_a_run_outlives_its_host_and_goes_on_elsewhere(key: Path, tmp_path: Path) -> None:
    """The host is a namespace with memory of its own, so that weights go over TCP; it is killed and started again.

    Then comes Ctrl-C, and the run is resumed on this machine.
    """
    run, said, over = tmp_path / "run", list[str](), threading.Event()
    arguments = tiny(compare=False, steps=40, generators=2, generator_engine="process", patience=SOON)

    def updates() -> int:
        path = run / "async" / "ledger.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def updated(more: int) -> None:
        until(lambda: updates() > more, f"update {more + 1}", alive=lambda: not over.is_set(), said=lambda: said)

    def meddle(space: Space, first: "subprocess.Popen[str]", address: str) -> int:
        updated(2)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with host(key, address, within=space.apart):
            until(lambda: f"host {address} is there again" in said, "it is there again", said=lambda: said)
            made = updates()
            updated(made + 1)
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(SOON)
        return made

    with (
        spaces(1) as (space,),
        host(key, f"{space.address}:7000", within=space.apart) as (first, address),
        ThreadPoolExecutor(1) as pool,
    ):
        meddling = pool.submit(meddle, space, first, address)
        try:
            given = changed(arguments, {"hosts": address, "key": str(key)})
            assert session.start(run, given, overwrite=False, notice=said.append).interrupted
        finally:
            over.set()
        assert 2 < meddling.result() < 40
    assert session.resume(run, notice=said.append, moved={"hosts": ""}).phases == ("async",)
    assert [line.partition(":")[0] for line in said if "weights go by" in line] == ["weights go by tcp"]
    assert session.arguments_in(run).asynchronous.hosts == ""
    assert json.loads((run / "async" / "totals.json").read_text())["lost_generators"] >= 2
    assert audit(run, "async").wrong == replayed(run, "async").wrong == ()

"""Generators on hosts of an engine: what is refused, how weights reach them, and a host that is killed and comes again."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.core.errors import ChoiceError
from purestep.runtime.asynchronous import session
from purestep.runtime.asynchronous.placing import placed
from purestep.runtime.asynchronous.replaying import replayed
from purestep.runtime.asynchronous.report import audit
from purestep.runtime.effects.engine.interface import EngineError
from purestep.runtime.effects.engine.processes import clustered
from purestep.runtime.effects.engine.rejoining import rejoining
from purestep.runtime.effects.transfer import inlet
from purestep.runtime.effects.transfer.hosts import own_address
from purestep.runtime.effects.weights_layout import WeightsError
from purestep.runtime.recipes.arguments import changed
from purestep.runtime.recipes.asynchronous import Asynchronous
from purestep.runtime.recipes.zorplex import check, zorplex_defaults

from .engine_spaces import Space, spaces
from .test_asynchronous import tiny

PRIVATE = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'


@contextmanager
def host(key: Path, listen: str, within: Callable[..., list[str]] = lambda *words: [*words]) -> Iterator[Any]:
    """`purestep host`: its process, and the address that it says."""
    program = [sys.executable, "-m", "purestep.runtime.cli", "host", "--key", str(key), "--listen", listen]
    process = subprocess.Popen(within(*program), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30.0)
        process.stdout.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text("0123456789abcdef" * 2)
    return tmp_path / "key"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hosts": "10.0.0.2:7000"}, "--engine and --hosts is given without generators"),
        ({"engine": "ray"}, "--engine and --hosts is given without generators"),
        ({"mode": "async", "hosts": "a:1", "generator_engine": "thread"}, "--generator-engine is 'thread' with"),
        ({"mode": "async", "hosts": "a:1", "weights": "7100"}, "--weights is '7100', wanted HOST:PORT"),
        ({"mode": "async", "hosts": "a:1", "weights": "a:70000"}, "--weights is 'a:70000', wanted HOST:PORT"),
    ],
)
def test_what_leads_nowhere_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ChoiceError, match=said):
        check(changed(zorplex_defaults(), given))


def test_a_host_that_is_not_there_and_a_missing_key_are_told_in_one_line(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PURESTEP_KEY", raising=False)
    for given in (Asynchronous(hosts="127.0.0.1:9", key=str(key)), Asynchronous(hosts="127.0.0.1:9")):
        with pytest.raises(EngineError) as raised, placed(given, lambda text: None):
            pass
        assert "\n" not in str(raised.value)
    with pytest.raises(WeightsError, match="host nowhere is without a way to it"):
        own_address("nowhere")


def test_generators_of_this_machine_read_shared_memory() -> None:
    params = {"w": torch.arange(3.0)}
    with placed(Asynchronous(), lambda text: None) as place, place.publishing(params) as weights:
        weights.publish(0, params)
        with inlet(weights.address, params) as reader:
            version, found = reader.fetch(-1)
    assert (weights.way, place.key, version, found["w"].tolist()) == ("shared", b"", 0, [0.0, 1.0, 2.0])


def test_a_lost_host_is_taken_in_again(key: Path) -> None:
    said, back = list[str](), threading.Event()

    def report(text: str) -> None:
        said.append(text)
        if "again" in text.split(";")[0]:
            back.set()

    with host(key, "127.0.0.1:0") as (process, address):
        with clustered((address,), key=key, silence=1.0) as cluster, rejoining(cluster, (address,), report):
            process.kill()
            process.wait()
            with host(key, address):
                assert back.wait(30.0)
                assert cluster.hosts() == (address,)
    assert said[:2] == [f"host {address} is lost; it is taken in again when it is there", f"host {address} is there again"]


@pytest.mark.slow
def test_a_run_on_a_host_of_its_own_outlives_it(key: Path, tmp_path: Path) -> None:
    """The host is a namespace with memory of its own, so that weights go over TCP; it is killed and started again."""
    run, said = tmp_path / "run", list[str]()

    def inside(space: Space) -> Callable[..., list[str]]:
        return lambda *words: space.command("sh", "-c", PRIVATE, "sh", *words)

    def killed(process: "subprocess.Popen[str]", again: threading.Event) -> None:
        until = time.monotonic() + 240.0
        ledger = run / "async" / "ledger.jsonl"
        while not (ledger.exists() and ledger.read_text().count("\n") > 2) and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        again.set()

    with spaces(1) as (space,), host(key, f"{space.address}:7000", inside(space)) as (first, address):
        again = threading.Event()
        threading.Thread(target=killed, args=(first, again), daemon=True).start()
        arguments = tiny(
            compare=False, steps=20, generators=2, generator_engine="process", hosts=address, key=str(key), patience=60.0
        )

        def restart() -> None:
            again.wait(300.0)
            first.wait()
            with host(key, address, inside(space)):
                done.wait(300.0)

        done = threading.Event()
        other = threading.Thread(target=restart, daemon=True)
        other.start()
        outcome = session.start(run, arguments, overwrite=False, notice=said.append)
        done.set()
        other.join(60.0)
    assert outcome.phases == ("async",)
    assert any(line.startswith("weights go by tcp: ") for line in said)
    assert f"host {address} is there again" in said
    assert json.loads((run / "async" / "totals.json").read_text())["lost_generators"] >= 2
    assert audit(run, "async").wrong == replayed(run, "async").wrong == ()

"""Hosts over TCP: who has no key, who falls silent, who garbles, who dies; and what ends where whom it works for is killed."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.engine import processes_wire as wire
from purestep.runtime.effects.engine.interface import Cluster, Done, EngineError, Failed, Failure
from purestep.runtime.effects.engine.processes import clustered
from purestep.runtime.effects.engine.processes_link import LETTER, PIECE, SEND, Link, shared_key
from purestep.runtime.effects.engine.processes_there import STRANGERS, hosting

from .engine_contract import left, path_with, running, values
from .programs import first_line

KEY = b"0123456789abcdef" * 2
HERE = "127.0.0.1:0"
SOON = 30.0


@pytest.fixture(scope="module", autouse=True)
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_bytes(KEY + b"\n")
    return file


@contextmanager
def proxied(address: str) -> Iterator[tuple[str, list[str]]]:
    """An address before that one, and what happens to what goes through: nothing, "silence", or a bit is turned over.

    "there" does that once to what goes to the host, "back" to what comes from it.
    """
    host, _, port = address.rpartition(":")
    mode, ends = [""], list[socket.socket]()
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(way: str, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := bytearray(source.recv(1 << 16)):
                while mode[0] == "silence":
                    time.sleep(0.01)
                if mode[0] == way:
                    piece[-1], mode[0] = piece[-1] ^ 1, ""
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                pair = (listener.accept()[0], socket.create_connection((host, int(port))))
                ends.extend(pair)
                for way in (("there", *pair), ("back", *pair[::-1])):
                    threading.Thread(target=pump, args=way, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", mode
    finally:
        mode[0] = ""
        for end in (listener, *ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def told(cluster: Cluster, count: int) -> list[Failure]:
    """The next failures, and that there are no more."""
    failures = [cluster.failure(SOON) for _ in range(count)]
    assert cluster.failure(0.3) == ()
    return [one for one in failures if isinstance(one, Failure)]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("back", "frame .* is not as it was sealed"),
        ("there", "the other side has closed the connection"),
        ("silence", "silent for 1.0 s"),
    ],
)
def test_a_host_that_garbles_or_falls_silent_is_lost_with_its_members(key: Path, what: str, why: str) -> None:
    with hosting(HERE, KEY, silence=1.0) as direct, proxied(direct) as (address, mode):
        with clustered((address, direct), key=key, silence=1.0) as cluster:
            mesh = cluster.spawn(Counter, size=4, timeout=SOON)
            pids = values(mesh, "pid")
            waiting = mesh.slice((0, 2)).ask("nap", (SOON,), timeout=SOON)
            mode[0] = what
            failures = told(cluster, 2)
            assert [(one.host, one.mesh, one.member) for one in failures] == [(address, mesh.number, i) for i in (0, 2)]
            assert {one.why for one in failures} == {failures[0].why}
            assert re.search(rf"its host is lost .{why}", failures[0].why)
            assert all(isinstance(one, Failed) and one.lost for one in waiting())
            assert cluster.hosts() == (direct,)
            assert left({pids[0], pids[2]}) == set()  # the host has ended them itself
            assert values(mesh.slice((1, 3)), "add", 1) == [1, 1]
            mode[0] = ""
            assert cluster.add_host(address, timeout=SOON) == address
            assert values(cluster.spawn(Counter, size=1, hosts=(address,), timeout=SOON), "add", 1) == [1]
        assert left({*pids}) == set()


def test_a_cluster_may_be_less_patient_than_its_hosts(key: Path) -> None:
    with hosting(HERE, KEY, silence=60.0) as address, clustered((address,), key=key, silence=2.0) as cluster:
        assert cluster.failure(3.0) == ()
        assert cluster.hosts() == (address,)


def test_a_letter_may_take_longer_than_the_silence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        ours = socket.create_connection(listener.getsockname())
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
        theirs = listener.accept()[0]
    with ours, theirs:
        link = Link(ours, (wire.Way(KEY), wire.Way(KEY)), 0.7, lambda *_: None, lambda _: None)
        ours.settimeout(link.silence)
        link.say(SEND, (0, 0), bytes(PIECE))
        link.close()
        threading.Thread(target=link.speak, daemon=True).start()
        come = 0
        while piece := theirs.recv(1 << 13):
            come += len(piece)
            time.sleep(0.02)
        assert come == wire.HEADER.size + LETTER.size + PIECE


def test_who_has_another_key_is_let_in_nowhere(key: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("fedcba9876543210" * 2)
    with hosting(HERE, KEY) as address:
        with pytest.raises(EngineError, match=r"not to be had .* has the same key"), clustered((address,), key=other):
            pass
        with clustered((address,), key=key) as cluster:
            with pytest.raises(EngineError, match="taken in already"):
                cluster.add_host(address, timeout=SOON)
            assert values(cluster.spawn(Counter, size=1, timeout=SOON), "add", 1) == [1]
        with pytest.raises(EngineError, match=r"not to be had .*in use"), hosting(address, KEY):
            pass


def test_keys_are_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PURESTEP_KEY", raising=False)
    with pytest.raises(EngineError, match="PURESTEP_KEY is 0 bytes long, wanted at least 16"):
        shared_key(None)
    with clustered() as cluster, pytest.raises(EngineError, match="PURESTEP_KEY"):  # this machine alone needs none
        cluster.add_host("127.0.0.1:1", timeout=1.0)
    with pytest.raises(EngineError, match="absent is not to be read"):
        shared_key(tmp_path / "absent")
    for address in ("nowhere", "host:", ":7000", "host:port", "host:70000"):
        with pytest.raises(ChoiceError, match="wanted HOST:PORT"), hosting(address, KEY):
            pass


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64)])
def test_what_is_no_host_is_refused_in_time(key: Path, says: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, clustered(key=key) as cluster:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connections = list[socket.socket]()

        def answer() -> None:
            connections.append(listener.accept()[0])
            connections[0].sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(EngineError, match=r"timed out|HTTP/1.1 400"):
            cluster.add_host(address, timeout=0.5)
        connections[0].close()


def test_strangers_do_not_disturb_a_host(key: Path) -> None:
    with hosting(HERE, KEY) as address:
        host, _, port = address.rpartition(":")
        strangers = [socket.create_connection((host, int(port))) for _ in range(8)]
        for stranger in strangers:
            stranger.sendall(os.urandom(200))
        with clustered((address,), key=key) as cluster:
            assert values(cluster.spawn(Counter, size=1, timeout=SOON), "add", 1) == [1]
        for stranger in strangers:
            stranger.close()


def test_a_host_goes_on_after_a_time_without_descriptors() -> None:
    with hosting(HERE, KEY) as address, socket.socket() as first, socket.socket() as second:
        host, _, port = address.rpartition(":")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            for stranger in (first, second):  # the first has the descriptor that the host was waiting with
                stranger.connect((host, int(port)))
            second.settimeout(0.3)
            with pytest.raises(TimeoutError):
                second.recv(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for stranger in (first, second):
            stranger.settimeout(SOON)
            assert stranger.recv(1)


def test_a_host_goes_on_after_a_time_without_threads() -> None:
    with hosting(HERE, KEY) as address:
        host, _, port = address.rpartition(":")
        before = threading.stack_size(1 << 47)  # of the next threads: there is no room for one
        try:
            for _ in range(STRANGERS + 1):
                with socket.create_connection((host, int(port)), SOON) as stranger:
                    assert stranger.recv(1) == b""
        finally:
            threading.stack_size(before)
        with socket.create_connection((host, int(port)), SOON) as stranger:
            assert stranger.recv(1)


def test_long_letters_come_whole_and_in_order(key: Path) -> None:
    with hosting(HERE, KEY) as address, clustered((address,), key=key) as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=SOON)
        long = [os.urandom(size) for size in (0, PIECE - 1, PIECE, 3 * PIECE + 5)]
        asked = [mesh.ask("echo", ((n, one),), timeout=SOON) for n, one in enumerate(long)]
        assert [waiting() for waiting in asked] == [(Done((n, one)),) * 2 for n, one in enumerate(long)]
        mesh.stop(timeout=SOON)


def test_a_member_ends_with_what_it_has_started(key: Path) -> None:
    with hosting(HERE, KEY) as address, clustered((address,), key=key) as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=SOON)
        children = values(mesh, "child")
        assert all(map(running, children))
        os.kill(values(mesh, "pid")[0], signal.SIGKILL)
        assert [one.member for one in told(cluster, 1)] == [0]
        assert left({children[0]}) == set()
        assert running(children[1])
        mesh.stop(timeout=SOON)
        assert left({*children}) == set()


def test_a_member_that_says_what_is_no_answer_is_ended() -> None:
    with clustered() as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=SOON)
        pids = values(mesh, "pid")
        answer = mesh.slice((1,)).call("garble", timeout=SOON)[0]
        assert answer == Failed("garbage: its pipe gave what is no answer", True)
        assert [(one.member, one.why) for one in told(cluster, 1)] == [(1, "garbage: its pipe gave what is no answer")]
        assert left({pids[1]}) == set()
        assert values(mesh.slice((0,)), "add", 1) == [1]


def test_what_starts_while_its_cluster_is_stopped_is_ended_too(tmp_path: Path) -> None:
    raised = list[str]()
    with clustered() as cluster:

        def spawn() -> None:
            try:
                cluster.spawn(Counter, (0, str(tmp_path), "hangs"), size=2, timeout=SOON)
            except EngineError as error:
                raised.append(str(error))

        thread = threading.Thread(target=spawn)
        thread.start()
        until = time.monotonic() + SOON
        while len([*tmp_path.iterdir()]) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        cluster.stop(timeout=SOON)
        thread.join(SOON)
        assert len(raised) == 1
        assert "stopped" in raised[0]
    assert left({int(path.name) for path in tmp_path.iterdir()}) == set()


PROGRAM = """
import sys, time
from engine_actors import Counter
from purestep.runtime.effects.engine.processes import clustered
with clustered((sys.argv[1],)) as there, clustered() as here:
    meshes = [cluster.spawn(Counter, size=2, timeout=60.0) for cluster in (there, here)]
    pids = [answer.value for mesh in meshes for answer in mesh.call("pid", timeout=30.0)]
    for mesh in meshes:
        mesh.ask("nap", (60.0,), timeout=90.0)
    print(*pids, flush=True)
    time.sleep(60.0)
"""


@pytest.mark.slow
def test_who_works_for_somebody_killed_ends() -> None:
    with hosting(HERE, KEY) as address:
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), address]
        environment = {**os.environ, "PURESTEP_KEY": KEY.decode(), "PYTHONPATH": path_with(Path(__file__).parent)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
            pids = {int(pid) for pid in first_line(program).split()}
            assert len(pids) == 4
            assert all(map(running, pids))
            program.kill()
        assert left(pids, 15.0) == set()

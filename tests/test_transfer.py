"""Weights pulled over TCP: every byte, over links that break, from publishers that die, and nothing for strangers."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.greeting import NONCE
from purestep.runtime.effects.transfer import Inlet, Outlet, inlet, outlet
from purestep.runtime.effects.transfer import frames as frame
from purestep.runtime.effects.transfer.sockets import GREETING, AdmissionError, place_of
from purestep.runtime.effects.weights_layout import WeightsError

from .programs import first_line

KEY, CHUNK = b"the key of the tests", 1 << 14
PUBLISHER = """
import sys, torch
from purestep.runtime.effects.transfer import outlet

def of(version, numbers):
    return {"a": torch.arange(float(numbers)) + version, "b": torch.full((7,), version % 100, dtype=torch.uint8)}

numbers, port = int(sys.argv[1]), int(sys.argv[2])
with outlet("tcp", of(0, numbers), key=b"the key of the tests", port=port, chunk=1 << 14) as weights:
    print(weights.address, flush=True)
    for line in sys.stdin:
        weights.publish(int(line), of(int(line), numbers))
        print("published", flush=True)
"""


READER = """
import sys, torch
from purestep.runtime.effects.transfer import inlet

like = {"a": torch.zeros(1 << 16), "b": torch.zeros(7, dtype=torch.uint8)}
with inlet(sys.argv[1], like, key=b"the key of the tests") as weights:
    weights.fetch()
    print("not killed")
"""


def of(version: int, numbers: int = 1 << 16) -> dict[str, Tensor]:
    return {"a": torch.arange(float(numbers)) + version, "b": torch.full((7,), version % 100, dtype=torch.uint8)}


def equal(found: Any, version: int, numbers: int = 1 << 16) -> bool:
    wanted = of(version, numbers)
    return found[0] == version and all(torch.equal(found[1][name], leaf) for name, leaf in wanted.items())


@contextmanager
def published(version: int = 0, **options: Any) -> Iterator[Outlet]:
    with outlet("tcp", of(0), **{"key": KEY, "chunk": CHUNK, **options}) as weights:
        weights.publish(version, of(version))
        yield weights


def reader(address: str, **options: Any) -> Any:
    return inlet(address, of(0), **{"key": KEY, "patience": 5.0, **options})


class Wire:
    """A link between readers and a publisher; what goes to the readers goes through `touch`, and counts."""

    def __init__(self, address: str) -> None:
        self.target, self.down, self.links = place_of(address), 0, 0
        self.touch: Callable[[bytes], bytes] = lambda data: data
        self.open: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with suppress(OSError):
                far = socket.create_connection(self.target)
                self.links += 1
                self.open += [near, far]
                for way in ((far, near, True), (near, far, False)):
                    self.threads.append(threading.Thread(target=self._pump, args=way, daemon=True))
                    self.threads[-1].start()
                continue
            near.close()

    def _pump(self, source: socket.socket, target: socket.socket, down: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 13):
                self.down += len(data) if down else 0
                target.sendall(self.touch(data) if down else data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Breaks all links; new ones can be made."""
        for end in self.open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """No new links either."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()

    def close(self) -> None:
        """The end."""
        self.stop()
        for thread in self.threads:
            thread.join(10.0)
        for end in self.open:
            end.close()


@contextmanager
def linked(address: str) -> Iterator[Wire]:
    wire = Wire(address)
    try:
        yield wire
    finally:
        wire.close()


@pytest.fixture
def child() -> Iterator[Callable[..., Any]]:
    """Starts publishers in processes of their own."""
    started: list[subprocess.Popen[str]] = []

    def start(numbers: int, port: int = 0) -> Any:
        words = [sys.executable, "-c", PUBLISHER, str(numbers), str(port)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, first_line(process)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def publish(process: subprocess.Popen[str], version: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{version}\n")
    process.stdin.flush()
    assert first_line(process) == "published"


@pytest.mark.slow
def test_a_publisher_that_is_killed_and_started_again_goes_on_with_what_was_being_pulled(child: Any) -> None:
    """Two processes; every byte is looked at, and those that came before the kill come once."""
    numbers = 1 << 19
    first, address = child(numbers)
    publish(first, 3)
    port = place_of(address)[1]
    with linked(address) as wire, inlet(wire.address, of(0, numbers), key=KEY, patience=5.0) as weights:
        wire.touch = slowly(wire, first.kill, 4 * numbers // 2)
        with pytest.raises(WeightsError, match=r"\d+ of 129 chunks came .*; fetch again, what came is kept"):
            weights.fetch(seconds=1.0)
        first.wait()
        came = wire.down
        second, _ = child(numbers, port)
        publish(second, 3)
        assert equal(weights.fetch(), 3, numbers)
        assert wire.down - came < 4 * numbers * 3 // 4
        publish(second, 4)
        assert equal(weights.fetch(3), 4, numbers)
        second.kill()
        second.wait()
        with pytest.raises(WeightsError, match="start its publisher"):
            weights.fetch(4, seconds=0.2)


@pytest.mark.slow
def test_a_reader_that_is_killed_in_the_middle_holds_nothing() -> None:
    with published(0, keep=1) as weights, linked(weights.address) as wire, reader(weights.address) as pulling:
        words = [sys.executable, "-c", READER, wire.address]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            wire.touch = slowly(wire, process.kill, 4 * CHUNK)
            assert process.communicate()[0] == ""
        for version in range(1, 4):
            weights.publish(version, of(version))
            assert equal(pulling.fetch(version - 1), version)
        until = time.monotonic() + 30.0
        while serving() > 1:
            assert time.monotonic() < until, "the thread of the one that was killed lives on"
            time.sleep(0.01)


def serving() -> int:
    """Threads that serve a reader."""
    return sum(thread.name == "purestep-weights-reader" for thread in threading.enumerate())


def slowly(wire: Wire, then: Callable[[], object], after: int) -> Callable[[bytes], bytes]:
    """Lets data through as it is; does something once so much went through."""
    todo = [then]

    def touch(data: bytes) -> bytes:
        if wire.down > after and todo:
            todo.pop()()
        return data

    return touch


def test_a_pull_goes_on_over_a_new_link_with_what_is_missing() -> None:
    with published(5) as weights, linked(weights.address) as wire, reader(wire.address) as pulling:
        wire.touch = slowly(wire, wire.cut, 4 * (1 << 16) * 2 // 3)
        assert equal(pulling.fetch(), 5)
        assert wire.links == 2
        assert wire.down < 4 * (1 << 16) * 1.4


def test_nothing_is_pulled_twice_where_nothing_breaks() -> None:
    with published(0) as weights, linked(weights.address) as wire, reader(wire.address) as pulling:
        assert equal(pulling.fetch(), 0)
        assert wire.down < 4 * (1 << 16) * 1.05
        assert pulling.fetch(0) == ()
        assert wire.links == 1


def test_a_version_published_in_the_middle_gives_all_old_or_all_new() -> None:
    """With one publication kept the old one is gone in the middle; with two the pull goes on to its end."""
    for keep, wanted in ((1, 1), (2, 0)):
        with (
            published(0, keep=keep) as weights,
            linked(weights.address) as wire,
            reader(wire.address, window=1) as pulling,
        ):
            wire.touch = slowly(wire, partial(weights.publish, 1, of(1)), 4 * (1 << 16) // 2)
            assert equal(pulling.fetch(), wanted)
            assert equal(pulling.fetch(), 1)


def test_readers_under_a_publisher_that_never_waits_get_whole_weights() -> None:
    found: list[bool] = []
    with published(0) as weights:

        def pull() -> None:
            with reader(weights.address) as pulling:
                version, into = -1, ()
                while version < 30:
                    given = pulling.fetch(version, into)
                    if given:
                        found.append(given[0] > version and equal(given, given[0]))
                        version, into = given

        threads = [threading.Thread(target=pull) for _ in range(3)]
        for thread in threads:
            thread.start()
        version = 0
        while any(thread.is_alive() for thread in threads):
            version += 1
            weights.publish(version, of(version))
    assert len(found) >= 3
    assert all(found)


def test_damaged_chunks_are_asked_for_again() -> None:
    with published(2) as weights, linked(weights.address) as wire, reader(wire.address) as pulling:
        left = [3 * CHUNK, 6 * CHUNK]

        def touch(data: bytes) -> bytes:
            if left and wire.down > left[0]:
                left.pop(0)
                return data[:-1] + bytes([data[-1] ^ 1])
            return data

        wire.touch = touch
        assert equal(pulling.fetch(), 2)
        assert not left


def test_garbage_ends_the_link_and_not_the_pull() -> None:
    with published(2) as weights, linked(weights.address) as wire, reader(wire.address) as pulling:
        left = [3 * CHUNK]

        def touch(data: bytes) -> bytes:
            return os.urandom(len(data)) if left and wire.down > left[0] and left.pop() else data

        wire.touch = touch
        assert equal(pulling.fetch(), 2)
        assert wire.links >= 1


def test_silence_ends_the_link_and_a_slow_one_is_waited_for() -> None:
    with published(2) as weights, linked(weights.address) as wire, reader(wire.address, patience=0.4) as pulling:
        stop = threading.Event()
        wire.touch = slowly(wire, lambda: stop.wait(1.5), 4 * CHUNK)
        assert equal(pulling.fetch(), 2)
        assert wire.links > 1
        stop.set()
        wire.touch = lately
        weights.publish(3, of(3))
        links = wire.links
        assert equal(pulling.fetch(2), 3)
        assert wire.links == links


def lately(data: bytes) -> bytes:
    time.sleep(0.02)
    return data


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    with published(0, patience=0.3, chunk=1 << 18) as weights, linked(weights.address) as wire:
        stop = threading.Event()
        wire.touch = slowly(wire, stop.wait, 1 << 12)
        with reader(wire.address) as stuck, reader(weights.address) as pulling:
            thread = threading.Thread(target=lambda: suppressed(stuck.fetch, seconds=1.0))
            thread.start()
            for version in range(1, 6):
                weights.publish(version, of(version))
                assert equal(pulling.fetch(version - 1), version)
            stop.set()
            thread.join()


def suppressed(act: Callable[..., Any], **options: Any) -> None:
    with suppress(WeightsError):
        act(**options)


def test_a_publisher_goes_on_after_a_time_without_threads() -> None:
    with published() as weights:
        before = threading.stack_size(1 << 47)  # of the next threads: there is no room for one
        try:
            with socket.create_connection(place_of(weights.address), 10.0) as stranger:
                assert stranger.recv(1) == b""
        finally:
            threading.stack_size(before)
        with reader(weights.address) as fetching:
            assert equal(fetching.fetch(-1), 0)


def test_another_key_is_refused_in_one_line_and_strangers_get_nothing() -> None:
    with published(0) as weights:
        refused = pytest.raises(AdmissionError, match=r"^[^\n]*key is another, wanted the publisher's[^\n]*$")
        with reader(weights.address, key=b"some other key") as pulling, refused:
            pulling.fetch()
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n" * 9, os.urandom(200)):
            with socket.create_connection(place_of(weights.address), timeout=5.0) as stranger:
                first = stranger.recv(len(GREETING) + NONCE, socket.MSG_WAITALL)
                with suppress(OSError):  # it may have been thrown out in the middle
                    stranger.sendall(said)
                    stranger.shutdown(socket.SHUT_WR)
                rest = b"".join(iter(partial(calmly, stranger), b""))
            assert first.startswith(GREETING)
            assert rest.strip(b"n\0") == b""
        with reader(weights.address) as pulling:
            assert equal(pulling.fetch(), 0)


def calmly(link: socket.socket) -> bytes:
    try:
        return link.recv(1 << 12)
    except ConnectionResetError:
        return b""


def test_what_answers_as_a_publisher_must_know_the_key_too() -> None:
    """A proof that is sent back proves nothing."""
    listener = socket.create_server(("127.0.0.1", 0))

    def mirror() -> None:
        link, _ = listener.accept()
        with link:
            link.sendall(GREETING + bytes(NONCE))
            answer = link.recv(1 << 12)
            link.sendall(b"y" + answer[-32:])
            link.recv(1)

    thread = threading.Thread(target=mirror, daemon=True)
    thread.start()
    with reader(f"tcp://127.0.0.1:{listener.getsockname()[1]}") as pulling, pytest.raises(AdmissionError):
        pulling.fetch()
    thread.join()
    listener.close()


def test_another_architecture_is_refused_in_one_line() -> None:
    other = {"a": torch.zeros(1 << 16), "b": torch.zeros(8, dtype=torch.uint8)}
    with published(0) as weights, inlet(weights.address, other, key=KEY) as pulling:
        with pytest.raises(WeightsError, match=r"b is \[7\] uint8, wanted \[8\] uint8") as caught:
            pulling.fetch()
        assert "\n" not in str(caught.value)
        with pytest.raises(WeightsError, match=r"publish: b is \[8\] uint8, wanted \[7\] uint8"):
            weights.publish(1, other)
        with reader(weights.address) as own, pytest.raises(WeightsError, match="fetch: into: b is"):
            own.fetch(-1, other)


def test_the_end_of_a_publisher_is_known_and_another_may_follow() -> None:
    with published(0) as weights:
        port = place_of(weights.address)[1]
        pulling_in = reader(weights.address)
        pulling: Inlet = pulling_in.__enter__()
        assert equal(pulling.fetch(), 0)
        assert not pulling.closed()
    assert pulling.fetch(0) == ()
    assert pulling.closed()
    with pytest.raises(WeightsError, match="publish: the outlet is closed, wanted open"):
        weights.publish(1, of(1))
    with published(0, port=port) as weights:
        assert pulling.fetch(0) == ()
        weights.publish(1, of(1))
        assert equal(pulling.fetch(0), 1)
        assert not pulling.closed()
    with published(0, port=port), pytest.raises(WeightsError, match="version is 0, wanted at least 1; let it count on"):
        pulling.fetch()
    pulling_in.__exit__(None, None, None)


def test_what_was_fetched_stays_and_what_is_lent_is_written() -> None:
    with published(0) as weights, reader(weights.address) as pulling:
        first = pulling.fetch()
        weights.publish(1, of(1))
        second = pulling.fetch(0)
        assert equal(first, 0)
        weights.publish(2, of(2))
        third = pulling.fetch(1, first[1])
        assert third[1]["a"].data_ptr() == first[1]["a"].data_ptr()
        assert equal(third, 2)
        assert equal(second, 1)
        into = {name: torch.zeros_like(leaf).requires_grad_(leaf.is_floating_point()) for name, leaf in of(0).items()}
        weights.publish(3, of(3))
        fourth = pulling.fetch(2, into)
        assert fourth[1]["a"] is into["a"]
        assert equal(fourth, 3)


def test_a_fetch_that_failed_leaves_nothing_in_a_tree_that_was_lent() -> None:
    with published(0) as weights, linked(weights.address) as wire, reader(wire.address) as pulling:
        mine = pulling.fetch()[1]
        weights.publish(1, of(1))
        wire.touch = slowly(wire, wire.stop, wire.down + 6 * CHUNK)
        with pytest.raises(WeightsError, match="chunks came"):
            pulling.fetch(0, mine, seconds=0.3)
        mine["a"].fill_(-1.0)
        with linked(weights.address) as other:
            pulling_again(pulling, wire, other)
            assert equal(pulling.fetch(0), 1)
            assert other.down < 4 * (1 << 16)
        assert bool((mine["a"] == -1.0).all())


def pulling_again(pulling: Inlet, wire: Wire, other: Wire) -> None:
    """A link to the same place through another hole."""
    port = place_of(wire.address)[1]
    other.listener.close()
    other.listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=other._accept, daemon=True).start()


@pytest.mark.parametrize("checks", ["crc32", "blake2b", "xxh3"])
def test_any_checksum_both_sides_have_will_do(checks: str) -> None:
    if checks == "xxh3":
        pytest.importorskip("xxhash", reason="xxhash is not installed")
    with published(0, checks=checks) as weights, reader(weights.address) as pulling:
        assert equal(pulling.fetch(), 0)


def test_trees_of_any_kind_go_through() -> None:
    trees: list[Any] = [
        {},
        {"e": torch.zeros(0)},
        ({"n": torch.tensor(7)}, (), torch.ones(3, 2, dtype=torch.bfloat16).T),
        {"many": [torch.full((i,), float(i)) for i in range(40)]},
    ]
    for tree in trees:
        with outlet("tcp", tree, key=KEY, chunk=100) as weights, inlet(weights.address, tree, key=KEY) as pulling:
            assert pulling.fetch() == ()
            weights.publish(0, tree)
            version, found = pulling.fetch()
            assert version == 0
            torch.testing.assert_close(found, tree, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": b"short"}, "tcp: key is 5 bytes, wanted at least 8 bytes"),
        ({"key": "a text of letters"}, "tcp: key is str, wanted at least 8 bytes"),
        ({"keep": 0}, "tcp: keep is 0, wanted at least 1"),
        ({"chunk": 0}, "tcp: chunk is 0, wanted at least 1"),
        ({"checks": "md5"}, "tcp: checks is 'md5', wanted one of"),
    ],
)
def test_bad_choices_are_refused_in_one_line(options: Any, says: str) -> None:
    with pytest.raises(ChoiceError, match=re.escape(says)), published(0, **options):
        pass


def test_places_that_cannot_be_had_are_named() -> None:
    with published(0) as weights:
        port = place_of(weights.address)[1]
        taken = pytest.raises(WeightsError, match=rf"127\.0\.0\.1:{port} is not to be had \(Address already in use\)")
        with taken, published(0, port=port):
            pass
    with pytest.raises(WeightsError, match="not to be had"), published(0, host="no.such.host.invalid"):
        pass
    with pytest.raises(ChoiceError, match="wanted tcp://HOST:PORT"), reader("tcp://nowhere"):
        pass
    with pytest.raises(ChoiceError, match="did you mean 'tcp'"), reader("tcps://nowhere:1"):
        pass
    with reader(weights.address) as pulling, pytest.raises(WeightsError, match=r"no link: Connection refused"):
        pulling.fetch(seconds=0.2)


def test_frames_that_are_damaged_are_seen() -> None:
    good = frame.packed(frame.ASK, frame.said({"chunks": [1]}), digest=bytes(16))
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 4
        with pytest.raises(frame.LinkError):
            frame.understood(frame.read_head(bytes(bad[: frame.HEAD])), bytes(bad[frame.HEAD :]))

"""Weights pulled between hosts in namespaces of their own: links that go down, are slow or lose packets, and lost hosts."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.runtime.effects.transfer import Outlet, inlet, outlet
from purestep.runtime.effects.transfer.sockets import place_of
from purestep.runtime.effects.weights_layout import WeightsError

from .engine_spaces import Space
from .network_spaces import inside, limit, line, lose, replace, sent, switched
from .programs import until

pytestmark = pytest.mark.slow

KEY, CHUNK, NUMBERS = b"the key of the tests", 1 << 16, 1 << 20
SIZE = 4 * NUMBERS  # bytes
RATE = 3  # megabytes a second, so that there is a middle
CODE = """
import sys, torch
from purestep.runtime.effects.transfer import inlet, outlet

def of(version, numbers=1 << 20):
    return {"a": torch.arange(float(numbers)) + version, "b": torch.full((7,), version % 100, dtype=torch.uint8)}

key, (role, place) = b"the key of the tests", sys.argv[1:]
if role == "publish":
    with outlet("tcp", of(0), key=key, host=place, chunk=1 << 16) as weights:
        print(weights.address, flush=True)
        for line in sys.stdin:
            weights.publish(int(line), of(int(line)))
            print("published", flush=True)
else:
    with inlet(place, of(0), key=key) as reader:
        print("pulls", flush=True)
        reader.fetch()
        print("not lost", flush=True)
"""


def of(version: int, numbers: int = NUMBERS, salt: float = 0.0) -> dict[str, Tensor]:
    return {
        "a": torch.arange(float(numbers)) + version + salt,
        "b": torch.full((7,), version % 100, dtype=torch.uint8),
    }


def equal(found: Any, version: int, **options: Any) -> bool:
    wanted = of(version, **options)
    return found[0] == version and all(torch.equal(found[1][name], leaf) for name, leaf in wanted.items())


def serving() -> int:
    """Threads that serve a reader."""
    return sum(thread.name == "purestep-weights-reader" for thread in threading.enumerate())


@contextmanager
def published(
    space: Space, version: int, numbers: int = NUMBERS, salt: float = 0.0, **options: Any
) -> Iterator[Outlet]:
    """A publisher on that host."""
    made = outlet("tcp", of(0, numbers), **{"key": KEY, "host": space.address, "chunk": CHUNK, **options})
    with inside(space):
        weights = made.__enter__()
    try:
        weights.publish(version, of(version, numbers, salt))
        yield weights
    finally:
        made.__exit__(None, None, None)


@contextmanager
def program(space: Space, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A process on that host."""
    told = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command: Any = space.command(sys.executable, "-c", CODE, *words)
    process: subprocess.Popen[str] = subprocess.Popen(command, **told)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def told(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(words + "\n")
    process.stdin.flush()
    assert heard(process) == "published"


@pytest.fixture(scope="module")
def there() -> Iterator[Sequence[Space]]:
    with switched(4) as found:
        for each in found:
            limit(each, RATE)
        yield found


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as found:
        yield found


def halfway(pulled: Future[Any], space: Space, before: int, share: float = 0.3) -> None:
    """Returns in the middle of a pull."""
    until(lambda: sent(space) - before > SIZE * share, "a pull is under way")
    assert not pulled.done()


def test_a_link_that_comes_back_brings_what_is_missing(there: Sequence[Space], pool: ThreadPoolExecutor) -> None:
    """The first time the reader has given it up meanwhile, the second time it has not noticed."""
    far = there[0]
    for patience, links in ((0.4, 2), (30.0, 1)):
        with published(far, 7) as weights, inlet(weights.address, of(0), key=KEY, patience=patience) as pulling:
            before = sent(far)
            pulled = pool.submit(pulling.fetch)
            halfway(pulled, far, before)
            far.cut()
            time.sleep(1.0)
            came = sent(far)
            assert not pulled.done()
            far.mend()
            assert equal(pulled.result(60.0), 7)
            assert came - before > SIZE * 0.3
            assert sent(far) - before < SIZE * 1.1
            assert serving() <= links


def test_a_link_that_stays_down_is_an_error_that_keeps_what_came(
    there: Sequence[Space], pool: ThreadPoolExecutor
) -> None:
    far = there[0]
    with published(far, 7) as weights, inlet(weights.address, of(0), key=KEY, patience=0.4) as pulling:
        before = sent(far)
        pulled = pool.submit(pulling.fetch, seconds=3.0)
        halfway(pulled, far, before)
        far.cut()
        wanted = (
            r"^fetch: tcp://.* is not whole after 3 s, \d+ of 65 chunks came \(no link: .*\), .* what came is kept$"
        )
        with pytest.raises(WeightsError, match=wanted) as caught:
            pulled.result(60.0)
        assert "\n" not in str(caught.value)
        with pytest.raises(WeightsError, match=wanted.replace("3 s", "0.5 s")):
            pulling.fetch(seconds=0.5)
        far.mend()
        assert equal(pulling.fetch(), 7)
        assert sent(far) - before < SIZE * 1.1


def test_the_host_of_a_publisher_is_lost_and_another_takes_its_address(
    there: Sequence[Space], pool: ThreadPoolExecutor
) -> None:
    far, spare = there[1:3]
    with program(far, "publish", far.address) as first:
        address = heard(first)
        told(first, "3")
        with inlet(address, of(0), key=KEY, patience=0.4) as pulling:
            assert equal(pulling.fetch(), 3)
            told(first, "4")
            before = sent(far)
            pulled = pool.submit(pulling.fetch, 3)
            halfway(pulled, far, before)
            lose(far)
            other, port = replace(far, spare), place_of(address)[1]
            before = sent(other)
            with published(other, 4, port=port):
                assert equal(pulled.result(60.0), 4)
                assert sent(other) - before < SIZE * 0.8
            older = pytest.raises(WeightsError, match="version is 2, wanted at least 4; let it count on")
            with published(other, 2, port=port), older:
                pulling.fetch(4)
            # the same version with other bytes: nothing of what came is worth anything
            before = sent(other)
            with published(other, 5, port=port):
                pulled = pool.submit(pulling.fetch, 4)
                halfway(pulled, other, before)
                other.cut()
            with published(other, 5, salt=0.5, port=port):
                other.mend()
                assert equal(pulled.result(60.0), 5, salt=0.5)


def test_a_reader_whose_host_is_lost_holds_nothing(there: Sequence[Space]) -> None:
    """Wherever its publisher stood: in the middle of a chunk, or with all that was asked for on the way."""
    near, far = there[3], there[0]
    with published(near, 0, keep=1, patience=1.0) as weights, program(far, "pull", weights.address) as process:
        before = sent(near)
        assert heard(process) == "pulls"
        until(lambda: sent(near) - before > SIZE * 0.3, "a pull is under way")
        lose(far)
        assert process.wait(30.0) != 0
        with inlet(weights.address, of(0), key=KEY) as pulling:
            for version in range(1, 3):
                weights.publish(version, of(version))
                assert equal(pulling.fetch(version - 1), version)
            until(lambda: serving() == 1, "one reader is left")
        far.mend()


def test_a_reader_that_was_cut_off_holds_nothing(there: Sequence[Space], pool: ThreadPoolExecutor) -> None:
    near, far = there[3], there[0]
    with published(near, 0, keep=1, patience=1.0) as weights:
        before = sent(near)
        with inlet(weights.address, of(0), key=KEY, patience=0.4) as pulling:
            pulled = pool.submit(inside(far)(pulling.fetch), seconds=2.0)
            halfway(pulled, near, before)
            far.cut()
            with pytest.raises(WeightsError, match="not whole after 2 s"):
                pulled.result(60.0)
            until(lambda: serving() == 0, "no reader is left")
            far.mend()
            with inside(far):
                assert equal(pulling.fetch(), 0)


def enough(found: list[bool], wanted: int) -> bool:
    return len(found) >= wanted


def test_a_line_that_is_slow_and_loses_packets_brings_whole_versions_in_order(
    there: Sequence[Space], pool: ThreadPoolExecutor
) -> None:
    numbers, last = 1 << 17, 8
    with line(there[0], there[3], delay=0.01, loss=0.005) as (wire, _, place):
        made = outlet("tcp", of(0, numbers), key=KEY, host=place, chunk=1 << 14)
        with inside(there[3]):
            weights = made.__enter__()
        weights.publish(0, of(0, numbers))
        found = list[bool]()

        def pull() -> None:
            with inside(there[0]), inlet(weights.address, of(0, numbers), key=KEY, patience=1.0) as pulling:
                version = -1
                while version < last:
                    if given := pulling.fetch(version):
                        found.append(given[0] > version and equal(given, given[0], numbers=numbers))
                        version = given[0]

        pulled = pool.submit(pull)
        for version in range(1, last + 1):
            time.sleep(0.1)  # the version before is under way
            wire.down = version == 4
            time.sleep(1.5 * wire.down)
            wire.down = False
            weights.publish(version, of(version, numbers))
            until(partial(enough, found, version), f"{version} versions came")
        pulled.result(60.0)
        made.__exit__(None, None, None)
    assert wire.dropped > 3
    assert len(found) >= last
    assert all(found)

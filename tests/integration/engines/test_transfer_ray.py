"""Weights by Ray's object store: every byte, mapped and not copied, versions that go, a board and hosts that are killed."""

import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from engine_readers import Reader, weights  # type: ignore[import-not-found]

from purestep.core.errors import ChoiceError
from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Cluster
from purestep.runtime.effects.weight_sync import ray, weight_publisher, weight_reader
from purestep.runtime.effects.weight_sync.ray import KEEP, refuse_small, store_for
from purestep.runtime.effects.weight_sync.ray_board import Board
from purestep.runtime.effects.weight_sync.shared_memory.layout import WeightsError, layout, text

from ...support.engine_contract import SOON, descendants, values
from ...support.programs import until

INSTALLED = find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="Ray is an extra")
SIZE = layout(weights(0)).size


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with open_cluster("ray", store=store_for(SIZE)) as found:
        yield found


def test_a_store_that_is_too_small_is_named() -> None:
    refuse_small({"a": 500, "b": 500}, 100)
    with pytest.raises(
        WeightsError, match="Ray's object store on b is 499 bytes, wanted at least 500 for weights of 100"
    ):
        refuse_small({"a": 500, "b": 499}, 100)


class Stored:
    """A reference of Ray, with its value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def hex(self) -> str:
        """Its name."""
        return f"{id(self):x}"


class Wired:
    """Ray on a node, to which so many of the arrays that it pulls come altered."""

    exceptions = SimpleNamespace(
        RayError=OSError, RaySystemError=BlockingIOError, ActorUnavailableError=ConnectionError
    )
    put = Stored

    def __init__(self, node: str, altered: int, board: Board) -> None:
        self.node, self.altered, self.pulled = node, altered, 0
        self.board = SimpleNamespace(
            **{
                name: SimpleNamespace(remote=lambda *words, name=name: Stored(getattr(board, name)(*words)))
                for name in ("offer", "signature")
            }
        )

    def get_actor(self, name: str) -> Any:
        """The board."""
        return self.board

    def get_runtime_context(self) -> Any:
        """Return the context, which names the node."""
        return SimpleNamespace(get_node_id=lambda: self.node)

    def get(self, reference: Stored, timeout: float = 0.0) -> Any:
        """Return the value of a reference, altered for the first arrays."""
        found = reference.value
        if not isinstance(found, np.ndarray):
            return found
        self.pulled += 1
        return (
            np.where(np.arange(len(found)) == 8, 0xFF, found).astype(np.uint8) if self.pulled <= self.altered else found
        )


@pytest.mark.parametrize(("altered", "pulled"), [(0, 1), (2, 3)])
def test_bytes_that_were_altered_between_hosts_are_refused_and_pulled_again(
    altered: int, pulled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, board = {"a": torch.arange(64.0)}, Board()
    there = Wired("there", altered, board)
    monkeypatch.setitem(sys.modules, "ray", Wired("here", 0, board))
    monkeypatch.setattr(ray, "_connected", lambda where: there)
    monkeypatch.setattr(ray, "AGAIN", 0.0)
    monkeypatch.setattr(ray, "ray_token", lambda: b"a token")
    put = Stored(own["a"].numpy().view(np.uint8))
    board.hold(3, text(layout(own)), [put], b"a token")
    with weight_reader("ray://one@here", own) as reader:
        version, found = reader.fetch()
        assert version == 3
        assert torch.equal(found["a"], own["a"])
        assert there.pulled == pulled
        assert (board.held == [put]) == (not altered)  # a host keeps what it has pulled
        there.altered = 1 << 60
        with pytest.raises(
            WeightsError, match=r"^fetch: ray: version 3 is of the digest [0-9a-f]{16}, wanted [0-9a-f]{16}; see"
        ):
            reader.fetch(-1, (), 0.01)
        board.hold(4, text(layout(own)), [put], b"another token")
        there.altered = 0
        with pytest.raises(WeightsError, match="version 4 is of the digest"):
            reader.fetch(3, (), 0.01)
    with weight_reader("ray://one@there", own) as reader:
        there.pulled, there.altered, board.digest = 0, 1, b""
        assert not torch.equal(reader.fetch()[1]["a"], own["a"])  # from the same store: nobody looks
        assert board.digest == b""


@pytest.mark.slow
@needs_ray
def test_without_a_connection_there_are_none() -> None:
    for made in (weight_publisher("ray", weights(0)), weight_reader("ray://nobody", weights(0))):
        with pytest.raises(WeightsError, match="Ray is not connected, wanted a process of Ray"), made:
            pass


@pytest.mark.slow
@needs_ray
def test_every_byte_is_mapped_and_stays_as_it_was(cluster: Cluster) -> None:
    with weight_publisher("ray", weights(0)) as publisher:
        readers = cluster.spawn(Reader, (publisher.address,), size=2, timeout=SOON)
        assert values(readers, "fetch") == [(-1, True)] * 2
        publisher.publish(0, weights(0))
        assert values(readers, "fetch") == [(0, True)] * 2
        assert values(readers, "shared") == [True] * 2
        assert values(readers, "fetch", -1, True) == [(0, True)] * 2
        assert values(readers, "shared") == [False] * 2  # written to a tree of one's own
        for version in range(1, 3 * KEEP):
            publisher.publish(version, weights(version))
            assert values(readers, "fetch", version - 1) == [(version, True)] * 2
        assert values(readers, "still_right") == [True] * 2  # those that the publisher holds no more, too
        assert values(readers, "fetch", 3 * KEEP) == [(-1, True)] * 2
        said = values(readers, "other")
        assert all("a is [100000] float32, wanted [3] float32" in one for one in said)
        with pytest.raises(ChoiceError, match=f"publish: version is 3, wanted at least {3 * KEEP}"):
            publisher.publish(3, weights(3))
        with pytest.raises(WeightsError, match=r"publish: a is \[3\] float32, wanted \[100000\]"):
            publisher.publish(99, {"a": torch.zeros(3), "b": weights(0)["b"]})
        assert values(readers, "closed") == [False] * 2
    assert values(readers, "closed") == [True] * 2
    until(
        lambda: all("fetch: ray is not to be had (" in str(one) for one in values(readers, "fetch", 0)), "all is over"
    )
    with pytest.raises(WeightsError, match="publish: the publisher is closed"):
        publisher.publish(100, weights(100))
    with pytest.raises(WeightsError, match="fetch: ray is not to be had"), weight_reader("ray://nobody", weights(0)):
        pass
    readers.stop(timeout=SOON)


@pytest.mark.slow
@needs_ray
def test_a_board_that_is_killed_lists_all_again(cluster: Cluster) -> None:
    with weight_publisher("ray", weights(0)) as publisher:
        publisher.publish(7, weights(7))
        reader = cluster.spawn(Reader, (publisher.address,), size=1, timeout=SOON)
        assert values(reader, "fetch") == [(7, True)]
        (board,) = (pid for pid in descendants() if b"ray::Board" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(board, signal.SIGKILL)
        found: list[Any] = []

        def fetched() -> bool:
            found[:] = values(reader, "fetch", 6)
            return found == [(7, True)]

        until(fetched, "it lists version 7 again", seconds=SOON, said=lambda: found)
        publisher.publish(8, weights(8))
        assert values(reader, "fetch", 7) == [(8, True)]
        reader.stop(timeout=SOON)

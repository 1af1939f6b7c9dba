"""Weights between processes: whole reads while they are lapped, refusals, deaths, and nothing left in memory."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from purestep.core.errors import ChoiceError, StructureError
from purestep.core.record import record, tensor
from purestep.runtime.effects.weight_sync.shared_memory.file import PREFIX, default_guard, remove_orphans, shared_folder
from purestep.runtime.effects.weight_sync.shared_memory.layout import ALIGNMENT, WeightsError, layout, text, views
from purestep.runtime.effects.weight_sync.shared_memory.publisher import publishing, reading
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import RING, Ring, publication, run_steps_in_a_row
from purestep.runtime.effects.workers.pool import (
    WorkerAnswer,
    WorkerJoined,
    WorkerLost,
    WorkerMessage,
    Workers,
    working,
)

BODIES = '''
import os
import time
import torch
from purestep.runtime.effects.weight_sync.shared_memory.publisher import publishing, reading
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import RING, Ring, publication

def like(numbers):
    return {"a": torch.zeros(numbers), "b": torch.zeros(numbers // 8, dtype=torch.uint8)}

def slow():
    """The ring of a reader that is held up in the middle of every other copy."""
    copies = 0

    def fetching(words, slots, newer_than, load):
        def held_up(slot, number, version):
            nonlocal copies
            copies += 1
            steps = load(slot, number, version)
            yield next(steps)
            if copies % 2:
                time.sleep(0.005)
            return (yield from steps)

        return RING.fetching(words, slots, newer_than, held_up)

    return Ring(publication, fetching)

def whole(params, version):
    return all(bool((leaf == version % 200).all()) for leaf in params.values())

def read(path, numbers, seconds):
    """Fetches for so long, and looks at every number of every copy."""
    reader, until = reading(path, like(numbers), ring=slow()), time.monotonic() + seconds
    version, into, torn, reads = -1, (), 0, 0
    while time.monotonic() < until:
        found = reader.fetch(version, into)
        if found:
            back = found[0] <= version
            version, into = found
            reads, torn = reads + 1, torn + (back or not whole(into, version))
    return reads, torn, version, reader.overtaken()

def write(mailbox, path, numbers):
    """Publishes until it is killed."""
    with publishing(like(numbers), path=path) as weights:
        for version in range(1 << 40):
            weights.publish(version, {name: leaf + version % 200 for name, leaf in like(numbers).items()})
            if version == 5:
                mailbox.note(os.getpid())

def body(mailbox):
    while True:
        given = mailbox.receive(60.0)
        if given:
            task, (what, *arguments) = given
            if what == "read":
                mailbox.note("reading")
                mailbox.answer(task, read(*arguments))
            else:
                write(mailbox, *arguments)
'''


def like(numbers: int) -> dict[str, Tensor]:
    return {"a": torch.zeros(numbers), "b": torch.zeros(numbers // 8, dtype=torch.uint8)}


def of(version: int, numbers: int) -> dict[str, Tensor]:
    return pytree.tree_map(lambda leaf: leaf + version % 200, like(numbers))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "weights_bodies.py").write_text(BODIES)
    sys.path.insert(0, str(folder))
    try:
        from weights_bodies import body  # type: ignore[import-not-found]

        with working(body, size=2, patience=120.0) as workers:
            for _ in range(2):
                assert isinstance(workers.receive(60.0), WorkerJoined)
            yield workers
    finally:
        sys.path.remove(str(folder))


def ours() -> set[str]:
    return {path.name for path in shared_folder().glob(f"{PREFIX}*")}


def awaited(workers: Workers, kind: type, seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        report = workers.receive(until - time.monotonic())
        if isinstance(report, kind):
            return report
    raise AssertionError(f"no {kind.__name__} within {seconds} s")


def lapped(pool: Workers, numbers: int, seconds: float, guard: str = "sequence") -> tuple[int, int, int, int]:
    """Reads, torn ones, the last version read, and copies that were overtaken, under a writer that never waits."""
    with publishing(like(numbers), slots=2, guard=guard) as weights:
        versions = [of(version, numbers) for version in range(200)] if numbers < 1 << 17 else []
        weights.publish(0, of(0, numbers))
        worker = pool.alive()[0]
        pool.send(worker, 1 + int(time.monotonic() * 1000), ("read", weights.path, numbers, seconds))
        reads: list[Any] = []
        listener = threading.Thread(target=lambda: reads.append(awaited(pool, WorkerAnswer).payload))
        listener.start()
        version = 0
        while listener.is_alive():
            version += 1
            weights.publish(version, versions[version % 200] if versions else of(version, numbers))
        listener.join()
        return reads[0]  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_reader_in_another_process_gets_whole_weights_while_it_is_lapped(pool: Workers) -> None:
    reads, torn, last, overtaken = lapped(pool, 1 << 14, 1.0)
    assert torn == 0
    assert reads > 3
    assert overtaken > 0
    assert last > 0


@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "guard"), [(1 << 8, "sequence"), (1 << 20, "sequence"), (1 << 14, "checksum")])
def test_many_reads_under_a_writer_that_never_waits(pool: Workers, numbers: int, guard: str) -> None:
    reads, torn, _, overtaken = lapped(pool, numbers, 8.0, guard)
    assert torn == 0
    assert reads > 3
    assert overtaken > 0


@pytest.mark.slow
def test_a_publisher_that_is_killed_in_the_middle_leaves_whole_weights(pool: Workers) -> None:
    path, numbers = shared_folder() / f"killed-{os.getpid()}", 1 << 16
    pool.send(pool.alive()[1], 0, ("write", path, numbers))
    pid = awaited(pool, WorkerMessage).payload
    reader = reading(path, like(numbers))
    os.kill(pid, signal.SIGKILL)
    lost = awaited(pool, WorkerLost)
    assert lost.why == "died: its process ended (SIGKILL)"
    assert [task for task, _ in lost.work] == [0]
    version, params = reader.fetch()
    assert version >= 5
    assert all(bool((leaf == version % 200).all()) for leaf in params.values())
    with publishing(like(numbers), path=path) as weights:  # somebody else goes on
        weights.publish(version + 1, of(version + 1, numbers))
        assert reader.fetch(version)[0] == version + 1
    assert not path.exists()


def test_files_whose_publisher_has_died_are_removed_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}dead").write_bytes(b"")
    (tmp_path / "precious").write_bytes(b"")
    with publishing({"w": torch.ones(1)}, path=tmp_path / f"{PREFIX}alive") as weights:
        assert remove_orphans(tmp_path) == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", weights.path.name]
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_nothing_is_left_in_memory() -> None:
    before = ours()
    with publishing({"w": torch.ones(1)}) as weights:
        assert ours() - before == {weights.path.name}
        assert weights.path.stat().st_mode & 0o777 == 0o600
    assert ours() <= before


PUBLISHER = """
import time, torch
from purestep.runtime.effects.weight_sync.shared_memory.publisher import publishing

with publishing({"w": torch.ones(1)}) as weights:
    print(weights.path, flush=True)
    time.sleep(60)
"""


def test_a_publisher_that_is_killed_leaves_nothing_in_memory() -> None:
    command = [sys.executable, "-c", PUBLISHER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        assert path.exists()
        os.killpg(process.pid, signal.SIGKILL)
    until = time.monotonic() + 10.0
    while path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not path.exists()


@record
class Layer:
    """Weights as a record."""

    weight: Tensor = tensor("out in", "float")
    bias: Tensor = tensor("out", "float")


def test_any_tree_goes_through_and_comes_back_as_it_was() -> None:
    tree = (Layer(weight=torch.randn(3, 2).T.contiguous().T, bias=torch.randn(3)), {"n": torch.tensor(7)}, ())
    with publishing(tree) as weights:
        reader = reading(weights.path, tree)
        assert reader.fetch() == ()
        weights.publish(0, tree)
        version, params = reader.fetch()
        assert (version, type(params[0]), params[2]) == (0, Layer, ())
        assert torch.equal(params[0].weight, tree[0].weight)
        assert reader.fetch(0) == ()
        weights.publish(4, tree)
        into = pytree.tree_map(torch.zeros_like, tree)
        assert reader.fetch(0, into)[1] is into
        assert torch.equal(into[0].bias, tree[0].bias)


def test_parameters_that_need_gradients_are_published_and_written_to() -> None:
    module = torch.nn.Linear(3, 2)
    params = dict(module.named_parameters())
    with publishing(params) as weights:
        weights.publish(0, params)
        other = dict(torch.nn.Linear(3, 2).named_parameters())
        reading(weights.path, other).fetch(-1, other)
    assert all(torch.equal(other[name], params[name]) for name in params)


def test_each_leaf_is_aligned_and_apart_from_the_others() -> None:
    tree = {
        "a": torch.zeros(3),
        "b": torch.zeros((), dtype=torch.bool),
        "c": torch.zeros(0),
        "d": torch.zeros(9).double(),
    }
    own = layout(tree)
    ends = [part.offset + part.size for part in own.parts]
    assert all(part.offset % ALIGNMENT == 0 for part in own.parts)
    assert all(part.offset >= end for part, end in zip(own.parts[1:], ends, strict=False))
    buffer = torch.zeros(own.size, dtype=torch.uint8)
    for number, view in enumerate(views(own, buffer)):
        view.fill_(number + 1)
    assert [view.double().sum().item() for view in views(own, buffer)] == [3.0, 1.0, 0.0, 36.0]


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"w": 3.0}, "layout: w is float, wanted a dense tensor"),
        ({"w": torch.ones(2, 2).to_sparse()}, "layout: w is torch.sparse_coo tensor"),
        ({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, "layout: a.b is a name that is taken"),
    ],
)
def test_what_cannot_be_packed_is_refused_by_name(tree: Any, says: str) -> None:
    with pytest.raises(StructureError, match=says.replace("(", r"\(")):
        layout(tree)


def test_bad_choices_are_refused_before_a_file_is_made() -> None:
    before = ours()
    with pytest.raises(ChoiceError, match="slots is 1, wanted at least 2"), publishing({"w": torch.ones(1)}, slots=1):
        pass
    with (
        pytest.raises(ChoiceError, match="did you mean 'checksum'"),
        publishing({"w": torch.ones(1)}, guard="checksums"),
    ):
        pass
    assert ours() <= before


def test_files_that_are_no_weights_are_refused_and_stay(tmp_path: Path) -> None:
    own, precious, early = {"w": torch.ones(1)}, tmp_path / "thesis.txt", tmp_path / "early"
    precious.write_text("All I have. " * 1000)
    with pytest.raises(WeightsError, match="another kind of file"), publishing(own, path=precious):
        pass
    with pytest.raises(WeightsError, match="no finished file"):
        reading(precious, own)
    assert precious.read_text().startswith("All I have.")
    with pytest.raises(WeightsError, match="absent"):
        reading(tmp_path / "nowhere", own)
    early.write_bytes(b"")
    with pytest.raises(WeightsError, match="wait until its publisher has made it"):
        reading(early, own)
    with publishing(own, path=early) as weights:  # a publisher that died while it made the file
        weights.publish(0, own)
        assert reading(early, own).fetch()[0] == 0


def test_a_file_of_another_ring_is_refused_and_stays(tmp_path: Path) -> None:
    own = {"w": torch.ones(1)}
    with publishing(own, path=tmp_path / "first", slots=2) as weights:
        left = tmp_path / "left"
        left.write_bytes(weights.path.read_bytes())
    with pytest.raises(WeightsError, match="slots, guard"), publishing(own, path=left, slots=4):
        pass
    named = pytest.raises(WeightsError, match=r"w is \[1\] float32, wanted \[2\] float32")
    with named, publishing({"w": torch.ones(2)}, path=left, slots=2):
        pass
    assert left.exists()


def test_a_full_memory_is_said_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    path = tmp_path / "weights"
    said = pytest.raises(WeightsError, match=r"without room \(No space left on device\), wanted [0-9,]+ bytes")
    with said, publishing({"w": torch.ones(1)}, path=path):
        pass
    assert not path.exists()


def test_a_reader_that_is_always_overtaken_says_so() -> None:
    own = {"w": torch.zeros(4)}

    def racing(words: Any, slots: int, newer_than: int, load: Any) -> Any:
        def overtaken(slot: int, number: int, version: int) -> Any:
            for _ in range(slots):
                weights.publish(last.pop(), own)
            return (yield from load(slot, number, version))

        return RING.fetching(words, slots, newer_than, overtaken)

    last = list(range(100_000, 0, -1))
    with publishing(own, slots=2) as weights:
        weights.publish(0, own)
        reader = reading(weights.path, own, ring=Ring(publication, racing))
        with pytest.raises(
            WeightsError, match=r"overtaken for 0\.05 s, wanted time to copy once; give the ring more slots"
        ):
            reader.fetch(seconds=0.05)


def test_the_guard_fits_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert default_guard() == "checksum"
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert default_guard() == "sequence"


def test_layouts_differ_where_architectures_do() -> None:
    own = {"a": torch.zeros(2, 3), "b": torch.zeros(6)}
    others: list[dict[str, Tensor]] = [
        {"a": torch.zeros(3, 2), "b": torch.zeros(6)},
        {"a": torch.zeros(2, 3), "c": torch.zeros(6)},
        {"a": torch.zeros(2, 3), "b": torch.zeros(6, dtype=torch.int32)},
        {"b": torch.zeros(6), "a": torch.zeros(2, 3)},
    ]
    assert text(layout(own)) == text(layout({"a": torch.ones(2, 3), "b": torch.ones(6)}))
    assert len({text(layout(tree)) for tree in [own, *others]}) == 5


def test_steps_are_run_to_their_end() -> None:
    def steps() -> Any:
        yield True
        yield False
        yield True
        return "done"

    vain: list[int] = []
    assert run_steps_in_a_row(steps(), lambda: vain.append(1)) == "done"
    assert len(vain) == 2

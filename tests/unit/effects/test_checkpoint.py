"""Checkpoints: C1 what is loaded is what was saved, C2 a crash leaves the old or the new one, C3 schemas by name."""

import errno
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.utils._pytree as pytree
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import CheckpointError, ChoiceError, StructureError
from purestep.core.record import record, tensor
from purestep.runtime.effects.checkpoint.atomic_files import DISK, Files, lock, write_whole
from purestep.runtime.effects.checkpoint.manifest import MANIFEST, SCHEMA, TENSORS, DamagedError, describe
from purestep.runtime.effects.checkpoint.single import (
    differences,
    environment,
    latest,
    processor,
    read_checkpoint,
    save,
)
from purestep.runtime.machine.json_codec import json_line


@record
class Learner:
    params: Any
    step: Tensor = tensor("*", "int")
    memory: Any = ()


@frozen
class Progress:
    iteration: int
    names: tuple[str, ...] = ()


@pytest.fixture(scope="module", autouse=True)
def quick_disk() -> Iterator[None]:
    """Hundreds of real syncs would wait for whatever else uses the disk; no test cuts the machine's power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def learner(value: float) -> Learner:
    weights = {"w": torch.full((3, 2), float(value)), "b": torch.tensor(value, dtype=torch.float64)}
    return Learner(params=weights, step=torch.tensor(int(value)))


def bits(leaf: Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    flat = leaf.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
    return leaf.dtype, leaf.shape, bytes(flat.tolist())


def same(a: Any, b: Any) -> bool:
    flat_a, structure_a = pytree.tree_flatten(a)
    flat_b, structure_b = pytree.tree_flatten(b)
    return structure_a == structure_b and list(map(bits, flat_a)) == list(map(bits, flat_b))


def refuse(text: str) -> None:
    raise AssertionError(text)


def newest(run: Path) -> Path:
    """The newest good checkpoint, none being damaged."""
    path = latest(run, report=refuse)
    assert path is not None
    return path


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders, also for each of a property's examples."""
    root = tmp_path_factory.mktemp("runs")
    return (root / str(index) for index in count())


DTYPES = [
    torch.bool,
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
]
SHAPES = [(), (1,), (0,), (3, 0, 2), (2, 3), (4, 1, 2)]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any dtype, any bits (NaN payloads included), empty and scalar shapes, and strides that no file keeps."""
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))
    size = 2 * torch.Size(shape).numel() * dtype.itemsize
    content = list(draw(st.binary(min_size=size, max_size=size)))
    if dtype == torch.bool:
        content = [byte % 2 for byte in content]
    flat = torch.tensor(content, dtype=torch.uint8).view(dtype)
    made = flat[: flat.numel() // 2].reshape(shape)
    kind = draw(st.sampled_from(["contiguous", "transposed", "strided", "expanded"]))
    if kind == "transposed":
        return made.permute(tuple(reversed(range(made.ndim))))
    if kind == "strided":
        return flat.as_strided(shape, [2 * stride for stride in made.stride()])
    return made.unsqueeze(0).expand(2, *shape) if kind == "expanded" else made


trees = st.recursive(
    tensors(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("abü_", max_size=3), inner, max_size=3)
        | st.builds(lambda params, memory: Learner(params=params, step=torch.tensor(7), memory=memory), inner, inner)
    ),
    max_leaves=6,
)


@given(trees, st.booleans())
def test_loading_gives_back_what_was_saved(folders: Iterator[Path], tree: Any, shared: bool) -> None:
    tree = (tree, tree) if shared else tree
    run = next(folders)
    path = save(run, 5, tree, machine=Progress(5, ("a",)))
    back = read_checkpoint(path, pytree.tree_map(torch.zeros_like, tree), classes=[Progress])
    assert same(back.tree, tree)
    assert (back.step, back.machine) == (5, Progress(5, ("a",)))
    assert newest(run) == path


def test_views_of_one_storage_are_saved_as_they_look(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    tree = {"whole": base, "part": base[2:4], "back": base.reshape(2, 3).t(), "neg": torch.tensor([1 + 2j]).conj().imag}
    conj = torch.tensor([1 + 2j]).conj()
    assert tree["neg"].is_neg()
    assert conj.is_conj()
    back = read_checkpoint(save(tmp_path, 0, {**tree, "conj": conj}), {**tree, "conj": conj}).tree
    assert back["part"].tolist() == [2, 3]
    assert back["back"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert back["neg"].tolist() == [-2]
    assert back["conj"].tolist() == [1 - 2j]


def test_what_is_loaded_is_a_plain_tensor_of_its_own(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    path = save(tmp_path, 1, weight)
    first, second = read_checkpoint(path, weight).tree, read_checkpoint(path, weight).tree
    assert type(first) is Tensor
    first.add_(1)
    assert second.tolist() == [1, 1, 1]
    assert read_checkpoint(path, weight).tree.tolist() == [1, 1, 1]


def test_the_layout_on_disk_is_the_promised_one(tmp_path: Path) -> None:
    import safetensors.torch

    path = save(
        tmp_path, 123, learner(2.0), machine=Progress(4), facts={"lowering": "higher_order"}, metadata={"seed": 1}
    )
    assert path == tmp_path / "checkpoints" / "step_000123"
    assert sorted(item.name for item in path.iterdir()) == [MANIFEST, TENSORS]
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step_000123\n"
    stored = safetensors.torch.load_file(path / TENSORS)
    assert {name: tuple(leaf.shape) for name, leaf in stored.items()} == {
        "params.w": (3, 2),
        "params.b": (),
        "step": (),
    }
    manifest = describe(path)
    assert manifest.metadata == {"seed": 1}
    assert manifest.environment["lowering"] == "higher_order"
    assert manifest.environment["threads"] == torch.get_num_threads()
    assert manifest.machine == {"$tag": "Progress", "iteration": 4, "names": []}
    assert manifest.sha256 == hashlib.sha256((path / TENSORS).read_bytes()).hexdigest()


def test_processors_are_told_apart(tmp_path: Path) -> None:
    one = tmp_path / "cpuinfo"
    one.write_text("processor : 0\nvendor_id : Own\ncpu family : 6\nmodel : 7\n\nprocessor : 1\nmodel : 9\n")
    assert processor(one) == f"{platform.machine()} Own 6 7"
    assert processor(tmp_path / "absent") == platform.machine()
    assert environment()["processor"] == processor()


def test_changed_facts_are_named() -> None:
    now = environment()
    assert differences(now, now) == ()
    (text,) = differences({**now, "torch": "2.11.0"}, now)
    assert text.startswith("torch: 2.11.0 when saved, ")


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_few_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (3, 5, 8, 9):
        save(tmp_path, step, learner(step), keep=keep)
    left = sorted(item.name for item in (tmp_path / "checkpoints").glob("step_*"))
    assert left == ["step_000003", "step_000005", "step_000008", "step_000009"][-keep:]
    assert newest(tmp_path).name == "step_000009"


def test_a_run_that_went_back_overwrites_nothing(tmp_path: Path) -> None:
    for step, value in ((5, 1.0), (9, 2.0), (5, 3.0)):
        path = save(tmp_path, step, learner(value))
    assert path.name == "step_000005-2"
    assert newest(tmp_path) == path
    assert (path.parent / "latest").read_text() == "step_000005-2\n"
    assert same(read_checkpoint(path.parent / "step_000005", learner(0)).tree, learner(1.0))
    assert same(read_checkpoint(path, learner(0)).tree, learner(3.0))


@pytest.mark.parametrize(
    ("like", "fault"),
    [
        ({"a": torch.ones(2, 3)}, r"b is \[1\] int64, wanted no such leaf"),
        ({"a": torch.ones(2, 3), "b": torch.ones(1), "c": torch.ones(4)}, r"c is absent.*wanted \[4\] float32"),
        ({"a": torch.ones(3, 2), "b": torch.ones(1).long()}, r"a is \[2, 3\] float32, wanted \[3, 2\] float32"),
        ({"a": torch.ones(2, 3).double(), "b": torch.ones(1)}, r"a is .*wanted \[2, 3\] float64.*\(1 more differ\)"),
    ],
)
def test_another_architecture_is_refused_leaf_by_leaf(tmp_path: Path, like: Any, fault: str) -> None:
    path = save(tmp_path, 0, {"a": torch.ones(2, 3), "b": torch.ones(1).long()})
    like = {**like, "b": like["b"].long()} if "c" in like else like
    with pytest.raises(CheckpointError, match=fault) as caught:
        read_checkpoint(path, like)
    assert "\n" not in str(caught.value)
    assert "load: step_000000: " in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ({"n": 3}, "n is int"),
        ({"n": None}, "n is NoneType"),
        ({"n": torch.ones(2, 2).to_sparse()}, "n is torch.sparse_coo tensor"),
        ({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, "a.b is a name that is taken"),
        ({"__metadata__": torch.ones(1)}, "__metadata__ is a name that is taken"),
    ],
)
def test_what_no_file_can_hold_is_refused_by_name(tmp_path: Path, tree: Any, fault: str) -> None:
    with pytest.raises(CheckpointError, match=fault):
        save(tmp_path, 0, tree)
    assert not (tmp_path / "checkpoints").exists()


def test_a_machine_or_metadata_without_json_form_is_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(StructureError, match=r"machine\.iteration is Tensor"):
        save(tmp_path, 0, learner(1), machine=Progress(torch.ones(1)))  # type: ignore[arg-type]
    with pytest.raises(StructureError, match=r"metadata\['sizes'\] is list"):
        save(tmp_path, 0, learner(1), metadata={"sizes": [64, 64]})
    with pytest.raises(ChoiceError, match=r"class of metadata.*'Progress'"):
        save(tmp_path, 0, learner(1), metadata={"args": Progress(1)})
    with pytest.raises(ChoiceError, match="keep"):
        save(tmp_path, 0, learner(1), keep=0)
    assert not (tmp_path / "checkpoints").exists()


def rewrite(path: Path, **changes: Any) -> None:
    """Changes a manifest and makes its checksum right again."""
    body = {**json.loads((path / MANIFEST).read_text()), **changes}
    del body["checksum"]
    body["checksum"] = hashlib.sha256(json_line(body).encode()).hexdigest()
    (path / MANIFEST).write_text(json.dumps(body))


def test_another_schema_is_refused_by_name_and_never_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1, learner(1))
    path = save(tmp_path, 2, learner(2))
    rewrite(path, schema="purestep-checkpoint-9")
    fault = "schema of .* is 'purestep-checkpoint-9', wanted 'purestep-checkpoint-2'"
    for attempt in (lambda: read_checkpoint(path, learner(0)), lambda: latest(tmp_path, report=refuse)):
        with pytest.raises(CheckpointError, match=fault) as caught:
            attempt()
        assert not isinstance(caught.value, DamagedError)
    assert SCHEMA == "purestep-checkpoint-2"


def flip(path: Path, position: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: flip(path / TENSORS, 0.1),
        lambda path: flip(path / TENSORS, 0.99),
        lambda path: flip(path / MANIFEST, 0.5),
        lambda path: (path / MANIFEST).write_text((path / MANIFEST).read_text().replace('"threads": ', '"threads": 1')),
        lambda path: (path / MANIFEST).unlink(),
        lambda path: (path / TENSORS).unlink(),
        lambda path: os.truncate(path / TENSORS, 20),
        lambda path: os.truncate(path / MANIFEST, 0),
        lambda path: (path / MANIFEST).write_bytes(b"\xff\xfe"),
    ],
)
def test_a_damaged_one_is_named_and_the_one_before_used(tmp_path: Path, harm: Callable[[Path], Any]) -> None:
    old, new = save(tmp_path, 1, learner(1)), save(tmp_path, 2, learner(2))
    harm(new)
    lines: list[str] = []
    assert latest(tmp_path, report=lines.append) == old
    assert len(lines) == 1
    assert str(new) in lines[0]
    with pytest.raises(DamagedError):
        read_checkpoint(new, learner(0))
    harm(old)
    with pytest.raises(CheckpointError, match="2 checkpoints, all damaged"):
        latest(tmp_path, report=lines.append)
    again = save(tmp_path, 2, learner(3))
    assert latest(tmp_path, report=lines.append) == again
    assert same(read_checkpoint(again, learner(0)).tree, learner(3))


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert latest(tmp_path, report=refuse) is None


def test_the_warning_goes_to_stderr_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = save(tmp_path, 1, learner(1)), save(tmp_path, 2, learner(2))
    flip(new / TENSORS, 0.5)
    assert latest(tmp_path) == old
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert str(new) in err


class Crash(BaseException):
    """The power goes: nothing more is written, no handler runs."""


@attrs.define(eq=False)
class Node:
    """An inode: what it holds now, and what of that has reached the disk."""

    now: Any
    durable: Any = None


@attrs.define
class Disk:
    """A mirror of the real folder that knows what `sync` has made last, and loses the rest when the power goes."""

    root: Path
    left: int = 10**9  # operations until the crash
    torn: bool = False  # whether the operation that crashes is half done
    top: Node = attrs.Factory(lambda: Node({}, {}))
    done: list[str] = attrs.Factory(list)

    def node(self, path: Path) -> Node:
        node = self.top
        for part in path.relative_to(self.root).parts:
            node = node.now[part]
        return node

    def make_folder(self, path: Path) -> None:
        node = self.top
        for part in path.relative_to(self.root).parts:
            node = node.now.setdefault(part, Node({}, {}))

    def append(self, path: Path, data: bytes) -> None:
        file = self.node(path.parent).now.setdefault(path.name, Node(b"", b""))
        file.now += data

    def sync(self, path: Path) -> None:
        node = self.node(path)
        node.durable = dict(node.now) if isinstance(node.now, dict) else node.now

    def rename(self, source: Path, target: Path) -> None:
        self.node(target.parent).now[target.name] = self.node(source.parent).now.pop(source.name)

    def remove(self, path: Path) -> None:
        del self.node(path.parent).now[path.name]

    def half(self, name: str, path: Path, data: Any = b"") -> None:
        """Does a part of an operation that has parts."""
        if name == "append":
            self.append(path, data[: len(data) // 2])
        if name == "remove" and isinstance(self.node(path).now, dict):
            self.node(path).now.pop(MANIFEST, None)

    def files(self) -> Files:
        def both(name: str) -> Callable[..., None]:
            def operate(path: Path, *rest: Any) -> None:
                if self.left == 0:
                    if self.torn:
                        self.half(name, path, *rest)
                        self.torn = False
                    raise Crash
                self.left -= 1
                self.done.append(name)
                getattr(DISK, name)(path, *rest)
                getattr(self, name)(path, *rest)

            return operate

        return Files(**{field.name: both(field.name) for field in attrs.fields(Files)})

    def after_crash(self, target: Path, survives: Callable[[], bool]) -> None:
        """Writes what a crash leaves: what was synced, and of the rest whatever `survives` says."""

        def write(node: Node, path: Path) -> None:
            content = node.now if survives() else node.durable
            if isinstance(content, bytes):
                path.write_bytes(content)
                return
            path.mkdir(parents=True, exist_ok=True)
            for name, child in content.items():
                write(child, path / name)

        write(self.top, target)


def crash_at(folders: Iterator[Path], left: int, torn: bool, keep: int, before: int) -> tuple[Disk, bool]:
    """`before` whole saves, then one that crashes after `left` operations."""
    root = next(folders)
    root.mkdir()
    disk = Disk(root, torn=torn)
    for index in range(before):
        save(root / "run", index, learner(index), machine=Progress(index), keep=keep, files=disk.files())
    disk.left = left
    disk.done.clear()
    try:
        save(root / "run", before, learner(before), machine=Progress(before), keep=keep, files=disk.files())
    except Crash:
        return disk, False
    return disk, True


@pytest.mark.parametrize(("keep", "before"), [(1, 0), (1, 1), (2, 3)])
def test_a_crash_after_any_operation_leaves_the_old_or_the_new(folders: Iterator[Path], keep: int, before: int) -> None:
    seen = set()
    whole, _ = crash_at(folders, 10**9, False, keep, before)
    assert len(whole.done) >= 10
    assert all(after in ("sync", "rename") for name, after in pairwise(whole.done) if name == "rename")
    for left in range(len(whole.done) + 1):
        for torn, survives in ((False, True), (True, True), (False, False), (True, False)):
            disk, finished = crash_at(folders, left, torn, keep, before)
            assert finished == (left == len(whole.done))
            after = next(folders)
            disk.after_crash(after, lambda survives=survives: survives)  # type: ignore[misc]
            seen.add(check_old_or_new(after / "run", before, finished))
    assert seen == {before - 1, before}


def check_old_or_new(run: Path, before: int, finished: bool) -> int:
    """What a crashed save left must be whole; a further save goes on from it and cleans up. Gives the step found."""
    path = latest(run, report=refuse)
    found = -1
    if path is not None:
        back = read_checkpoint(path, learner(0), classes=[Progress])
        found = back.step
        assert back.machine == Progress(found)
        assert same(back.tree, learner(found))
    assert found == before if finished else found in (before - 1, before)
    after = save(run, 50, learner(50), keep=1)
    assert newest(run) == after
    assert sorted(item.name for item in after.parent.iterdir()) == ["latest", "step_000050"]
    assert (after.parent / "latest").read_text() == f"{after.name}\n"
    return found


@given(st.integers(0, 30), st.booleans(), st.lists(st.booleans(), min_size=1, max_size=12))
def test_a_crash_that_loses_any_part_of_what_was_not_synced(
    folders: Iterator[Path], left: int, torn: bool, pattern: list[bool]
) -> None:
    disk, finished = crash_at(folders, left, torn, keep=1, before=1)
    after, turns = next(folders), count()
    disk.after_crash(after, lambda: pattern[next(turns) % len(pattern)])
    check_old_or_new(after / "run", 1, finished)


def test_the_model_of_a_crash_notices_a_missing_sync(folders: Iterator[Path]) -> None:
    root = next(folders)
    root.mkdir()
    disk = Disk(root)
    careless = attrs.evolve(disk.files(), sync=lambda path: None)
    save(root / "run", 1, learner(1), files=careless)
    disk.after_crash(root / "lost", lambda: False)
    assert latest(root / "lost" / "run", report=refuse) is None


def failing(left: int, number: int) -> Files:
    """A disk whose operation after `left` good ones fails; an append, after writing a part."""
    operations = count()

    def fail(name: str) -> Callable[..., None]:
        def operate(path: Path, *rest: Any) -> None:
            if next(operations) == left:
                if name == "append":
                    DISK.append(path, rest[0][:5])
                raise OSError(number, os.strerror(number))
            getattr(DISK, name)(path, *rest)

        return operate

    return Files(**{field.name: fail(field.name) for field in attrs.fields(Files)})


@pytest.mark.parametrize(("number", "got"), [(errno.ENOSPC, "a full disk"), (errno.EIO, "not writable")])
def test_a_disk_that_fails_at_any_operation_leaves_the_last_good_one(tmp_path: Path, number: int, got: str) -> None:
    disk, _ = crash_at(iter([tmp_path / "whole"]), 10**9, False, keep=1, before=1)
    operations = len(disk.done)
    seen = set()
    for left in range(operations):
        run = tmp_path / str(left)
        old = save(run, 1, learner(1), keep=1)
        with pytest.raises(CheckpointError, match=got) as caught:
            save(run, 2, learner(2), keep=1, files=failing(left, number))
        assert "\n" not in str(caught.value)
        assert not list((run / "checkpoints").glob(".partial*"))
        path = newest(run)
        seen.add(path.name)
        assert same(read_checkpoint(path, learner(0)).tree, learner(1 if path == old else 2))
    assert seen == {"step_000001", "step_000002"}
    save(tmp_path / "good", 1, learner(1), keep=1)
    assert save(tmp_path / "good", 2, learner(2), keep=1, files=failing(operations, number)) == newest(
        tmp_path / "good"
    )


def test_two_saves_at_once_take_turns(tmp_path: Path) -> None:
    threads = [threading.Thread(target=save, args=(tmp_path, step, learner(step))) for step in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = [describe(path) for path in (tmp_path / "checkpoints").glob("step_*")]
    assert sorted(manifest.sequence for manifest in steps) == [4, 5, 6]
    path = newest(tmp_path)
    assert same(read_checkpoint(path, learner(0)).tree, learner(read_checkpoint(path, learner(0)).step))


def test_write_whole_leaves_nothing_on_a_full_disk(tmp_path: Path) -> None:
    def full(path: Path, data: bytes) -> None:
        DISK.append(path, data[:2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def forbidden(path: Path, data: bytes) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    write_whole(tmp_path / "a", b"old")
    for append in (full, forbidden):
        with pytest.raises(OSError, match=r"No space|denied"):
            write_whole(tmp_path / "a", b"new", files=attrs.evolve(DISK, append=append))
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_write_whole_replaces_a_file_and_clears_what_was_left(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in (b"one", b"two"):
        (tmp_path / ".partial-a").write_bytes(b"torn")
        write_whole(path, text)
        assert path.read_bytes() == text
    assert [item.name for item in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("survives", [False, True])
def test_a_file_written_whole_is_the_old_or_the_new_after_a_crash(
    folders: Iterator[Path], torn: bool, survives: bool
) -> None:
    found = []
    for left in range(5):
        root, after = next(folders), next(folders)
        root.mkdir()
        disk = Disk(root, torn=torn)
        write_whole(root / "a", b"old one", files=disk.files())
        disk.left = left
        with suppress(Crash):
            write_whole(root / "a", b"new", files=disk.files())
        disk.after_crash(after, lambda: survives)
        found.append((after / "a").read_bytes())
    assert found == sorted(found, reverse=True)
    assert {*found} == {b"old one", b"new"}


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    run = tmp_path / "new" / "run"
    with lock(run):
        with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"), lock(run):
            pass
        with lock(tmp_path / "other"):
            pass
    with suppress(ZeroDivisionError), lock(run):
        raise ZeroDivisionError
    with lock(run):
        pass


SAVER = """
import sys
from pathlib import Path
import torch
from purestep.runtime.effects.checkpoint.single import latest, read_checkpoint, save
from purestep.runtime.effects.checkpoint.atomic_files import lock
run = Path(sys.argv[1])
def tree(step):
    return {"w": torch.full((200, 200), float(step)), "step": torch.tensor(step)}
with lock(run):
    path = latest(run)
    step = int(read_checkpoint(path, tree(0)).tree["step"]) if path else 0
    print("locked", step, flush=True)
    while True:
        step += 1
        save(run, step, tree(step), machine=step, keep=2)
        print(step, flush=True)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_a_good_checkpoint_and_no_lock(tmp_path: Path) -> None:
    reached = 0
    for wait in (0.0, 0.003, 0.011, 0.05):
        with subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert int(child.stdout.readline().split()[1]) >= reached
            with pytest.raises(CheckpointError, match=f"in use by process {child.pid}"), lock(tmp_path):
                pass
            reached = int(child.stdout.readline())
            time.sleep(wait)
            child.send_signal(signal.SIGKILL)
            reached = max([reached, *map(int, child.stdout.read().split("\n")[:-1])])
        with lock(tmp_path):
            path = newest(tmp_path)
        like = {"w": torch.zeros(200, 200), "step": torch.tensor(0)}
        back = read_checkpoint(path, like)
        assert back.machine == back.step == int(back.tree["step"]) >= reached
        assert bool((back.tree["w"] == back.step).all())

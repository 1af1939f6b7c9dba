"""Checkpoints of several ranks, here of one: their forms, crashes at any moment, saves beside training, what is refused."""

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
import torch.distributed as dist
from attrs import frozen
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from purestep.core import keys
from purestep.core.errors import CheckpointError, ChoiceError, StructureError
from purestep.core.machine import Started
from purestep.core.optim.optimizers import adamw
from purestep.core.transcript.record import SYSTEM, append_context, empty
from purestep.core.tree import leaves, tree_map
from purestep.properties import check, checkpoint_laws
from purestep.properties.suites.checkpoint import TreeStore
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import CLASSES, Rules
from purestep.runtime.effects.checkpoint import load, save, single
from purestep.runtime.effects.checkpoint.async_save import saving as saving_later
from purestep.runtime.effects.checkpoint.atomic_files import DISK, Files
from purestep.runtime.effects.checkpoint.description import read_description
from purestep.runtime.effects.checkpoint.formats import FULL, SHARDED, Form
from purestep.runtime.effects.checkpoint.group import ALONE, RankGroup, join_ranks, locked, lost
from purestep.runtime.effects.checkpoint.manifest import MANIFEST, TENSORS, DamagedError, checksum_of
from purestep.runtime.effects.checkpoint.modules import ModuleState, restore, state_of

from ...laws.effects.checkpoint_layout import filing_laws, own_filing


def own_store() -> TreeStore:
    def newest(run: Path, like: Any) -> Any:
        folder = load.latest(run, report=lambda fault: None)
        return None if folder is None else load.load(folder, like).tree

    return TreeStore(lambda run, step, tree, files: save.save(run, step, tree, keep=1, files=files), newest)


test_store = check(checkpoint_laws(), own_store())
test_filing = check(filing_laws(), own_filing())


@frozen
class Progress:
    version: int
    queue: tuple[int, ...] = ()


def config(folder: Path, leaves: Any) -> None:
    (folder / "config.json").write_text("{}")


MODELS = Form("hugging_face", at="params", largest=40, furnish=config)  # what any library might ask of its folders
FORMS = {"sharded": SHARDED, "full": FULL, "hugging_face": MODELS}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@pytest.fixture(scope="module", autouse=True)
def quick_disk() -> Iterator[None]:
    """Hundreds of real syncs would wait for whatever else uses the disk; no test cuts the machine's power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceMesh]:
    """A world of one rank, in which DTensors are what they are in any."""
    meeting = (tmp_path_factory.mktemp("world") / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def group(mesh: DeviceMesh) -> RankGroup:
    return join_ranks()


def tree(value: float) -> dict[str, Any]:
    params = {"w": torch.full((3, 2), value), "b": torch.full((2,), value + 0.5, dtype=torch.bfloat16)}
    return {"params": params, "optimizer": adamw(0.1).init(params), "step": torch.tensor(int(value))}


def on(mesh: DeviceMesh, whole: Any) -> Any:
    def divided(leaf: Tensor) -> Tensor:
        return distribute_tensor(leaf, mesh, [Shard(0)], src_data_rank=None) if leaf.ndim else leaf

    return tree_map(divided, whole)


def same(got: Any, wanted: Any) -> bool:
    def bits(leaf: Tensor) -> tuple[object, ...]:
        whole = leaf.full_tensor() if isinstance(leaf, DTensor) else leaf
        return whole.dtype, whole.shape, bytes(whole.contiguous().reshape(-1).view(torch.uint8).tolist())

    return list(map(bits, leaves(got))) == list(map(bits, leaves(wanted)))


def refuse(text: str) -> None:
    raise AssertionError(text)


# --- forms ---


LAYOUTS = {
    "sharded": ["manifest.json", "shards/.metadata", "shards/__0_0.distcp", "state.safetensors"],
    "full": ["manifest.json", "state.safetensors"],
    "hugging_face": [
        *("manifest.json", "model/config.json"),
        *(f"model/model-0000{n}-of-00001.safetensors" for n in (1,)),
        *("model/model.safetensors.index.json", "shards/.metadata", "shards/__0_0.distcp", "state.safetensors"),
    ],
}


@pytest.mark.parametrize("name", FORMS)
def test_what_is_saved_comes_back_divided_or_not(mesh: DeviceMesh, group: RankGroup, tmp_path: Path, name: str) -> None:
    machine = Progress(3, (4, 5))
    kept = on(mesh, tree(1.0))
    path = save.save(tmp_path, 123, kept, form=FORMS[name], machine=machine, metadata={"seed": 1}, group=group)
    assert path == tmp_path / "checkpoints" / "step_000123"
    found = sorted(one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file())
    assert found == LAYOUTS[name]
    assert (path.parent / "latest").read_text() == "step_000123\n"
    assert load.load(path, tree(0.0), classes=[Progress]).manifest.environment["ranks"] == 1
    for like in (on(mesh, tree(0.0)), tree(0.0)):
        back = load.load(path, like, classes=[Progress], group=group)
        assert (back.step, back.machine, back.manifest.metadata) == (123, machine, {"seed": 1})
        assert same(back.tree, tree(1.0))
        kinds = [(type(a), a.requires_grad) for a in leaves(back.tree)]
        assert kinds == [(type(b), False) for b in leaves(like)]
    assert same(kept, tree(1.0))


@each_form
def test_a_whole_run_goes_along(mesh: DeviceMesh, group: RankGroup, tmp_path: Path, form: Form) -> None:
    """What is no tensor, and tensors that nobody divides, are the same whoever reads them."""
    rules = Rules(batch=2, group=2, concurrency=4, staleness=1, updates=9)
    state = begin_schedule(rules, prompts=9, workers=2)
    state, commands = scheduler(rules).step(state, Started())
    assert commands
    rows = empty(5, 2, id=torch.tensor([7, 8]))
    rows = append_context(rows, torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([3, 2]), SYSTEM)
    whole = {**tree(1.0), "transcripts": rows, "key": keys.key(3)}
    divided = {**on(mesh, tree(1.0)), "transcripts": rows, "key": keys.key(3)}
    path = save.save(tmp_path, 1, divided, form=form, machine=state, group=group)
    like = {**tree(0.0), "transcripts": empty(5, 2, id=torch.tensor([0, 0])), "key": keys.key(0)}
    back = load.load(path, like, classes=CLASSES)
    assert back.machine == state
    assert same(back.tree, whole)
    assert scheduler(rules).step(back.machine, Started()) == scheduler(rules).step(state, Started())


@each_form
def test_a_process_alone_writes_and_reads_them_too(mesh: DeviceMesh, tmp_path: Path, form: Form) -> None:
    path = save.save(tmp_path, 1, tree(1.0), form=form)
    assert same(load.load(path, tree(0.0)).tree, tree(1.0))
    assert same(load.load(path, on(mesh, tree(0.0))).tree, tree(1.0))
    assert load.latest(tmp_path, report=refuse) == path


def test_full_ones_are_those_of_single_processes_both_ways(mesh: DeviceMesh, group: RankGroup, tmp_path: Path) -> None:
    ours = save.save(tmp_path / "a", 1, on(mesh, tree(1.0)), form=FULL, group=group)
    assert single.latest(tmp_path / "a", report=refuse) == ours
    assert same(single.read_checkpoint(ours, tree(0.0)).tree, tree(1.0))
    theirs = single.save(tmp_path / "b", 1, tree(2.0))
    assert load.latest(tmp_path / "b", group=group, report=refuse) == theirs
    assert same(load.load(theirs, on(mesh, tree(0.0)), group=group).tree, tree(2.0))


def test_forms_and_steps_may_change_along_a_run(mesh: DeviceMesh, group: RankGroup, tmp_path: Path) -> None:
    path = tmp_path
    for value, (step, form) in enumerate([(5, SHARDED), (9, FULL), (5, MODELS), (5, SHARDED)]):
        path = save.save(tmp_path, step, on(mesh, tree(float(value))), form=form, keep=2, group=group)
        assert load.latest(tmp_path, group=group, report=refuse) == path
        assert same(load.load(path, tree(0.0), group=group).tree, tree(float(value)))
    left = sorted(one.name for one in path.parent.iterdir())
    assert left == ["latest", "step_000005", "step_000005-2"]


def test_files_of_the_model_have_a_bound(mesh: DeviceMesh, group: RankGroup, tmp_path: Path) -> None:
    params = {f"w{i}": torch.full((3, 2), float(i)) for i in range(3)}
    path = save.save(tmp_path, 1, {"params": on(mesh, params)}, form=MODELS, group=group)
    index = json.loads((path / "model" / "model.safetensors.index.json").read_text())
    assert sorted(set(index["weight_map"].values())) == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert same(load.load(path, {"params": params}, group=group).tree, {"params": params})


# --- crashes ---


class Crash(BaseException):
    """The power goes: nothing more is written, no handler runs."""


@attrs.define
class Disk:
    """A real folder, and what of it `sync` has made last: by inode, so that what is written past `files` counts as well."""

    root: Path
    left: int = 10**9  # operations until the crash
    torn: bool = False  # whether an append that crashes is half done
    durable: dict[int, Any] = attrs.Factory(dict)
    graves: Any = attrs.Factory(count)
    done: list[str] = attrs.Factory(list)

    def files(self) -> Files:
        def operation(name: str) -> Callable[..., None]:
            def operate(path: Path, *rest: Any) -> None:
                if self.left == 0:
                    if name == "append" and self.torn:
                        DISK.append(path, rest[0][: len(rest[0]) // 2])
                    raise Crash
                self.left -= 1
                self.done.append(name)
                if name == "sync":
                    self.durable[path.stat().st_ino] = self.now(path)
                elif name == "remove":  # an inode that is in use is given to no other file
                    path.rename(self.root.with_name(f"{self.root.name}-grave-{next(self.graves)}"))
                else:
                    getattr(DISK, name)(path, *rest)

            return operate

        return Files(**{one.name: operation(one.name) for one in attrs.fields(Files)})

    @staticmethod
    def now(path: Path) -> Any:
        return {one.name: one.stat().st_ino for one in path.iterdir()} if path.is_dir() else path.read_bytes()

    def after_crash(self, target: Path, survives: bool) -> None:
        """Writes what a crash leaves: what was synced or, where it survives, all there is."""
        places = {path.stat().st_ino: path for path in [self.root, *self.root.rglob("*")]}

        def write(inode: int, path: Path) -> None:
            is_folder = places[inode].is_dir() if inode in places else isinstance(self.durable.get(inode), dict)
            lost: Any = {} if is_folder else b""
            content = self.now(places[inode]) if survives and inode in places else self.durable.get(inode, lost)
            if isinstance(content, bytes):
                path.write_bytes(content)
                return
            path.mkdir(parents=True, exist_ok=True)
            for name, child in content.items():
                write(child, path / name)

        write(self.root.stat().st_ino, target)


@pytest.mark.parametrize(
    ("form", "survives"),
    [(SHARDED, False), (SHARDED, True), (FULL, False), (MODELS, False)],
    ids=["sharded", "sharded, torn", "full", "hugging_face"],
)
@pytest.mark.slow
def test_a_crash_after_any_operation_leaves_the_old_or_the_new(
    mesh: DeviceMesh, group: RankGroup, tmp_path: Path, form: Form, survives: bool
) -> None:
    found, operations = [], 0
    for left in count():
        root, after = tmp_path / f"{left}", tmp_path / f"{left}-after"
        root.mkdir()
        disk = Disk(root, torn=survives)
        old, new = on(mesh, tree(1.0)), on(mesh, tree(2.0))
        save.save(root / "run", 1, old, form=form, machine=1, keep=1, group=group, files=disk.files())
        disk.left, disk.done = left, []
        try:
            save.save(root / "run", 2, new, form=form, machine=2, keep=1, group=group, files=disk.files())
        except Crash:
            operations = left + 1
        disk.after_crash(after, survives)
        path = load.latest(after / "run", group=group, report=refuse)
        assert path is not None
        back = load.load(path, old, group=group)
        assert back.machine == back.step
        assert same(back.tree, tree(float(back.step)))
        found.append(back.step)
        if left == operations:
            break
    assert operations >= 14
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 2)


@each_form
def test_the_model_of_a_crash_notices_a_missing_sync(
    mesh: DeviceMesh, group: RankGroup, tmp_path: Path, form: Form
) -> None:
    (tmp_path / "a").mkdir()
    disk = Disk(tmp_path / "a")
    careless = attrs.evolve(disk.files(), sync=lambda path: None)
    save.save(disk.root / "run", 1, on(mesh, tree(1.0)), form=form, group=group, files=careless)
    disk.after_crash(tmp_path / "lost", survives=False)
    assert load.latest(tmp_path / "lost" / "run", group=group, report=refuse) is None


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

    return Files(**{one.name: fail(one.name) for one in attrs.fields(Files)})


@pytest.mark.parametrize(("number", "got"), [(errno.ENOSPC, "a full disk"), (errno.EIO, "not writable")])
def test_a_disk_that_fails_leaves_the_last_good_one(
    mesh: DeviceMesh, group: RankGroup, tmp_path: Path, number: int, got: str
) -> None:
    new = on(mesh, tree(2.0))
    for left in range(1, 12, 2):
        run = tmp_path / str(left)
        old = save.save(run, 1, tree(1.0), keep=1)
        with pytest.raises(CheckpointError, match=f"{got}.*the older checkpoints are untouched") as caught:
            save.save(run, 2, new, form=MODELS, keep=1, group=group, files=failing(left, number))
        assert "\n" not in str(caught.value)
        assert [one.name for one in (run / "checkpoints").glob(".partial*")] == []
        assert load.latest(run, report=refuse) == old


# --- damage and strangers ---


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


HARMS: dict[str, Callable[[Path], Any]] = {
    "shards/__0_0.distcp": flip,
    "shards/.metadata": Path.unlink,
    "model/model-00001-of-00001.safetensors": lambda path: os.truncate(path, 20),
    TENSORS: Path.unlink,
    MANIFEST: flip,
}


@pytest.mark.parametrize("name", HARMS)
def test_a_damaged_one_is_named_and_the_one_before_used(
    mesh: DeviceMesh, group: RankGroup, tmp_path: Path, name: str
) -> None:
    old = save.save(tmp_path, 1, on(mesh, tree(1.0)), form=SHARDED, group=group)
    new = save.save(tmp_path, 2, on(mesh, tree(2.0)), form=MODELS, group=group)
    (new.parent / ".partial-step_000003" / "shards").mkdir(parents=True)
    HARMS[name](new / name)
    lines: list[str] = []
    assert load.latest(tmp_path, group=group, report=lines.append) == old
    assert len(lines) == 1
    assert str(new / name) in lines[0]
    with pytest.raises(DamagedError, match=name.replace(".", r"\.")):
        load.load(new, tree(0.0), group=group)
    (old / TENSORS).unlink()
    with pytest.raises(CheckpointError, match="2 checkpoints, all damaged"):
        load.latest(tmp_path, group=group, report=lines.append)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert load.latest(tmp_path, report=refuse) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda like: like["params"].update(w=torch.zeros(4, 2)),
            r"params\.w is \[3, 2\] float32, wanted \[4, 2\] float32",
        ),
        (lambda like: like["params"].pop("b"), r"params\.b is \[2\] bfloat16, wanted no such leaf"),
        (lambda like: like.update(more=torch.zeros(1)), r"more is absent from the checkpoint, wanted \[1\] float32"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_name(
    mesh: DeviceMesh, group: RankGroup, tmp_path: Path, change: Callable[[Any], Any], fault: str
) -> None:
    path = save.save(tmp_path, 1, on(mesh, tree(1.0)), group=group)
    like = tree(0.0)
    change(like)
    with pytest.raises(CheckpointError, match=fault) as caught:
        load.load(path, on(mesh, like), group=group)
    assert "\n" not in str(caught.value)


def test_another_schema_is_refused_by_name_and_never_passed_over(tmp_path: Path) -> None:
    save.save(tmp_path, 1, tree(1.0))
    path = save.save(tmp_path, 2, tree(2.0))
    body = json.loads((path / MANIFEST).read_text())
    body = {**body, "schema": "purestep-sharded-9"}
    del body["checksum"]
    (path / MANIFEST).write_text(json.dumps({**body, "checksum": checksum_of(body)}))
    for attempt in (lambda: load.load(path, tree(0.0)), lambda: load.latest(tmp_path, report=refuse)):
        with pytest.raises(CheckpointError, match=r"schema of .* is 'purestep-sharded-9'") as caught:
            attempt()
        assert not isinstance(caught.value, DamagedError)


@pytest.mark.parametrize(
    ("given", "error", "fault"),
    [
        ({"step": -1}, ChoiceError, "step"),
        ({"keep": 0}, ChoiceError, "keep"),
        ({"tree": {"n": 3}}, CheckpointError, "n is int"),
        ({"machine": Progress(torch.ones(1))}, StructureError, r"machine\.version is Tensor"),  # type: ignore[arg-type]
        ({"metadata": {"sizes": [1]}}, StructureError, r"metadata\['sizes'\] is list"),
    ],
)
def test_what_no_checkpoint_can_hold_is_refused(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], fault: str
) -> None:
    known = {"step": 1, "tree": tree(1.0), **given}
    with pytest.raises(error, match=fault):
        save.save(tmp_path, **known)
    assert load.latest(tmp_path, report=refuse) is None
    assert list(tmp_path.glob("checkpoints/*")) == []


def test_a_folder_belongs_to_one_run(group: RankGroup, tmp_path: Path) -> None:
    with locked(tmp_path / "run", group):
        with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()}"), locked(tmp_path / "run", ALONE):
            pass
        with locked(tmp_path / "other", group):
            pass
    with locked(tmp_path / "run", group):
        pass


# --- beside training ---


def test_saves_beside_training_are_of_the_moment_they_were_asked_for(
    mesh: DeviceMesh, group: RankGroup, tmp_path: Path
) -> None:
    lines: list[int] = []
    gate = threading.Event()

    def slowly(path: Path, data: bytes) -> None:
        assert gate.wait(60)
        DISK.append(path, data)

    with saving_later(tmp_path, form=MODELS, group=group, files=attrs.evolve(DISK, append=slowly)) as saver:
        for number in (1, 2):
            now = on(mesh, tree(float(number)))
            saver.save(number, now, machine=number)
            for leaf in leaves(now):
                leaf.fill_(9)
            lines.append(len(list((tmp_path / "checkpoints").glob("step_*"))))
            gate.set()
        assert lines == [0, 1]  # the second begins when the first is whole
    for number in (1, 2):
        back = load.load(tmp_path / "checkpoints" / f"step_00000{number}", tree(0.0), group=group)
        assert back.machine == number
        assert same(back.tree, tree(float(number)))


def test_a_fault_beside_training_is_raised_at_the_next_save_or_at_the_end(tmp_path: Path) -> None:
    full = failing(3, errno.ENOSPC)
    with pytest.raises(CheckpointError, match="a full disk"), saving_later(tmp_path, files=full) as saver:
        saver.save(1, tree(1.0))
    with saving_later(tmp_path, files=failing(3, errno.ENOSPC)) as saver:
        saver.save(2, tree(2.0))
        with pytest.raises(CheckpointError, match="a full disk"):
            saver.save(3, tree(3.0))
        with pytest.raises(ChoiceError, match="step"):
            saver.save(-1, tree(3.0))
        saver.save(4, tree(4.0))
    assert [one.name for one in (tmp_path / "checkpoints").glob("step_*")] == ["step_000004"]


def test_a_rank_that_is_lost_in_a_save_is_told_of_by_the_block_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed, reached = threading.Event(), threading.Event()

    def append(path: Path, data: bytes) -> None:
        reached.set()
        closed.wait()
        raise lost(RuntimeError("[/a/b.cc:5] Connection closed by peer"))

    def block() -> None:
        with saving_later(tmp_path, files=attrs.evolve(DISK, append=append)) as saver:
            assert saver.ended(0.0)
            saver.save(1, tree(1.0))
            reached.wait()
            assert not saver.ended(0.01)
            closed.set()
            assert saver.ended(60.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert capsys.readouterr().err == ""


def test_an_error_of_the_block_is_not_hidden_by_one_of_its_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def block() -> None:
        with saving_later(tmp_path, files=failing(3, errno.ENOSPC)) as saver:
            saver.save(1, tree(1.0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert "a full disk" in capsys.readouterr().err


# --- torch's own modules ---


def test_modules_and_their_optimisers_go_on_where_they_were(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        return module, torch.optim.AdamW(module.parameters(), lr=0.1, betas=(0.5, 0.75))

    def stepped(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        module(torch.ones(4, 2)).square().sum().backward()
        optimizer.step()

    (first, its), (second, other) = made(), made()
    stepped(first, its)
    its.param_groups[0]["lr"] = 0.25
    state = state_of(first, its)
    path = save.save(tmp_path, 1, state.tree, machine=state.settings)
    like = state_of(second, other)
    back = load.load(path, like.tree)
    restore(second, other, ModuleState(back.tree, back.machine))
    assert other.param_groups[0]["lr"] == 0.25
    for module, optimizer in ((first, its), (second, other)):
        stepped(module, optimizer)
    assert same(state_of(second, other).tree, state_of(first, its).tree)
    assert read_description(path).manifest.machine["param_groups.0.weight.lr"] == 0.25


# --- the page ---


def test_the_page_says_what_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()
    (code,) = (part.partition("```")[0] for part in text.split("```python\n")[1:])
    monkeypatch.chdir(tmp_path)
    world: dict[str, Any] = {}
    exec(code, world)  # as its readers do
    assert world["path"].relative_to(tmp_path if world["path"].is_absolute() else "").parts[0] == "runs"
    assert int(world["checkpoint"].tree["step"]) == world["checkpoint"].machine["version"] == 3
    found = {one.relative_to(world["path"]).parts[0] for one in world["path"].rglob("*")}
    assert found == {"manifest.json", "state.safetensors"}
    for name in ("step_000123", "manifest.json", "state.safetensors", "shards/", "model/", "latest"):
        assert name in text

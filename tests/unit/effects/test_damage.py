"""Damage of a run's newest checkpoint: named in a line, and the one before is used; nothing is built from what is damaged."""

import copy
import json
import os
import pickle
import shutil
from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from purestep.core.errors import CheckpointError, PurestepError
from purestep.runtime.cli import main
from purestep.runtime.effects.checkpoint import load, save, single
from purestep.runtime.effects.checkpoint.manifest import MANIFEST, TENSORS, DamagedError, checksum_of
from purestep.runtime.effects.checkpoint.shards import ShardReader
from purestep.runtime.recipes.classic import RECIPES
from purestep.runtime.runs import run as runs
from purestep.runtime.runs.arguments import changed

TINY = {"steps": 24, "envs": 2, "horizon": 4, "hidden": (4,), "backend": "none", "checkpoints": 3}
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three checkpoints."""
    run = tmp_path_factory.mktemp("runs") / "one"
    arguments = changed(RECIPES["ppo"].defaults(), {**TINY, "epochs": 1, "minibatches": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        runs.start(run, RECIPES["ppo"], arguments, overwrite=False, notice=lambda text: None)
    return run


@pytest.fixture(scope="module")
def last(trained: Path) -> int:
    """The iteration of its newest checkpoint."""
    iteration: int = runs.restore_run(trained).loop.iteration
    return iteration


@pytest.fixture(scope="module")
def copies(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A function that gives another copy of the run at each call."""
    root, numbers = tmp_path_factory.mktemp("copies"), count()

    def another() -> Path:
        for old in root.iterdir():
            shutil.rmtree(old)
        return Path(shutil.copytree(trained, root / str(next(numbers)) / "run"))

    return another


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step_*"))[-1]


def body_of(where: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((where / MANIFEST).read_text())
    return body


def write(where: Path, body: Any) -> None:
    """Writes a manifest with a right checksum, as somebody would who wants it to be read."""
    rest = {name: value for name, value in body.items() if name != "checksum"}
    (where / MANIFEST).write_text(json.dumps({**rest, "checksum": checksum_of(rest)}))


def put(*path: Any, value: Any) -> Callable[[Path], None]:
    """Puts a value in the place of one in the manifest."""

    def harm(where: Path) -> None:
        body = body_of(where)
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        write(where, body)

    return harm


def drop(*path: Any) -> Callable[[Path], None]:
    def harm(where: Path) -> None:
        body = body_of(where)
        inner = body
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]
        write(where, body)

    return harm


def tensors(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[Path], None]:
    """Other tensors, with the hash that belongs to them."""

    def harm(where: Path) -> None:
        data = safetensors.torch.save(change(safetensors.torch.load_file(where / TENSORS)))
        (where / TENSORS).write_bytes(data)
        write(where, {**body_of(where), "sha256": sha256(data).hexdigest()})

    return harm


def bytes_of(data: bytes) -> Callable[[Path], None]:
    def harm(where: Path) -> None:
        (where / TENSORS).write_bytes(data)
        write(where, {**body_of(where), "sha256": sha256(data).hexdigest()})

    return harm


def replaced(name: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def harm(where: Path) -> None:
        (where / name).unlink()
        make(where / name)

    return harm


def link_outside(where: Path) -> None:
    outside = where.parents[2] / "outside"
    shutil.move(where / TENSORS, outside)
    (where / TENSORS).symlink_to(outside)


def link_to_folder(where: Path) -> None:
    outside = where.parents[2] / "elsewhere"
    shutil.move(where, outside)
    where.symlink_to(outside)


def file_in_its_place(where: Path) -> None:
    shutil.rmtree(where)
    where.write_text("x")


def with_nan(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    name = next(name for name in held if name.endswith("learner.params"))
    return {**held, name: held[name].clone().index_fill_(0, torch.tensor([0]), float("nan"))}


def of_one_shape(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(3) for name in held}


HARMS: dict[str, Callable[[Path], Any]] = {
    "deeply nested": lambda where: (where / MANIFEST).write_text(DEEP),
    "deep machine": put("machine", value=json.loads("[" * 150 + "]" * 150)),
    "a list": lambda where: (where / MANIFEST).write_text("[]"),
    "no object but a number": lambda where: (where / MANIFEST).write_text("7"),
    "NaN": lambda where: (where / MANIFEST).write_text('{"step": NaN}'),
    "infinite": lambda where: (where / MANIFEST).write_text('{"step": 1e999, "checksum": "a"}'),
    "many digits": lambda where: (where / MANIFEST).write_text("1" * 10_000),
    "empty": lambda where: (where / MANIFEST).write_text(""),
    "no text": lambda where: (where / MANIFEST).write_bytes(b"\xff\xfe\x00"),
    "schema of no kind": put("schema", value=None),
    "schema of a list": put("schema", value=["purestep-checkpoint-2"]),
    "unknown field": put("colour", value=1),
    "absent field": drop("machine"),
    "step of text": put("step", value="3"),
    "step of a bool": put("step", value=True),
    "negative step": put("step", value=-1),
    "huge sequence": put("sequence", value=10**40),
    "sequence of text": put("sequence", value="9"),
    "hash of a number": put("sha256", value=7),
    "leaves of a number": put("leaves", value=3),
    "a leaf of text": put("leaves", 0, value="x"),
    "a leaf of a huge shape": put("leaves", 0, "shape", value=[2**50, 2**50]),
    "a leaf of a negative shape": put("leaves", 0, "shape", value=[-1]),
    "a leaf of no dtype": put("leaves", 0, "dtype", value="nn"),
    "a leaf of another dtype": put("leaves", 0, "dtype", value="int8"),
    "a leaf of another name": put("leaves", 0, "name", value="other"),
    "a leaf less": drop("leaves", 0),
    "environment of a list": put("environment", value=[]),
    "environment with a class": put("environment", value={"$tag": "loop"}),
    "metadata of text": put("metadata", value="x"),
    "metadata less": drop("metadata", "gamma"),
    "metadata more": put("metadata", "colour", value=1),
    "metadata of another recipe": put("metadata", "recipe", value="zorplex"),
    "metadata without a recipe": put("metadata", "recipe", value={"a": 1}),
    "metadata of another env": put("metadata", "env", value="nowhere"),
    "metadata of another type": put("metadata", "horizon", value="4"),
    "metadata of a nested type": put("metadata", "hidden", value=["x"]),
    "metadata with a bad number": put("metadata", "gamma", value={"$float": [1]}),
    "metadata of another size": put("metadata", "hidden", value=[9]),
    "metadata of threads": put("metadata", "threads", value=100_000),
    "machine of text": put("machine", value="going"),
    "machine of another class": put("machine", "$tag", value="Path"),
    "machine of no class": put("machine", "$tag", value=["loop"]),
    "machine with more": put("machine", "colour", value=1),
    "machine with less": drop("machine", "chunk"),
    "machine of text within": put("machine", "iteration", value="3"),
    "machine of a float": put("machine", "iteration", value=3.0),
    "machine below 0": put("machine", "iteration", value=-3),
    "machine beyond its end": put("machine", "iteration", value=10**9),
    "machine without a pace": put("machine", "chunk", value=0),
    "machine that diverged": put("machine", "diverged", value=1),
    "NaN weights": tensors(with_nan),
    "other shapes": tensors(of_one_shape),
    "no tensors": tensors(lambda held: {}),
    "garbage": bytes_of(b"garbage" * 100),
    "a header that ends nowhere": bytes_of(b"\xff" * 7 + b"\x7f" + b"{}"),
    "nothing": bytes_of(b""),
    "cut": lambda where: os.truncate(where / TENSORS, 30),
    "no manifest": lambda where: (where / MANIFEST).unlink(),
    "no tensor file": lambda where: (where / TENSORS).unlink(),
    "a link outside": link_outside,
    "a folder outside": link_to_folder,
    "a manifest that is a FIFO": replaced(MANIFEST, os.mkfifo),
    "tensors that are a FIFO": replaced(TENSORS, os.mkfifo),
    "a manifest that is a device": replaced(MANIFEST, lambda path: path.symlink_to("/dev/zero")),
    "tensors that are a device": replaced(TENSORS, lambda path: path.symlink_to("/dev/zero")),
    "a manifest that is a folder": replaced(MANIFEST, Path.mkdir),
    "a file in its place": file_in_its_place,
}


@pytest.mark.parametrize("name", HARMS)
def test_damage_is_named_in_a_line_and_the_checkpoint_before_is_used(
    name: str, last: int, copies: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = copies()
    HARMS[name](newest(run))
    held = runs.restore_run(run)
    assert held.loop.iteration < last
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1, said
    assert str(newest(run)) in said[0]
    assert len(said[0]) < 1200


@pytest.mark.parametrize("name", ["deeply nested", "machine below 0", "NaN weights", "metadata of another type"])
def test_where_none_is_good_one_line_says_so(
    name: str, copies: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = copies()
    for where in sorted((run / "checkpoints").glob("step_*")):
        HARMS[name](where)
    for words in (["evaluate", str(run)], ["resume", str(run)]):
        assert main.main(words) == 1
        out, err = capsys.readouterr()
        assert out == ""
        *_, last = err.splitlines()
        assert last.startswith("purestep: ")
        assert "Traceback" not in err


def test_evaluate_and_resume_use_the_one_before(copies: Callable[[], Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = copies()
    HARMS["NaN weights"](newest(run))
    assert main.main(["evaluate", str(run), "--episodes", "1"]) == 0
    said = capsys.readouterr().err
    assert said.count("NaN or infinite numbers in learner.params") == 1
    runs.resume(run, notice=lambda text: None)
    capsys.readouterr()
    assert runs.restore_run(run).loop.iteration == 3
    assert capsys.readouterr().err == ""


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a JSON value, with its own."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for name, one in inner for place in paths(one, (*at, name)))]


numbers = (
    st.integers()
    | st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30])
    | st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5)
values = st.recursive(
    scalars | st.sampled_from([{"$tag": "loop"}, {"$float": "nan"}, {"$tag": []}, {"$float": {}}]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def drawn(run: Path, data: st.DataObject) -> None:
    """Damage that is drawn gives the checkpoint itself, the one before it, or an error in one line; nothing else."""
    where = newest(run)
    kind = data.draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "flip", "cut", "tensors"]))
    if kind in ("flip", "cut", "tensors"):
        file = where / data.draw(st.sampled_from([MANIFEST, TENSORS]) if kind != "tensors" else st.just(TENSORS))
        content = bytearray(file.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        if kind == "cut":
            content = content[:at]
        else:
            content[at] ^= data.draw(st.integers(1, 255))
        file.write_bytes(bytes(content))
        if kind == "tensors":
            write(where, {**body_of(where), "sha256": sha256(bytes(content)).hexdigest()})
    else:
        body = copy.deepcopy(body_of(where))
        del body["checksum"]
        *outer, last = data.draw(st.sampled_from([place for place in paths(body) if place]))
        inner: Any = body
        for name in outer:
            inner = inner[name]
        if kind == "replace":
            inner[last] = data.draw(values)
        elif kind == "remove":
            del inner[last]
        elif isinstance(inner, dict):
            inner[data.draw(st.text(max_size=5))] = data.draw(values)
        else:
            inner.append(data.draw(values))
        write(where, body)
    try:
        held = runs.restore_run(run)
    except PurestepError:  # of another schema: it may be the newest
        return
    assert 0 < held.loop.iteration <= 3


ANY_SPEED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=ANY_SPEED)
@given(st.data())
def test_drawn_damage_is_an_error_in_one_line_or_none(copies: Callable[[], Path], data: st.DataObject) -> None:
    drawn(copies(), data)


@pytest.mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=ANY_SPEED)
@given(st.data())
def test_much_drawn_damage_is_an_error_in_one_line_or_none(copies: Callable[[], Path], data: st.DataObject) -> None:
    drawn(copies(), data)


# --- checkpoints of several ranks ---

SHARDED_HARMS: dict[str, Callable[[Path], Any]] = {
    "form": put("form", value="other"),
    "form of a list": put("form", value=[]),
    "places": put("places", value=[]),
    "a place": put("places", "w", value="elsewhere"),
    "a place of a list": put("places", "w", value=[]),
    "files": put("files", value={}),
    "a file outside": put("files", 0, "name", value="../../../etc/passwd"),
    "a file from the root": put("files", 0, "name", value="/dev/zero"),
    "a file of no size": put("files", 0, "size", value="1"),
    "at": put("at", value=3),
    "a manifest in it": put("manifest", value=[]),
    "deep": lambda where: (where / MANIFEST).write_text(DEEP),
    "a FIFO beside": lambda where: os.mkfifo(where / "model.safetensors"),
    "a link": link_outside,
}


@pytest.mark.parametrize("name", SHARDED_HARMS)
def test_damage_of_a_sharded_checkpoint_is_named(name: str, tmp_path: Path) -> None:
    tree, run = {"w": torch.ones(3)}, tmp_path / "run"
    old, new = (save.save(run, step, tree, machine=(step,)) for step in (1, 2))
    SHARDED_HARMS[name](new)
    said: list[str] = []
    assert load.latest(run, report=said.append) == old
    assert len(said) == 1
    with pytest.raises(DamagedError):
        load.load(new, tree)


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_shards_are_read_without_running_what_they_say(tmp_path: Path) -> None:
    from torch.distributed.checkpoint import metadata

    for content in (Evil(tmp_path / "made"), metadata.Metadata({"w": metadata.BytesStorageMetadata()}, None, {})):
        (tmp_path / ".metadata").write_bytes(pickle.dumps(content))
        with pytest.raises(DamagedError):
            ShardReader(tmp_path).read_metadata()
    assert not (tmp_path / "made").exists()


def test_what_is_usable_is_looked_for_from_the_newest_on(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        single.save(tmp_path, step, {})

    def find(report: Callable[[str], None], without: Any) -> Path | None:
        return single.latest(tmp_path, report=report, without=without)

    tried: list[str] = []

    def use(where: Path) -> str:
        tried.append(where.name)
        if where.name != "step_000001":
            raise CheckpointError("of another kind")
        return where.name

    said: list[str] = []
    assert single.newest_usable(find, use, report=said.append) == "step_000001"
    assert tried == ["step_000003", "step_000002", "step_000001"]
    assert [one.count("of another kind") for one in said] == [1, 1]

    def never(where: Path) -> str:
        raise ZeroDivisionError(where.name)

    with pytest.raises(ZeroDivisionError, match="step_000003"):  # what no checkpoint can mend comes as it is
        single.newest_usable(find, never, report=said.append)
    assert len(said) == 2

"""Checkpoints of two ranks and more, in processes: the matrix of world sizes, and faults that one of the ranks has."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from purestep.runtime.effects.checkpoint import load

from ...support.programs import first_line

ROOT = Path(__file__).parents[3]

RANK = """
import errno, json, os, signal, sys
from pathlib import Path
import attrs, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from purestep.core.errors import PurestepError
from purestep.runtime.effects.checkpoint.atomic_files import DISK
from purestep.runtime.effects.checkpoint import load, save
from purestep.runtime.effects.checkpoint.formats import FULL, SHARDED, Form
from purestep.runtime.effects.checkpoint.group import join_ranks, locked
from purestep.runtime.effects.checkpoint.async_save import saving as saving_later

place, rank = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method=(place / "meeting").as_uri(), rank=rank, world_size=2)
mesh, group, told = init_device_mesh("cpu", (2,)), join_ranks(seconds=60.0), {}

def tree(value, step=None):
    whole = torch.arange(15.0).reshape(5, 3) + value
    divided = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
    return {"params": {"w": divided}, "step": torch.tensor(int(value) if step is None else step)}

def loaded(path):
    back = load.load(path, tree(0.0), group=group).tree
    return back["params"]["w"].full_tensor().flatten().tolist(), int(back["step"])

def said(name, work):
    try:
        told[name] = str(work())
    except PurestepError as error:
        told[name] = f"{type(error).__name__}: {error}"

def failing(who, operation, after=0):
    left = [after]
    def fail(path, *rest):
        if rank == who and left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        getattr(DISK, operation)(path, *rest)
    return attrs.evolve(DISK, **{operation: fail})

run = place / "run"
with locked(run, group):
    old = save.save(run, 1, tree(1.0), group=group)
    said("own state", lambda: save.save(run, 2, tree(2.0, step=rank), group=group))
    said("full on 1", lambda: save.save(run, 2, tree(2.0), group=group, files=failing(1, "append")))
    said("full on 0", lambda: save.save(run, 2, tree(2.0), group=group, files=failing(0, "append", after=1)))
    said("no rename", lambda: save.save(run, 2, tree(2.0), form=FULL, group=group, files=failing(0, "rename")))
    said("another", lambda: save.save(run, 2, {"n": 3} if rank else tree(2.0), group=group))
    said("partial", lambda: sorted(one.name for one in old.parent.iterdir()))
    said("newest", lambda: load.latest(run, group=group) == old)
    with saving_later(run, group=group, keep=9) as saver:
        for number in (2, 3):
            now = tree(float(number))
            saver.save(number, now)
            now["params"]["w"].mul_(0)
            dist.all_reduce(torch.ones(3))  # what training says meanwhile, on its own channel
    said("later", lambda: [loaded(old.parent / f"step_00000{number}") for number in (2, 3)])
    lines = []
    if rank == 0:
        (old.parent / "step_000003" / "shards" / "__1_0.distcp").write_bytes(b"torn")
    dist.barrier()
    said("damage", lambda: load.latest(run, group=group, report=lines.append).name)
    told["lines"] = lines
    said("torn", lambda: load.load(old.parent / "step_000003", tree(0.0), group=group))
other = Path(sys.argv[3])
said("locked", lambda: locked(other, group).__enter__())

print(json.dumps(told), flush=True)
if rank == 1:
    dying = attrs.evolve(DISK, append=lambda path, data: os.kill(os.getpid(), signal.SIGKILL))
    save.save(run, 9, tree(9.0), group=group, files=dying)
said("lost", lambda: save.save(run, 9, tree(9.0), group=group))
print(json.dumps(told), flush=True)
os._exit(0)  # a group without one of its ranks cannot take leave of it
"""

HOLDER = """
import sys
from pathlib import Path
from purestep.runtime.effects.checkpoint.atomic_files import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """(the run's folder, what each rank said)"""
    place = tmp_path_factory.mktemp("ranks")
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    start: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": quiet}
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(place / "other")], **start) as holder:
        assert first_line(holder) == "held"
        words = [sys.executable, "-c", RANK, str(place)]
        ranks = [subprocess.Popen([*words, str(rank), str(place / "other")], **start) for rank in range(2)]
        try:
            printed = [rank.communicate(timeout=300)[0].splitlines() for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        holder.communicate("")
    assert [rank.returncode for rank in ranks] == [0, -9]
    return place / "run", [json.loads(lines[-1]) for lines in printed]


pytestmark = pytest.mark.slow


def test_what_differs_between_ranks_is_refused_by_name(told: tuple[Path, list[dict[str, Any]]]) -> None:
    for rank in told[1]:
        assert "CheckpointError: save: step is [] int64 " in rank["own state"]
        assert "on rank 1, wanted [] int64 " in rank["own state"]
        assert "save: n is int, wanted a dense tensor" in rank["another"]
    assert told[1][0]["another"].startswith("CheckpointError: rank 1: ")


def test_a_fault_of_one_rank_is_all_ranks_fault(told: tuple[Path, list[dict[str, Any]]]) -> None:
    zero, one = told[1]
    for own, other, name in ((one, zero, "full on 1"), (zero, one, "full on 0"), (zero, one, "no rename")):
        assert "a full disk, wanted room for" in own[name]
        assert "No space left on device" in other[name]
        assert "\n" not in own[name] + other[name]
    for rank in told[1]:
        assert rank["partial"] == "['latest', 'step_000001']"
        assert rank["newest"] == "True"


def test_saves_beside_training_are_of_their_moment(told: tuple[Path, list[dict[str, Any]]]) -> None:
    wanted = str([([number + float(i) for i in range(15)], number) for number in (2, 3)])
    assert [rank["later"] for rank in told[1]] == [wanted, wanted]


def test_ranks_share_the_work_of_looking_for_damage(told: tuple[Path, list[dict[str, Any]]]) -> None:
    zero, one = told[1]
    assert zero["damage"] == one["damage"] == "step_000002"
    assert len(zero["lines"]) == 1
    assert "step_000003/shards/__1_0.distcp is 4 bytes, wanted" in zero["lines"][0]
    assert one["lines"] == []
    assert all("DamagedError: checkpoint" in rank["torn"] for rank in told[1])


def test_two_runs_in_one_folder_are_refused_on_all_ranks(told: tuple[Path, list[dict[str, Any]]]) -> None:
    assert all("in use by process" in rank["locked"] for rank in told[1])


def test_a_rank_that_dies_in_a_save_ends_the_others_with_one_line(told: tuple[Path, list[dict[str, Any]]]) -> None:
    run, (zero, one) = told
    assert zero["lost"].startswith("LostError: a rank is lost")
    assert "\n" not in zero["lost"]
    assert "lost" not in one
    path = load.latest(run, report=lambda text: None)
    assert path is not None
    assert path.name == "step_000002"
    like: Any = {"params": {"w": torch.zeros(5, 3)}, "step": torch.tensor(0)}
    assert torch.equal(load.load(path, like).tree["params"]["w"], torch.arange(15.0).reshape(5, 3) + 2)


def test_every_world_size_reads_what_every_other_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the extra llm is not installed")
    monkeypatch.syspath_prepend(ROOT)
    benchmark = importlib.import_module("benchmarks.machines.world_sizes")
    rows, differing = benchmark.run(tmp_path)
    assert differing == 0
    cells = {(row["form"], row["optimizer"], row["saved_at"], row["loaded_at"]) for row in rows}
    assert len(cells) == len(rows) == 3 * 2 * 4 * 5
    assert [row for row in rows if not benchmark.good(row)] == []
    assert {row["divided_bytes"] > 0 for row in rows if row["loaded_at"]} == {True}

"""A full disk, with room for any part of a save: it is whole or refused, whichever of its files has none."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("transformers")

ROOMS = {  # as shares of a checkpoint's size; Hugging Face's form needs room for what it merges besides
    "hugging_face": (0.0, 0.5, 0.9, 1.02, 1.1, 1.2),
    "sharded": (0.3, 0.6, 0.9, 0.99),
    "full": (0.5, 0.99),
}
PROGRAM = '''
import json
import os
import shutil
import sys
import traceback
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from purestep.core import keys
from purestep.core.errors import CheckpointError
from purestep.core.optim.optimizers import adamw
from purestep.core.tree import tree_map
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.checkpoint import load, save
from purestep.runtime.effects.checkpoint.formats import FULL, SHARDED, hugging_face
from purestep.runtime.effects.checkpoint.group import join_ranks


def divided(leaf):
    return distribute_tensor(leaf, mesh, [Shard(0)], src_data_rank=None) if leaf.ndim else leaf


def outcome(run, form, room):
    """What is said of a save with that much room, what is left, the newest, and whether it failed while files were merged."""
    space, ballast = os.statvfs(root), root / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, space.f_bavail * space.f_frsize - room))
    try:
        save.save(run, 2, tree, form=form, group=group)
        said, merging = "", False
    except CheckpointError as error:
        frames = traceback.extract_tb(error.__cause__.__traceback__)
        said, merging = str(error), any("consolidat" in frame.name for frame in frames)
    ballast.unlink()
    left = sorted(one.name for one in (run / "checkpoints").iterdir())
    newest = load.latest(run, group=group, report=sys.exit)
    load.load(newest, tree, group=group)
    for one in (run / "checkpoints").glob("step_000002*"):
        shutil.rmtree(one)
    return said, left, newest.name, merging


root, rooms = Path(sys.argv[1]), json.loads(sys.argv[2])
dist.init_process_group("gloo", init_method=(root / "meeting").as_uri(), rank=0, world_size=1)
mesh, group, config = init_device_mesh("cpu", (1,)), join_ranks(), tiny_llama(1000, width=48, heads=3, kv_heads=1, inner=64)
params = from_config(config).init(keys.key(1))
tree = tree_map(divided, {"params": params, "optimizer": adamw(0.1).init(params)})
told = {}
for name, form in {"hugging_face": hugging_face(config, largest=100_000), "sharded": SHARDED, "full": FULL}.items():
    path = save.save(root / name, 1, tree, form=form, group=group)
    size = sum(one.stat().st_size for one in path.rglob("*"))
    told[name] = [outcome(root / name, form, int(size * share)) for share in (*rooms[name], 2.0)]
    shutil.rmtree(root / name)
print(json.dumps(told), flush=True)
os._exit(0)
'''
SMALL = 'mount -t tmpfs -o size=8m tmpfs "$0" && exec "$@"'


def test_a_full_disk_is_told_in_one_line_and_nothing_is_left_of_the_save(tmp_path: Path) -> None:
    """Ranks' pieces, the files that are merged of them, folders, state and manifest: each finds no room for some size."""
    own = ["unshare", "--mount", "sh", "-c", SMALL, str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted")
    words = [*own, sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(ROOMS)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert {name: len(each) - 1 for name, each in told.items()} == {name: len(each) for name, each in ROOMS.items()}
    assert any(merging for *_, merging in told["hugging_face"])
    for *full, last in told.values():
        for said, left, newest, _ in full:
            assert " is a full disk, wanted room for " in said
            assert said.endswith("; free some space; the older checkpoints are untouched")
            assert "\n" not in said
            assert left == ["latest", "step_000001"]
            assert newest == "step_000001"
        assert last == ["", ["latest", "step_000001", "step_000002"], "step_000002", False]

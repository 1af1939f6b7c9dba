"""What ranks on hosts of their own run in tests of checkpoints: training in exact numbers, and a save that is held up."""

import threading
import time
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from torch import Tensor
from torch.distributed.tensor import Shard, distribute_tensor

from purestep.runtime.effects.checkpoint import async_save, load, save
from purestep.runtime.effects.checkpoint.atomic_files import DISK, Files
from purestep.runtime.effects.checkpoint.group import join_ranks, locked
from purestep.runtime.effects.distributed.process_group import ProcessGroup, on_ranks

SECONDS = 5.0  # behind which a rank that says nothing is taken for lost
FIRST, SECOND, LAST = 3, 5, 9  # updates behind which a checkpoint is made, and of the whole run


def begun() -> dict[str, Tensor]:
    """The state of a run before its first update."""
    return {"w": torch.arange(40.0).reshape(10, 4), "m": torch.zeros(10, 4), "step": torch.tensor(0)}


def trained(state: Any, last: int) -> Any:
    """The state behind so many updates; momentum with dyadic numbers, the same bits however it is divided."""
    while int(state["step"]) < last:
        step = state["step"] + 1
        momentum = state["m"] * 0.5 + state["w"] * 0.25 - int(step)
        state = {"w": state["w"] - momentum * 0.125, "m": momentum, "step": step}
    return state


def divided(ranks: ProcessGroup, state: dict[str, Tensor]) -> dict[str, Any]:
    """The state in shards."""
    return {
        name: distribute_tensor(leaf, ranks.mesh, [Shard(0)], src_data_rank=None) if leaf.ndim else leaf
        for name, leaf in state.items()
    }


def held_up(place: Path) -> Files:
    """The disk, whose first write stops in the middle, says so, and goes on when it is let."""
    todo = threading.Semaphore()

    def append(path: Path, data: bytes) -> None:
        if todo.acquire(blocking=False):
            DISK.append(path, data[: len(data) // 2])
            data = data[len(data) // 2 :]
            (place / "middle").touch()
            while not (place / "go").exists():
                time.sleep(0.02)
        DISK.append(path, data)

    return evolve(DISK, append=append)


def train(ranks: ProcessGroup, place: Path, how: str) -> None:
    """A run from its begin: a checkpoint that is whole, and one that the last rank does not bring to its end."""
    group = join_ranks(seconds=SECONDS)
    files = held_up(place) if ranks.rank == ranks.size - 1 else DISK
    with locked(place / "run", group):
        state = trained(divided(ranks, begun()), FIRST)
        save.save(place / "run", FIRST, state, group=group)
        state = trained(state, SECOND)
        if how == "at once":
            save.save(place / "run", SECOND, state, group=group, files=files)
        else:
            with async_save.saving(place / "run", group=group, files=files) as saver:
                saver.save(SECOND, state)
                trained(state, LAST)


def go_on(ranks: ProcessGroup, place: Path, how: str) -> None:
    """The run from its newest checkpoint to its end, on however many ranks; the first save may be held up."""
    group = join_ranks(seconds=60.0)
    files = held_up(place / "again") if how == "again held up" and ranks.rank == ranks.size - 1 else DISK
    with locked(place / "run", group):
        path = load.latest(place / "run", group=group)
        assert path is not None
        state = load.load(path, divided(ranks, begun()), group=group).tree
        state = trained(state, SECOND)
        save.save(place / "run", SECOND, state, group=group, files=files)
        save.save(place / "run", LAST, trained(state, LAST), group=group)


def main(words: list[str]) -> int:
    place = Path(words[1])
    if words[0].startswith("again"):
        return on_ranks(lambda ranks: go_on(ranks, place, words[0]), timeout=60.0, device="cpu")
    return on_ranks(lambda ranks: train(ranks, place, words[0]), timeout=SECONDS, device="cpu")

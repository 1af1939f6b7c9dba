"""What `world_sizes` does on each rank: a small sharded Llama, its optimisers' states, saved and loaded at each world size.

Every number that is saved is drawn from a key by its name, so that each rank knows what belongs into its part whoever saved
it. A world of W ranks is a process group of its own, made of the first W processes, which live on from world to world.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from attrs import frozen
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from purestep.core import keys
from purestep.core.optim.optimizers import adamw
from purestep.core.tree import leaf_names, leaves, tree_map
from purestep.runtime.effects.checkpoint.formats import FULL, SHARDED, Form, hugging_face
from purestep.runtime.effects.checkpoint.group import ALONE, RankGroup, gather_values, join_ranks
from purestep.runtime.effects.checkpoint.load import load
from purestep.runtime.effects.checkpoint.modules import ModuleState, restore, state_of
from purestep.runtime.effects.checkpoint.save import save
from purestep.runtime.effects.hugging_face.causal_lm import tiny_llama
from purestep.runtime.effects.hugging_face.optional import library
from purestep.runtime.machine.json_codec import decode, encode

FORMS = ("sharded", "full", "hugging_face")
KINDS = ("functional", "torch")  # of optimisers
MACHINE = {"version": 3, "queue": (7, 8), "scheduler": "running"}
LARGEST = 600  # bytes of a file of the model, so that there are several


def config() -> Any:
    """Layers that no number of ranks above 1 divides evenly; with 3 and 4 some ranks hold nothing of some of them."""
    return tiny_llama(13, width=6, layers=2, heads=3, kv_heads=1, inner=7, tied=False)


def forms() -> dict[str, Form]:
    """The three forms."""
    return {"sharded": SHARDED, "full": FULL, "hugging_face": hugging_face(config(), largest=LARGEST)}


@frozen
class World:
    """A model and its two states on this rank."""

    size: int  # 0: without torch.distributed
    group: RankGroup
    module: Any
    optimizer: torch.optim.Optimizer


@contextmanager
def world(place: Path, rank: int, size: int, turn: str) -> Iterator[World]:
    """The world of `size` ranks; those with a higher number stay out. `turn` tells one world from the next."""
    if size:
        meeting = (place / f"meeting-{turn}-{size}").as_uri()
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size, timeout=timedelta(seconds=300))
    try:
        module = library().AutoModelForCausalLM.from_config(config())
        if size:
            mesh = init_device_mesh("cpu", (size,))
            for layer in (*module.model.layers, module):
                fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        yield World(size, join_ranks() if size else ALONE, module, optimizer)
    finally:
        if size:
            dist.destroy_process_group()


def tree_of(world: World, kind: str) -> tuple[Any, dict[str, Any]]:
    """(a tree to save or to load into, settings) of one kind of optimiser, with whatever numbers are there."""
    if kind == "torch":
        state = state_of(world.module, world.optimizer)
        return state.tree, state.settings
    params = {name: value.detach() for name, value in world.module.named_parameters()}
    row = torch.zeros(4, 5, dtype=torch.int64)
    tree = {"params": params, "optimizer": adamw(0.01).init(params), "transcripts": row, "key": keys.key(0)}
    return tree, {}


def drawn(tree: Any, seed: int) -> Any:
    """The tree with numbers that names and seed alone decide, on each rank its own part of them."""
    names = iter(leaf_names(tree))

    def one(leaf: Tensor) -> Tensor:
        number = int.from_bytes(hashlib.sha256(next(names).encode()).digest()[:6], "little")
        whole = (100 * keys.normal(keys.key(number + seed), tuple(leaf.shape))).to(leaf.dtype)
        if isinstance(leaf, DTensor):
            return distribute_tensor(whole, leaf.device_mesh, leaf.placements, src_data_rank=None)
        return whole

    return tree_map(one, tree)


def local(leaf: Tensor) -> Tensor:
    """What this rank holds, as integers: bits are compared, not numbers."""
    part = leaf.to_local() if isinstance(leaf, DTensor) else leaf
    return part.detach().contiguous().reshape(-1).view(torch.uint8)


def compared(got: Any, wanted: Any) -> dict[str, int]:
    """How many bytes this rank holds, and how many leaves of each tree differ in any of them."""
    pairs = list(zip(leaves(got), leaves(wanted), strict=True))
    bad = sum(local(a).shape != local(b).shape or not bool((local(a) == local(b)).all()) for a, b in pairs)
    held = sum(int(local(a).numel()) for a, _ in pairs if isinstance(a, DTensor))
    alike = sum(int(local(a).numel()) for a, _ in pairs if not isinstance(a, DTensor))
    return {"leaves": len(pairs), "differing": bad, "divided_bytes": held, "common_bytes": alike}


def total(parts: list[dict[str, int]]) -> dict[str, int]:
    """Of all ranks: divided bytes add up, leaves that differ anywhere differ."""
    summed = {name: sum(part[name] for part in parts) for name in ("differing", "divided_bytes")}
    return {"leaves": parts[0]["leaves"], "common_bytes": parts[0]["common_bytes"], **summed}


def saved(world: World, place: Path) -> None:
    """Writes a run for each form and kind."""
    for kind in KINDS:
        tree, settings = tree_of(world, kind)
        tree = drawn(tree, 0)
        for name, form in forms().items():
            run = place / f"{name}-{kind}-{world.size}"
            save(run, 1, tree, form=form, machine={**MACHINE, "settings": settings}, group=world.group)


def loaded(world: World, place: Path, sizes: range) -> list[dict[str, Any]]:
    """A row for each form, kind and world size that saved: how what was loaded differs from what was saved.

    Before each of them there are other numbers in the module, and none in new memory, so that what is not read is seen.
    """
    rows = []
    for kind in KINDS:
        like, settings = tree_of(world, kind)
        wanted, other = drawn(like, 0), drawn(like, 1)
        for form in FORMS:
            for size in sizes:
                path = place / f"{form}-{kind}-{size}" / "checkpoints" / "step_000001"
                back = load(path, other, group=world.group)
                got = back.tree
                if kind == "torch":  # through the module and its optimiser, and out again
                    given = back.machine["settings"]
                    restore(world.module, world.optimizer, ModuleState(drawn(like, 2), given))
                    restore(world.module, world.optimizer, ModuleState(back.tree, given))
                    got = state_of(world.module, world.optimizer).tree
                told = total(gather_values(world.group, compared(got, wanted)))
                control = total(gather_values(world.group, compared(got, other)))["differing"]
                machine = back.machine == {**MACHINE, "settings": encoded(settings)}
                facts = {"form": form, "optimizer": kind, "saved_at": size, "loaded_at": world.size}
                rows.append({**facts, **told, "machine": machine, "control_differing": control})
    return rows


def encoded(settings: dict[str, Any]) -> Any:
    """Settings as they come back."""
    return decode(encode(settings))

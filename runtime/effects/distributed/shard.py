"""Trees of tensors sharded over the processes, and gathered again.

A tensor [N, ...] becomes a DTensor of N / ranks rows, split as torch's `fully_shard` splits parameters; numbers [] are
replicated. Pure functions of tensors work on shards as well: our optimisers, norms over all leaves included, take them
unchanged.
"""

from typing import TypeVar

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from ....algorithms.language.learner import LanguageState
from ....core.record import replace
from ....core.tree import tree_map
from ...distributed.reduce import share_of
from .process_group import ProcessGroup

T = TypeVar("T")


def spread(ranks: ProcessGroup, tree: T) -> T:
    """Return the tree in shards, each process keeping its own; all must pass the same whole tensors, or shards already.

    For whole tensors there is no communication. Call it on all processes.
    """
    return tree_map(lambda leaf: _shard(ranks, leaf), tree)


def gather_shards(tree: T) -> T:
    """Return the tree with every shard gathered, on every process; other leaves are unchanged. Call it on all processes."""
    return tree_map(lambda leaf: leaf.full_tensor() if isinstance(leaf, DTensor) else leaf, tree)


def spread_state(ranks: ProcessGroup, state: LanguageState) -> LanguageState:
    """Return a learner's state with its parameters, their reference and the optimiser's own trees in shards.

    A state that `gather_shards` gathered, for example from a checkpoint, can be sharded again over any number of processes.
    """
    return replace(
        state,
        params=spread(ranks, state.params),
        optimizer=spread(ranks, state.optimizer),
        reference=spread(ranks, state.reference),
    )


def _shard(ranks: ProcessGroup, leaf: Tensor) -> Tensor:
    if leaf.ndim == 0:
        return leaf.full_tensor() if isinstance(leaf, DTensor) else leaf
    if isinstance(leaf, DTensor):
        if leaf.placements == (Shard(0),) and leaf.device_mesh == ranks.mesh:
            return leaf
        leaf = leaf.full_tensor()
    first, last = share_of(leaf.shape[0], ranks=ranks.size, rank=ranks.rank)
    own = leaf.detach()[first:last].to(ranks.device, copy=True, memory_format=torch.contiguous_format)
    shape, stride = leaf.shape, torch.empty(leaf.shape, device="meta").stride()
    return DTensor.from_local(own, ranks.mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)

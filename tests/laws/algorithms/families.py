"""Families of laws of our own algorithms and of the batches that they learn from."""

from purestep.algorithms.decoupled import decoupled_clip, interpolated, interpolation
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.micro_batches import micro_batches, shards
from purestep.algorithms.packing import pack, packed_log_probs, packing, segment_mask, unpack
from purestep.algorithms.supervised import cross_entropy
from purestep.algorithms.token_batch import counts, numbered, token_batch, token_rewards
from purestep.algorithms.token_policy import scored
from purestep.properties.framework.families import Family, edits

from . import (
    column_mutants,
    decoupled_mutants,
    decoupled_update_mutants,
    micro_batch_mutants,
    packing_mutants,
    scoring_mutants,
    staleness_mutants,
    supervised_mutants,
)
from .column import column_laws
from .column_mutants import Columns
from .decoupled import decoupled_laws
from .decoupled_mutants import Anchoring
from .decoupled_update import decoupled_update_laws
from .micro_batch import micro_batch_laws
from .micro_batch_mutants import Batching
from .packing import packing_laws
from .packing_mutants import Packer
from .scoring import scoring_laws
from .staleness import own_aging, staleness_laws
from .supervised import supervised_laws


def own_anchoring() -> Anchoring:
    """Our own decoupled clip and proximal log-probs."""
    return Anchoring(decoupled_clip, interpolation, interpolated)


def own_columns() -> Columns:
    """Our own columns of transcripts."""
    return Columns(token_batch, token_rewards, numbered, counts)


def own_packer() -> Packer:
    """Our own."""
    return Packer(packing, pack, unpack, segment_mask, packed_log_probs)


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(column_laws(), own_columns(), edits(column_mutants.MUTANTS)),
        Family(scoring_laws(), scored, edits(scoring_mutants.MUTANTS)),
        Family(decoupled_laws(), own_anchoring(), edits(decoupled_mutants.MUTANTS)),
        Family(decoupled_update_laws(), decoupled_ppo, edits(decoupled_update_mutants.MUTANTS)),
        Family(micro_batch_laws(), Batching(micro_batches, shards), edits(micro_batch_mutants.MUTANTS)),
        Family(packing_laws(), own_packer(), edits(packing_mutants.MUTANTS)),
        Family(staleness_laws(), own_aging(), edits(staleness_mutants.MUTANTS)),
        Family(supervised_laws(), cross_entropy, edits(supervised_mutants.MUTANTS)),
    ]

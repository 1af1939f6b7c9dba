"""Families of laws of algorithms and of the batches that they learn from."""

from functools import partial
from typing import Any

from purestep.algorithms.a2c import a2c
from purestep.algorithms.decoupled import decoupled_clip, interpolated, interpolation
from purestep.algorithms.decoupled_ppo import decoupled_ppo
from purestep.algorithms.imitation import imitation_loss
from purestep.algorithms.importance import truncated_weights
from purestep.algorithms.language import objectives
from purestep.algorithms.language.batch import count_tokens, renumber_groups, token_batch, token_rewards
from purestep.algorithms.language.packing import (
    micro_batches,
    pack,
    packed_log_probs,
    packing,
    segment_mask,
    shards,
    unpack,
)
from purestep.algorithms.language.scoring import score_tokens
from purestep.algorithms.supervised import cross_entropy
from purestep.properties.framework.families import Family, edits
from purestep.properties.suites.learner import learning

from .column import MUTANTS as COLUMN_MUTANTS
from .column import Columns, column_laws
from .decoupled import MUTANTS as DECOUPLED_MUTANTS
from .decoupled import Anchoring, decoupled_laws
from .decoupled_update import MUTANTS as DECOUPLED_UPDATE_MUTANTS
from .decoupled_update import decoupled_update_laws
from .imitation import MUTANTS as IMITATION_MUTANTS
from .imitation import imitation_laws
from .micro_batch import MUTANTS as MICRO_BATCH_MUTANTS
from .micro_batch import Batching, micro_batch_laws
from .numbers import MUTANTS as NUMBERS_MUTANTS
from .numbers import numbers_laws
from .packing import MUTANTS as PACKING_MUTANTS
from .packing import Packer, packing_laws
from .scoring import MUTANTS as SCORING_MUTANTS
from .scoring import scoring_laws
from .staleness import MUTANTS as STALENESS_MUTANTS
from .staleness import own_aging, staleness_laws
from .supervised import MUTANTS as SUPERVISED_MUTANTS
from .supervised import supervised_laws
from .support import MUTANTS as SUPPORT_MUTANTS
from .support import support_laws

COMPARED: dict[str, Any] = {
    "kl_in_loss": 0.5,
    "proximal": "recomputed",
    "correction": partial(truncated_weights, high=2.0),
}
NUMBERS = ("gamma", "gae_lambda", "value_coefficient", "entropy_coefficient")  # of A2C


def own_anchoring() -> Anchoring:
    """Return the library's decoupled clip and proximal log-probs."""
    return Anchoring(decoupled_clip, interpolation, interpolated)


def own_columns() -> Columns:
    """Return the library's columns of transcripts."""
    return Columns(token_batch, token_rewards, renumber_groups, count_tokens)


def own_packer() -> Packer:
    """Return the library's own functions."""
    return Packer(packing, pack, unpack, segment_mask, packed_log_probs)


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(column_laws(), own_columns(), edits(COLUMN_MUTANTS)),
        Family(scoring_laws(), score_tokens, edits(SCORING_MUTANTS)),
        Family(decoupled_laws(), own_anchoring(), edits(DECOUPLED_MUTANTS)),
        Family(decoupled_update_laws(), decoupled_ppo, edits(DECOUPLED_UPDATE_MUTANTS)),
        Family(imitation_laws(), imitation_loss, edits(IMITATION_MUTANTS)),
        Family(micro_batch_laws(), Batching(micro_batches, shards), edits(MICRO_BATCH_MUTANTS)),
        Family(numbers_laws(*NUMBERS), a2c, edits(NUMBERS_MUTANTS)),
        Family(packing_laws(), own_packer(), edits(PACKING_MUTANTS)),
        Family(staleness_laws(), own_aging(), edits(STALENESS_MUTANTS)),
        Family(supervised_laws(), cross_entropy, edits(SUPERVISED_MUTANTS)),
        Family(support_laws(reads=True), learning(objectives.grpo(clip=0.25), **COMPARED), edits(SUPPORT_MUTANTS)),
    ]

"""The suites about credit, micro-batches and packing, each beside a subject that obeys it and further edits."""

from collections.abc import Callable, Mapping
from typing import Any

from ..algorithms import credit
from ..algorithms.micro_batches import micro_batches, shards
from ..algorithms.packing import pack, packed_log_probs, packing, segment_mask, unpack
from ..algorithms.token_gae import token_gae
from ..core.transcript_cuts import cut_to
from . import credit_mutants, micro_batch_mutants, packing_mutants, token_gae_mutants, transcript_cut_mutants
from .credit_laws import credit_laws
from .credit_mutants import Crediting
from .law import Subject, Suite
from .micro_batch_laws import micro_batch_laws
from .micro_batch_mutants import Batching
from .packing_laws import packing_laws
from .packing_mutants import Packer
from .token_gae_laws import token_gae_laws
from .transcript_cut_laws import transcript_cut_laws

Edits = Mapping[str, Callable[[Any], Any]]


def own_crediting() -> Crediting:
    """Our own."""
    return Crediting(credit.per_step, credit.episode, credit.monte_carlo, credit.group, credit.token_credit)


def own_packer() -> Packer:
    """Our own."""
    return Packer(packing, pack, unpack, segment_mask, packed_log_probs)


def batch_families() -> list[tuple[Suite, Subject, Edits]]:
    """One subject for each suite."""
    return [
        (credit_laws(), own_crediting(), credit_mutants.MUTANTS),
        (token_gae_laws(), token_gae, token_gae_mutants.MUTANTS),
        (micro_batch_laws(), Batching(micro_batches, shards), micro_batch_mutants.MUTANTS),
        (packing_laws(), own_packer(), packing_mutants.MUTANTS),
        (transcript_cut_laws(), cut_to, transcript_cut_mutants.MUTANTS),
    ]

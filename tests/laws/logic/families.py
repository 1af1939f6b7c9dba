"""Families of laws of logic."""

from purestep.algorithms.link_prediction import link_prediction_loss
from purestep.core.logic.canonical import canonical, state_hash
from purestep.core.logic.corrupt import corrupt, corruptions
from purestep.core.logic.derive import derive
from purestep.core.logic.env import begin
from purestep.core.logic.game import advance, look
from purestep.core.logic.knowledge import knowledge, matching
from purestep.core.logic.policy import proof_policy
from purestep.core.logic.unify import unify
from purestep.properties.framework.families import Family, edits
from purestep.runtime.logic.recycle import play, proven_all

from . import (
    canonical_mutants,
    corrupt_mutants,
    derive_mutants,
    game_mutants,
    knowledge_mutants,
    link_prediction_mutants,
    recycle_mutants,
    unify_mutants,
)
from .canonical import Renaming, canonical_laws
from .corrupt import corrupt_laws
from .corruptions import corruptions_laws
from .derive import derive_laws
from .game import game_laws
from .game_strategies import Moves
from .knowledge import knowledge_laws, matching_laws
from .link_prediction import link_prediction_laws
from .logic_strategies import NAMES
from .proof_policy import proof_policy_laws
from .recycle import recycle_laws
from .recycle_mutants import Recycling
from .unify import unify_laws


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(unify_laws(), unify, edits(unify_mutants.MUTANTS)),
        Family(knowledge_laws(), knowledge, edits(knowledge_mutants.MUTANTS)),
        Family(matching_laws(), matching),
        Family(canonical_laws(), Renaming(canonical, state_hash), edits(canonical_mutants.MUTANTS)),
        Family(derive_laws(), derive, edits(derive_mutants.MUTANTS)),
        Family(corrupt_laws(), corrupt, edits(corrupt_mutants.CORRUPT)),
        Family(corruptions_laws(), corruptions, edits(corrupt_mutants.CORRUPTIONS)),
        Family(game_laws(), Moves(begin, look, advance), edits(game_mutants.MUTANTS)),
        Family(recycle_laws(), Recycling(play, proven_all), edits(recycle_mutants.MUTANTS)),
        Family(proof_policy_laws(), proof_policy(NAMES, size=8, hidden=8, blocks=1)),
        Family(link_prediction_laws(), link_prediction_loss, edits(link_prediction_mutants.MUTANTS)),
    ]

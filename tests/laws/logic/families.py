"""Families of laws of logic."""

from purestep.algorithms.logic.link_prediction import link_prediction_loss, plausibility_of_all
from purestep.core.logic.canonical import canonical, state_hash
from purestep.core.logic.corrupt import corrupt, corruptions
from purestep.core.logic.derive import derive
from purestep.core.logic.env import begin_proof
from purestep.core.logic.game import advance, look
from purestep.core.logic.knowledge import knowledge, matching
from purestep.core.logic.policy import proof_policy
from purestep.core.logic.unify import unify
from purestep.properties.framework.families import Family, edits
from purestep.runtime.logic.demonstrate import demonstrations
from purestep.runtime.logic.recycle import play, proven_all

from .canonical import MUTANTS as CANONICAL_MUTANTS
from .canonical import Renaming, canonical_laws
from .corrupt import CORRUPT, CORRUPTIONS, corrupt_laws
from .corruptions import corruptions_laws
from .demonstrations import MUTANTS as DEMONSTRATION_MUTANTS
from .demonstrations import proof_demonstration_laws
from .derive import MUTANTS as DERIVE_MUTANTS
from .derive import derive_laws
from .game import MUTANTS as GAME_MUTANTS
from .game import game_laws
from .game_strategies import Moves
from .knowledge import MUTANTS as KNOWLEDGE_MUTANTS
from .knowledge import knowledge_laws, matching_laws
from .link_prediction import MUTANTS as LINK_PREDICTION_MUTANTS
from .link_prediction import link_prediction_laws, plausibility_of_all_laws
from .logic_strategies import NAMES
from .proof_policy import proof_policy_laws
from .proof_search import MUTANTS as PROOF_SEARCH_MUTANTS
from .proof_search import proof_search_laws
from .proof_search import subject as searching
from .recycle import MUTANTS as RECYCLE_MUTANTS
from .recycle import Recycling, recycle_laws
from .unify import MUTANTS as UNIFY_MUTANTS
from .unify import unify_laws


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(unify_laws(), unify, edits(UNIFY_MUTANTS)),
        Family(knowledge_laws(), knowledge, edits(KNOWLEDGE_MUTANTS)),
        Family(matching_laws(), matching),
        Family(canonical_laws(), Renaming(canonical, state_hash), edits(CANONICAL_MUTANTS)),
        Family(derive_laws(), derive, edits(DERIVE_MUTANTS)),
        Family(corrupt_laws(), corrupt, edits(CORRUPT)),
        Family(corruptions_laws(), corruptions, edits(CORRUPTIONS)),
        Family(game_laws(), Moves(begin_proof, look, advance), edits(GAME_MUTANTS)),
        Family(recycle_laws(), Recycling(play, proven_all), edits(RECYCLE_MUTANTS)),
        Family(proof_policy_laws(), proof_policy(NAMES, size=8, hidden=8, blocks=1)),
        Family(proof_search_laws(), searching(), edits(PROOF_SEARCH_MUTANTS)),
        Family(proof_demonstration_laws(), demonstrations, edits(DEMONSTRATION_MUTANTS)),
        Family(link_prediction_laws(), link_prediction_loss, edits(LINK_PREDICTION_MUTANTS)),
        Family(plausibility_of_all_laws(), plausibility_of_all),
    ]

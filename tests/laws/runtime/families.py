"""Families of laws of the runtime's identities and of actors that lag behind."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.identity import identity

from . import identity_mutants, stale_actor_mutants
from .identity import identity_laws
from .stale_actor import lagging_laws, own_lagging


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(identity_laws(), identity, edits(identity_mutants.MUTANTS)),
        Family(lagging_laws(), own_lagging, edits(stale_actor_mutants.MUTANTS)),
    ]

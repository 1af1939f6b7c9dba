"""Families of laws of function identities, of traced programs and of actors with stale weights."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.identity import identity

from .direct_trace import MUTANTS as DIRECT_TRACE_MUTANTS
from .direct_trace import direct_trace_laws, interpreted
from .identity import MUTANTS as IDENTITY_MUTANTS
from .identity import identity_laws
from .stale_actor import MUTANTS as STALE_ACTOR_MUTANTS
from .stale_actor import lagging_laws, own_lagging


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(direct_trace_laws(), interpreted, edits(DIRECT_TRACE_MUTANTS)),
        Family(identity_laws(), identity, edits(IDENTITY_MUTANTS)),
        Family(lagging_laws(), own_lagging, edits(STALE_ACTOR_MUTANTS)),
    ]

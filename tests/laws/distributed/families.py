"""Families of laws of learning on several ranks."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.distributed.simulated_ranks import simulated_ranks

from .handles import MUTANTS as HANDLES_MUTANTS
from .handles import naming_laws, own_naming
from .partition import DEALS, dealing_laws, own_dealing
from .ranks import MUTANTS as RANKS_MUTANTS
from .ranks import ranks_laws
from .reduce import own_putting, putting_laws


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(ranks_laws(), simulated_ranks, edits(RANKS_MUTANTS)),
        Family(dealing_laws(), own_dealing(), edits(DEALS)),
        Family(putting_laws(), own_putting()),
        Family(naming_laws(), own_naming(), edits(HANDLES_MUTANTS)),
    ]

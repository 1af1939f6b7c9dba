"""Families of laws of learning on several ranks."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.ranks.simulated import simulated_ranks

from . import handles_mutants, partition_mutants, ranks_mutants
from .handles import naming_laws, own_naming
from .partition import dealing_laws, own_dealing
from .ranks import ranks_laws
from .reduce import own_putting, putting_laws


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(ranks_laws(), simulated_ranks, edits(ranks_mutants.MUTANTS)),
        Family(dealing_laws(), own_dealing(), edits(partition_mutants.DEALS)),
        Family(putting_laws(), own_putting()),
        Family(naming_laws(), own_naming(), edits(handles_mutants.MUTANTS)),
    ]

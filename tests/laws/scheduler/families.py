"""Families of laws of the scheduler."""

from purestep.properties.framework.families import Family, edits

from . import scheduler_mutants
from .numbered import numbered_laws, own_filing
from .scheduler import scheduler_laws
from .scheduler_fault import scheduler_fault_laws
from .scheduler_world import own_scheduling


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(scheduler_laws(), own_scheduling(), edits(scheduler_mutants.MUTANTS)),
        Family(scheduler_fault_laws(), own_scheduling(), edits(scheduler_mutants.FAULTS)),
        Family(numbered_laws(), own_filing()),
    ]

"""Families of laws of simulated workers and effects."""

from purestep.properties.framework.families import Family, edits

from .simulated import MUTANTS as SIMULATED_MUTANTS
from .simulated import own_simulating, simulated_laws
from .simulation import MUTANTS as SIMULATION_MUTANTS
from .simulation import twin_laws
from .simulation_plays import own_twinning


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(simulated_laws(), own_simulating(), edits(SIMULATED_MUTANTS)),
        Family(twin_laws(), own_twinning(), edits(SIMULATION_MUTANTS)),
    ]

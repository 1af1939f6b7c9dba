"""The suites about asynchronous learning, each beside a subject that obeys it and edits beyond those its laws name."""

from collections.abc import Callable, Mapping
from typing import Any

from . import scheduler_mutants, segment_wise_mutants, simulated_mutants, staleness_mutants, twin_mutants
from .law import Subject, Suite
from .numbered_laws import numbered_laws, own_filing
from .scheduler_fault_laws import scheduler_fault_laws
from .scheduler_laws import scheduler_laws
from .scheduler_world import own_scheduling
from .segment_wise_laws import segment_wise_laws
from .segment_wise_part_laws import segment_wise_part_laws
from .segment_wise_world import own_segment_wise
from .simulated_laws import own_simulating, simulated_laws
from .staleness_laws import own_aging, staleness_laws
from .twin_laws import twin_laws
from .twin_plays import own_twinning

Edits = Mapping[str, Callable[[Any], Any]]


def scheduling_families() -> list[tuple[Suite, Subject, Edits]]:
    """One subject for each suite."""
    return [
        (staleness_laws(), own_aging(), staleness_mutants.MUTANTS),
        (scheduler_laws(), own_scheduling(), scheduler_mutants.MUTANTS),
        (scheduler_fault_laws(), own_scheduling(), scheduler_mutants.FAULTS),
        (numbered_laws(), own_filing(), {}),
        (segment_wise_laws(), own_segment_wise(), segment_wise_mutants.MUTANTS),
        (segment_wise_part_laws(), own_segment_wise(), segment_wise_mutants.PARTS),
        (simulated_laws(), own_simulating(), simulated_mutants.MUTANTS),
        (twin_laws(), own_twinning(), twin_mutants.MUTANTS),
    ]

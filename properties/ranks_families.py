"""The suites about learning on several ranks, each beside a subject that obeys it and further edits."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.ranks.simulated import simulated_ranks
from . import naming_mutants, ranks_mutants, ranks_part_mutants
from .law import Subject, Suite
from .naming_laws import naming_laws, own_naming
from .ranks_dealing_laws import dealing_laws, own_dealing
from .ranks_laws import ranks_laws
from .ranks_putting_laws import own_putting, putting_laws

Edits = Mapping[str, Callable[[Any], Any]]


def ranks_families() -> list[tuple[Suite, Subject, Edits]]:
    """One subject for each suite."""
    return [
        (ranks_laws(), simulated_ranks, ranks_mutants.MUTANTS),
        (dealing_laws(), own_dealing(), ranks_part_mutants.DEALS),
        (putting_laws(), own_putting(), {}),
        (naming_laws(), own_naming(), naming_mutants.MUTANTS),
    ]

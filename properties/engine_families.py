"""The suites about engines, each beside a subject that obeys it and edits beyond those of its laws."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.effects.engine.spots import next_spot
from . import engine_mutants, hands_mutants, spots_mutants
from .engine_laws import engine_laws
from .engine_world import own_clustering
from .hands_laws import hands_laws, own_posting
from .law import Subject, Suite
from .spots_laws import spots_laws

Edits = Mapping[str, Callable[[Any], Any]]


def engine_families() -> list[tuple[Suite, Subject, Edits]]:
    """Clusters, letters through calls, and who works where."""
    return [
        (engine_laws(), own_clustering(), engine_mutants.MUTANTS),
        (hands_laws(), own_posting(), hands_mutants.MUTANTS),
        (spots_laws(), next_spot, spots_mutants.MUTANTS),
    ]

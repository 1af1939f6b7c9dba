"""The suites about checkpoints of several ranks, each beside a subject that obeys it and edits beyond those of its laws."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.effects.sharded import later_rules
from . import filing_mutants, later_mutants
from .filing_laws import filing_laws, own_filing
from .later_laws import later_laws
from .law import Subject, Suite

Edits = Mapping[str, Callable[[Any], Any]]


def sharded_families() -> list[tuple[Suite, Subject, Edits]]:
    """Where parts lie, which files hold weights, and saves beside training."""
    return [
        (filing_laws(), own_filing(), filing_mutants.MUTANTS),
        (later_laws(), later_rules.step, later_mutants.MUTANTS),
    ]

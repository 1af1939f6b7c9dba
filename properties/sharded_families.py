"""Suites about checkpoints of several ranks and kept programs, each beside a subject that obeys it and further edits of it."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.effects.sharded import later_rules
from ..runtime.identity import identity
from . import filing_mutants, identity_mutants, later_mutants
from .filing_laws import filing_laws, own_filing
from .identity_laws import identity_laws
from .later_laws import later_laws
from .law import Subject, Suite

Edits = Mapping[str, Callable[[Any], Any]]


def sharded_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites about where parts lie, which files hold weights, saves beside training, and what a kept program is of."""
    return [
        (filing_laws(), own_filing(), filing_mutants.MUTANTS),
        (later_laws(), later_rules.step, later_mutants.MUTANTS),
        (identity_laws(), identity, identity_mutants.MUTANTS),
    ]

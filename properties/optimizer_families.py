"""The suites about optimisers, each beside a subject that obeys it and edits beyond those its laws name themselves."""

from collections.abc import Callable, Mapping
from typing import Any

from ..core.muon import muon, orthogonal
from . import muon_mutants
from .law import Subject, Suite
from .muon_laws import muon_laws
from .muon_mutants import Turning

Edits = Mapping[str, Callable[[Any], Any]]


def own_muon() -> Turning:
    """Our own."""
    return Turning(muon, orthogonal)


def optimizer_families() -> list[tuple[Suite, Subject, Edits]]:
    """Suites, subjects and more edits."""
    return [(muon_laws(), own_muon(), muon_mutants.MUTANTS)]

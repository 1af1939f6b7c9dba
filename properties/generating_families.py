"""The suites about generators and what is learned from them, each beside a subject that obeys it and further edits."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.asynchronous.learning import Learning
from ..runtime.asynchronous.preparing import Starts
from . import desk_mutants, sample_mutants, segment_mutants
from .desk_laws import desk_laws
from .desk_schedules import own_desking
from .law import Subject, Suite
from .sample_laws import sample_laws
from .sample_talks import own_writing
from .segment_laws import segment_laws
from .starts_laws import starts_laws

Edits = Mapping[str, Callable[[Any], Any]]


def own_starts(groups: int) -> Starts:
    """Our own starts."""
    return Starts(groups=groups)


def generating_families() -> list[tuple[Suite, Subject, Edits]]:
    """One subject for each suite."""
    return [
        (desk_laws(), own_desking(), desk_mutants.MUTANTS),
        (sample_laws(), own_writing(), sample_mutants.MUTANTS),
        (segment_laws(), Learning.anchored, segment_mutants.MUTANTS),
        (starts_laws(), own_starts, {}),
    ]

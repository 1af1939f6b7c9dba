"""The suites about what is told of asynchronous training, each beside a subject that obeys it and further edits of it."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.asynchronous.auditing import audited
from ..runtime.asynchronous.folding import folded
from . import auditing_mutants
from .auditing_laws import auditing_laws
from .comparing_laws import comparing_laws, own_comparing
from .law import Subject, Suite
from .replaying_laws import replaying_laws
from .timeline_laws import own_timing, timeline_laws

Edits = Mapping[str, Callable[[Any], Any]]


def reporting_families() -> list[tuple[Suite, Subject, Edits]]:
    """Timelines, audits, comparisons and replays."""
    return [
        (timeline_laws(), own_timing(), {}),
        (auditing_laws(), audited, auditing_mutants.MUTANTS),
        (comparing_laws(), own_comparing(), {}),
        (replaying_laws(), folded, {}),
    ]

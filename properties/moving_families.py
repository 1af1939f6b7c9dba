"""The suites about what moves between processes, each beside a subject that obeys it and edits beyond those of its laws."""

from collections.abc import Callable, Mapping
from typing import Any

from ..runtime.effects import queue_rules, workers_rules
from ..runtime.effects.transfer.choice import choice
from ..runtime.effects.weights_ring import RING
from . import (
    choice_mutants,
    experience_mutants,
    queue_mutants,
    ring_mutants,
    service_mutants,
    weights_mutants,
    workers_mutants,
)
from .choice_laws import choice_laws
from .experience_laws import experience_laws, own_replaying
from .law import Subject, Suite
from .queue_laws import queue_laws
from .ring_laws import ring_laws
from .service_laws import own_serving, service_laws
from .weights_laws import own_transfer, weights_laws
from .workers_laws import workers_laws

Edits = Mapping[str, Callable[[Any], Any]]


def moving_families() -> list[tuple[Suite, Subject, Edits]]:
    """Weights, queues, replays, workers and services."""
    return [
        (ring_laws(), RING, ring_mutants.MUTANTS),
        (weights_laws(), own_transfer(), weights_mutants.MUTANTS),
        (choice_laws(), choice, choice_mutants.MUTANTS),
        (queue_laws(), queue_rules.step, queue_mutants.MUTANTS),
        (experience_laws(), own_replaying(), experience_mutants.MUTANTS),
        (workers_laws(), workers_rules.step, workers_mutants.MUTANTS),
        (service_laws(), own_serving(), service_mutants.MUTANTS),
    ]

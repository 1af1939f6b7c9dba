"""Families of laws of effects: weights, queues, workers, services, engines and checkpoints of several ranks."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.effects import queue_rules, workers_rules
from purestep.runtime.effects.engine.spots import next_spot
from purestep.runtime.effects.sharded import later_rules
from purestep.runtime.effects.transfer.choice import choice
from purestep.runtime.effects.weights_ring import RING

from . import (
    async_save_mutants,
    checkpoint_layout_mutants,
    device_assignment_mutants,
    engine_mutants,
    experience_mutants,
    queue_mutants,
    ring_mutants,
    select_transport_mutants,
    service_mutants,
    weights_mutants,
    worker_adapter_mutants,
    workers_mutants,
)
from .async_save import later_laws
from .checkpoint_layout import filing_laws, own_filing
from .device_assignment import spots_laws
from .engine import engine_laws
from .engine_world import own_clustering
from .experience import experience_laws, own_replaying
from .queue import queue_laws
from .ring import ring_laws
from .select_transport import choice_laws
from .service import own_serving, service_laws
from .weights import own_transfer, weights_laws
from .worker_adapter import hands_laws, own_posting
from .workers import workers_laws


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(ring_laws(), RING, edits(ring_mutants.MUTANTS)),
        Family(weights_laws(), own_transfer(), edits(weights_mutants.MUTANTS)),
        Family(choice_laws(), choice, edits(select_transport_mutants.MUTANTS)),
        Family(queue_laws(), queue_rules.step, edits(queue_mutants.MUTANTS)),
        Family(experience_laws(), own_replaying(), edits(experience_mutants.MUTANTS)),
        Family(workers_laws(), workers_rules.step, edits(workers_mutants.MUTANTS)),
        Family(service_laws(), own_serving(), edits(service_mutants.MUTANTS)),
        Family(engine_laws(), own_clustering(), edits(engine_mutants.MUTANTS)),
        Family(hands_laws(), own_posting(), edits(worker_adapter_mutants.MUTANTS)),
        Family(spots_laws(), next_spot, edits(device_assignment_mutants.MUTANTS)),
        Family(filing_laws(), own_filing(), edits(checkpoint_layout_mutants.MUTANTS)),
        Family(later_laws(), later_rules.step, edits(async_save_mutants.MUTANTS)),
    ]

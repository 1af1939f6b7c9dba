"""Families of laws of effects: weights, queues, workers, services, engines, rewards and checkpoints of several ranks."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.effects import bounded_queue
from purestep.runtime.effects.cluster.device_assignment import next_device
from purestep.runtime.effects.rewards.grader import rewards_of
from purestep.runtime.effects.tools import service
from purestep.runtime.effects.weight_sync.select_transport import transport_for
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import RING
from purestep.runtime.effects.workers import supervisor

from .checkpoint_layout import MUTANTS as CHECKPOINT_LAYOUT_MUTANTS
from .checkpoint_layout import filing_laws, own_filing
from .device_assignment import MUTANTS as DEVICE_ASSIGNMENT_MUTANTS
from .device_assignment import spots_laws
from .engine import MUTANTS as ENGINE_MUTANTS
from .engine import engine_laws
from .engine_world import own_clustering
from .experience import MUTANTS as EXPERIENCE_MUTANTS
from .experience import experience_laws, own_replaying
from .queue import MUTANTS as QUEUE_MUTANTS
from .queue import queue_laws
from .rewards import MUTANTS as REWARDS_MUTANTS
from .rewards import rewards_laws
from .ring import MUTANTS as RING_MUTANTS
from .ring import ring_laws
from .select_transport import MUTANTS as SELECT_TRANSPORT_MUTANTS
from .select_transport import choice_laws
from .service import MUTANTS as SERVICE_MUTANTS
from .service import service_laws
from .weights import MUTANTS as WEIGHTS_MUTANTS
from .weights import own_transfer, weights_laws
from .worker_adapter import MUTANTS as WORKER_ADAPTER_MUTANTS
from .worker_adapter import hands_laws, own_posting
from .workers import MUTANTS as WORKERS_MUTANTS
from .workers import workers_laws


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(ring_laws(), RING, edits(RING_MUTANTS)),
        Family(weights_laws(), own_transfer(), edits(WEIGHTS_MUTANTS)),
        Family(choice_laws(), transport_for, edits(SELECT_TRANSPORT_MUTANTS)),
        Family(queue_laws(), bounded_queue.queue_step, edits(QUEUE_MUTANTS)),
        Family(experience_laws(), own_replaying(), edits(EXPERIENCE_MUTANTS)),
        Family(workers_laws(), supervisor.supervisor_step, edits(WORKERS_MUTANTS)),
        Family(service_laws(), service.service_step, edits(SERVICE_MUTANTS)),
        Family(engine_laws(), own_clustering(), edits(ENGINE_MUTANTS)),
        Family(hands_laws(), own_posting(), edits(WORKER_ADAPTER_MUTANTS)),
        Family(spots_laws(), next_device, edits(DEVICE_ASSIGNMENT_MUTANTS)),
        Family(rewards_laws(), rewards_of, edits(REWARDS_MUTANTS)),
        Family(filing_laws(), own_filing(), edits(CHECKPOINT_LAYOUT_MUTANTS)),
    ]

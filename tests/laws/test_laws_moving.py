"""What moves between processes obeys its laws: weights, queues, replays, workers, services."""

import pytest

from purestep.properties import check, verify
from purestep.properties.framework.profiles import named_profile
from purestep.runtime.effects import bounded_queue
from purestep.runtime.effects.tools import service
from purestep.runtime.effects.weight_sync.select_transport import transport_for
from purestep.runtime.effects.weight_sync.shared_memory.ring_buffer import RING
from purestep.runtime.effects.workers import supervisor

from .effects.experience import experience_laws, own_replaying
from .effects.queue import queue_laws
from .effects.ring import ring_laws
from .effects.select_transport import choice_laws
from .effects.service import service_laws
from .effects.weights import own_transfer, weights_laws
from .effects.workers import workers_laws

test_ring = check(ring_laws(), RING)
test_weights = check(weights_laws(), own_transfer())
test_choice = check(choice_laws(), transport_for)
test_queue = check(queue_laws(), bounded_queue.queue_step)
test_experience = check(experience_laws(), own_replaying())
test_workers = check(workers_laws(), supervisor.supervisor_step)
test_service = check(service_laws(), service.service_step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "subject"),
    [
        (ring_laws(), RING),
        (queue_laws(), bounded_queue.queue_step),
        (workers_laws(), supervisor.supervisor_step),
        (service_laws(), service.service_step),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_many_schedules(suite: object, subject: object) -> None:
    """More of them than any other test can afford: most of these mistakes need a rare order of events."""
    report = verify(suite, subject, profile=named_profile("ci"))  # type: ignore[arg-type]
    assert report, str(report)

"""Engines obey their laws: the ledger of a cluster, letters through calls, and who works where."""

import pytest

from purestep.properties import check, verify
from purestep.properties.framework.profiles import named_profile
from purestep.runtime.effects.cluster.device_assignment import next_device

from .effects.device_assignment import spots_laws
from .effects.engine import engine_laws
from .effects.engine_world import own_clustering
from .effects.worker_adapter import hands_laws, own_posting

test_engine = check(engine_laws(), own_clustering())
test_hands = check(hands_laws(), own_posting())
test_spots = check(spots_laws(), next_device)


@pytest.mark.slow
def test_many_stories() -> None:
    """More of them than any other test can afford: most of these mistakes need a rare order of events."""
    report = verify(engine_laws(), own_clustering(), profile=named_profile("ci"))
    assert report, str(report)

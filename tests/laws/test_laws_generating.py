"""Attempts that come and go, samples that are made of them, and what their segments are anchored at obey their laws."""

import pytest

from purestep.properties import check, verify
from purestep.properties.framework.profiles import named_profile
from purestep.runtime.async_rl.training_phase import VersionedLearner

from .async_rl.active_rollouts import desk_laws
from .async_rl.conversation_rows import conversation_laws, own_lines
from .async_rl.conversations import own_writing
from .async_rl.families import own_starts
from .async_rl.rollout_schedules import own_desking
from .async_rl.sample import sample_laws
from .async_rl.segment import segment_laws
from .async_rl.starts import starts_laws

test_desk = check(desk_laws(), own_desking())
test_samples = check(sample_laws(), own_writing())
test_conversations = check(conversation_laws(), own_lines)
test_segments = check(segment_laws(), VersionedLearner.with_proximal)
test_starts = check(starts_laws(), own_starts)


@pytest.mark.slow
def test_many_schedules() -> None:
    """More of them than any other test can afford: who leaves when, beside whom, has many orders."""
    report = verify(desk_laws(), own_desking(), profile=named_profile("ci"))
    assert report, str(report)

"""Attempts that come and go, samples that are made of them, and what their segments are anchored at obey their laws."""

import pytest

from purestep.properties import check, desk_laws, sample_laws, segment_laws, starts_laws, verify
from purestep.properties.desk_schedules import own_desking
from purestep.properties.generating_families import own_starts
from purestep.properties.profiles import named_profile
from purestep.properties.sample_talks import own_writing
from purestep.runtime.asynchronous.learning import Learning

test_desk = check(desk_laws(), own_desking())
test_samples = check(sample_laws(), own_writing())
test_segments = check(segment_laws(), Learning.anchored)
test_starts = check(starts_laws(), own_starts)


@pytest.mark.slow
def test_many_schedules() -> None:
    """More of them than any other test can afford: who leaves when, beside whom, has many orders."""
    report = verify(desk_laws(), own_desking(), profile=named_profile("ci"))
    assert report, str(report)

"""Families of laws of segment-wise rollouts."""

from purestep.properties.framework.families import Family, edits

from .segment_wise import MUTANTS as SEGMENT_WISE_MUTANTS
from .segment_wise import PARTS, segment_wise_laws
from .segment_wise_part import segment_wise_part_laws
from .segment_wise_world import own_segment_wise


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(segment_wise_laws(), own_segment_wise(), edits(SEGMENT_WISE_MUTANTS)),
        Family(segment_wise_part_laws(), own_segment_wise(), edits(PARTS)),
    ]

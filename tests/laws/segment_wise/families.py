"""Families of laws of segment-wise rollouts."""

from purestep.properties.framework.families import Family, edits

from . import segment_wise_mutants
from .segment_wise import segment_wise_laws
from .segment_wise_part import segment_wise_part_laws
from .segment_wise_world import own_segment_wise


def families() -> list[Family]:
    """One subject for each suite."""
    return [
        Family(segment_wise_laws(), own_segment_wise(), edits(segment_wise_mutants.MUTANTS)),
        Family(segment_wise_part_laws(), own_segment_wise(), edits(segment_wise_mutants.PARTS)),
    ]

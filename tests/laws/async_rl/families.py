"""Families of laws of rollout workers, their samples, and reports of asynchronous training."""

from purestep.properties.framework.families import Family, edits
from purestep.runtime.async_rl.audit import audited
from purestep.runtime.async_rl.preparation import Starts
from purestep.runtime.async_rl.replay import fold_rows
from purestep.runtime.async_rl.training_phase import VersionedLearner

from .active_rollouts import MUTANTS as ACTIVE_ROLLOUTS_MUTANTS
from .active_rollouts import desk_laws
from .auditing import MUTANTS as AUDITING_MUTANTS
from .auditing import auditing_laws
from .comparing import comparing_laws, own_comparing
from .conversation_rows import MUTANTS as CONVERSATION_MUTANTS
from .conversation_rows import conversation_laws, own_lines
from .conversations import own_writing
from .replaying import replaying_laws
from .rollout_schedules import own_desking
from .sample import MUTANTS as SAMPLE_MUTANTS
from .sample import sample_laws
from .segment import MUTANTS as SEGMENT_MUTANTS
from .segment import segment_laws
from .starts import starts_laws
from .timeline import own_timing, timeline_laws


def own_starts(groups: int) -> Starts:
    """Return the library's starts."""
    return Starts(groups=groups)


def families() -> list[Family]:
    """Return one subject for each suite."""
    return [
        Family(desk_laws(), own_desking(), edits(ACTIVE_ROLLOUTS_MUTANTS)),
        Family(sample_laws(), own_writing(), edits(SAMPLE_MUTANTS)),
        Family(conversation_laws(), own_lines, edits(CONVERSATION_MUTANTS)),
        Family(segment_laws(), VersionedLearner.with_proximal, edits(SEGMENT_MUTANTS)),
        Family(starts_laws(), own_starts),
        Family(timeline_laws(), own_timing()),
        Family(auditing_laws(), audited, edits(AUDITING_MUTANTS)),
        Family(comparing_laws(), own_comparing()),
        Family(replaying_laws(), fold_rows),
    ]

"""Replay of a phase: the logged events must give the scheduler state of its newest checkpoint, and its final counters."""

from itertools import islice
from pathlib import Path

from attrs import frozen

from ...core.errors import CheckpointError, message
from ..effects import folder
from ..runs.run import arguments_of
from ..text.config import TextConfig
from . import checkpoint, recorded
from .checkpoint import TOTALS, PhaseCheckpoint
from .replay import Course, differing, folded
from .run_phase import rules_of
from .scheduler.state import Schedule

COUNTS = (
    *("version", "submitted", "accepted", "rejected", "filtered", "consumed", "queued", "cached", "running", "waiting"),
    *("ignored", "tokens_used", "tokens_wasted"),
)


@frozen(kw_only=True)
class Replay:
    """Result of the replay of a phase."""

    version: int  # of the newest checkpoint
    sessions: int  # begun before it
    told: int  # events before it
    wrong: tuple[str, ...]  # counts and parts of the state that differ

    def line(self) -> str:
        """Return the result as one line of text.

        >>> Replay(version=5, sessions=2, told=731, wrong=()).line()
        '731 events of 2 sessions give the scheduler of version 5 again, bit for bit'
        """
        held = f"{self.told:,} events of {self.sessions} session{'' if self.sessions == 1 else 's'}"
        return (
            f"{held} do not give the scheduler of version {self.version}: {'; '.join(self.wrong)}"
            if self.wrong
            else f"{held} give the scheduler of version {self.version} again, bit for bit"
        )


def replayed(run: Path, phase: str) -> Replay:
    """Replay a phase to its newest checkpoint, and to its end if it has ended.

    Raises: CheckpointError for a phase without a checkpoint, StructureError for a malformed log.
    """
    home = run / phase
    found = checkpoint.of_newest(home, _kept)
    if not found:
        wanted, remedy = "a phase with one", f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(str(home), got="without a checkpoint", wanted=wanted, remedy=remedy))
    kept, arguments = found
    rows = recorded.events(home)
    course = Course(rules=rules_of(arguments), prompts=arguments.episodes.groups)
    course = folded(course, islice(rows, kept.events))
    wrong = _wrong(course, kept.schedule)
    last = folded(course, rows)
    totals = recorded.totals(home) if (home / TOTALS).exists() and not isinstance(last.state, tuple) else {}
    wrong += tuple(
        f"{name} is {getattr(last.state, name)} at the end, {totals[name]} in {TOTALS}"
        for name in COUNTS
        if name in totals and getattr(last.state, name, None) != totals[name]
    )
    return Replay(version=kept.schedule.version, sessions=course.sessions, told=course.told, wrong=wrong)


def _kept(where: Path) -> tuple[PhaseCheckpoint, TextConfig]:
    kept, metadata = checkpoint.kept_in(where)
    return kept, arguments_of(metadata)[1]


def _wrong(course: Course, wanted: Schedule) -> tuple[str, ...]:
    if isinstance(course.state, tuple):
        return ("the log is empty",)
    return tuple(f"{name} differs" for name in differing(course.state, wanted))

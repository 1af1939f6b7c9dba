"""Replay of a phase: its logged events give the scheduler state of its newest checkpoint and its final counters again.

The log consists of sessions. Each begins with a row that names its generators, followed by the events of the scheduler.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import evolve, fields, frozen

from ...core.errors import CheckpointError, StructureError, message
from ...core.machine import Failed, Interrupted, Started
from ..effects import folder
from ..machine.json_codec import decode
from ..runs.run import arguments_of
from ..text.config import TextConfig
from . import checkpoint, recorded
from .checkpoint import TOTALS, PhaseCheckpoint
from .run_phase import COUNTS, rules_of
from .scheduler import events as say
from .scheduler.machine import begin_schedule, scheduler
from .scheduler.state import Rules, Schedule, with_workers

KNOWN = (Failed, Interrupted, *say.EVENTS, *say.COMMANDS)


@frozen(kw_only=True)
class Course:
    """A scheduler at some row of its log."""

    rules: Rules
    prompts: int  # waiting at the beginning
    state: Schedule | tuple[()] = ()  # () before the first session
    sessions: int = 0
    events: int = 0

    def after(self, row: Mapping[str, Any]) -> "Course":
        """Return the course after one more row of the log. Raises: ChoiceError, StructureError for a malformed row."""
        if "session" in row:
            return self._opened(int(row["generators"]), int(row["slots"]))
        if isinstance(self.state, tuple):
            remedy = "replay a log from its first row"
            raise StructureError(message("replay: the first row", got=row, wanted="a session's", remedy=remedy))
        if "event" not in row:
            return self
        state, _ = scheduler(self.rules).step(self.state, decode(row["event"], KNOWN, "event"))
        return evolve(self, state=state, events=self.events + 1)

    def _opened(self, generators: int, slots: int) -> "Course":
        """Return the course at the beginning of a session, with all generators idle; its Started event is not in the log."""
        if isinstance(self.state, tuple):
            first = begin_schedule(self.rules, prompts=self.prompts, workers=generators, slots=slots)
        else:
            first = with_workers(self.state, generators, slots)
        state, _ = scheduler(self.rules).step(first, Started())
        return evolve(self, state=state, sessions=self.sessions + 1)


def fold_rows(course: Course, rows: Iterable[Mapping[str, Any]]) -> Course:
    """Return the scheduler's course after all rows.

    state_0 = begin,   state_n+1 = step(state_n, event_n)

    >>> rules = Rules(batch=1, concurrency=1, staleness=0, updates=1)
    >>> opened = {"session": 1, "version": 0, "generators": 1, "slots": 1}
    >>> whole = {"$tag": "finished", "group": 0, "seat": 0, "attempt": 0, "tokens": 9, "head": 0, "tail": 0}
    >>> course = fold_rows(Course(rules=rules, prompts=2), [opened, {"command": 0, "kind": "dispatch", "event": whole}])
    >>> course.events, course.state.accepted, course.state.phase
    (1, 1, 'train')
    """
    for row in rows:
        course = course.after(row)
    return course


def differing(one: Schedule, other: Schedule) -> tuple[str, ...]:
    """Return the names of the fields in which two states differ.

    >>> differing(Schedule(), Schedule(version=1))
    ('version',)
    """
    return tuple(each.name for each in fields(Schedule) if getattr(one, each.name) != getattr(other, each.name))


@frozen(kw_only=True)
class Replay:
    """Result of the replay of a phase."""

    version: int  # of the newest checkpoint
    sessions: int  # begun before it
    events: int  # events before it
    wrong: tuple[str, ...]  # counts and parts of the state that differ

    def line(self) -> str:
        """Return the result as one line of text.

        >>> Replay(version=5, sessions=2, events=731, wrong=()).line()
        '731 events of 2 sessions give the scheduler of version 5 again, bit for bit'
        """
        held = f"{self.events:,} events of {self.sessions} session{'' if self.sessions == 1 else 's'}"
        return (
            f"{held} do not give the scheduler of version {self.version}: {'; '.join(self.wrong)}"
            if self.wrong
            else f"{held} give the scheduler of version {self.version} again, bit for bit"
        )


def replay_phase(run: Path, phase: str) -> Replay:
    """Replay a phase to its newest checkpoint, and to its end if it has ended.

    Raises: CheckpointError for a phase without a checkpoint, StructureError for a malformed log.
    """
    home = run / phase
    found = checkpoint.use_newest_of_phase(home, _kept)
    if not found:
        wanted, remedy = "a phase with one", f"go on with it: {folder.resume_command(run)}"
        raise CheckpointError(message(str(home), got="without a checkpoint", wanted=wanted, remedy=remedy))
    kept, arguments = found
    rows = recorded.recorded_events(home)
    course = Course(rules=rules_of(arguments), prompts=arguments.episodes.groups)
    course = fold_rows(course, islice(rows, kept.events))
    if isinstance(course.state, tuple):
        wrong: tuple[str, ...] = ("the log is empty",)
    else:
        wrong = tuple(f"{name} differs" for name in differing(course.state, kept.schedule))
    last = fold_rows(course, rows)
    totals = recorded.recorded_totals(home) if (home / TOTALS).exists() and not isinstance(last.state, tuple) else {}
    wrong += tuple(
        f"{name} is {getattr(last.state, name)} at the end, {totals[name]} in {TOTALS}"
        for name in COUNTS
        if name in totals and getattr(last.state, name, None) != totals[name]
    )
    return Replay(version=kept.schedule.version, sessions=course.sessions, events=course.events, wrong=wrong)


def _kept(where: Path) -> tuple[PhaseCheckpoint, TextConfig]:
    kept, metadata = checkpoint.kept_in(where)
    return kept, arguments_of(metadata)[1]

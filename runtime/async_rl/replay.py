"""Replay of a scheduler from the log of its events: the same states, bit for bit, without effects.

The log consists of sessions. Each begins with a row that names its generators, followed by the events of the scheduler.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, fields, frozen

from ...core.errors import StructureError, message
from ...core.machine import Failed, Interrupted, Started
from ..machine.json_codec import decode
from .scheduler import events as say
from .scheduler.machine import begin, scheduler
from .scheduler.state import Rules, Schedule, with_workers

KNOWN = (Failed, Interrupted, *say.EVENTS, *say.COMMANDS)


@frozen(kw_only=True)
class Course:
    """A scheduler at some row of its log."""

    rules: Rules
    prompts: int  # waiting at the beginning
    state: Schedule | tuple[()] = ()  # () before the first session
    sessions: int = 0
    told: int = 0

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
        return evolve(self, state=state, told=self.told + 1)

    def _opened(self, generators: int, slots: int) -> "Course":
        """Return the course at the beginning of a session, with all generators idle; its Started event is not in the log."""
        if isinstance(self.state, tuple):
            first = begin(self.rules, prompts=self.prompts, workers=generators, slots=slots)
        else:
            first = with_workers(self.state, generators, slots)
        state, _ = scheduler(self.rules).step(first, Started())
        return evolve(self, state=state, sessions=self.sessions + 1)


def folded(course: Course, rows: Iterable[Mapping[str, Any]]) -> Course:
    """Return the scheduler's course after all rows.

    state_0 = begin,   state_n+1 = step(state_n, event_n)

    >>> rules = Rules(batch=1, concurrency=1, staleness=0, updates=1)
    >>> opened = {"session": 1, "version": 0, "generators": 1, "slots": 1}
    >>> whole = {"$tag": "finished", "group": 0, "seat": 0, "attempt": 0, "tokens": 9, "head": 0, "tail": 0}
    >>> course = folded(Course(rules=rules, prompts=2), [opened, {"command": 0, "kind": "dispatch", "event": whole}])
    >>> course.told, course.state.accepted, course.state.phase
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

"""A scheduler again from the log of what it was told: the same states, bit for bit, without the world.

The log holds sessions. Each begins with a row that names its generators, in front of what the scheduler was told.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, fields, frozen

from ...core.errors import StructureError, message
from ...core.machine import Failed, Interrupted, Started
from ..scheduling import messages as say
from ..scheduling.scheduler import begin, scheduler
from ..scheduling.state import Rules, Schedule, with_workers
from ..values import decode

KNOWN = (Failed, Interrupted, *say.EVENTS, *say.COMMANDS)


@frozen(kw_only=True)
class Course:
    """A scheduler somewhere in its log."""

    rules: Rules
    prompts: int  # that wait at the beginning
    state: Schedule | tuple[()] = ()  # () before the first session
    sessions: int = 0
    told: int = 0

    def after(self, row: Mapping[str, Any]) -> "Course":
        """What follows from one more row of the log. Raises: ChoiceError, StructureError for a row that is none."""
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
        """A session begins with the generators it has, all idle; being started is not in the log."""
        if isinstance(self.state, tuple):
            first = begin(self.rules, prompts=self.prompts, workers=generators, slots=slots)
        else:
            first = with_workers(self.state, generators, slots)
        state, _ = scheduler(self.rules).step(first, Started())
        return evolve(self, state=state, sessions=self.sessions + 1)


def folded(course: Course, rows: Iterable[Mapping[str, Any]]) -> Course:
    """The scheduler behind all those rows.

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
    """The names of what differs between two states.

    >>> differing(Schedule(), Schedule(version=1))
    ('version',)
    """
    return tuple(each.name for each in fields(Schedule) if getattr(one, each.name) != getattr(other, each.name))

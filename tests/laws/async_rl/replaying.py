"""Laws of the replay of a run: its log reproduces the state of the scheduler, over all its sessions.

The subject is a function (course, rows) -> course as `runtime.async_rl.replay.fold_rows`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from attrs import evolve, frozen
from hypothesis import strategies as st

from purestep.core.errors import ChoiceError, StructureError
from purestep.core.machine import Event
from purestep.properties.framework.compare import require, same
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, law_constructor
from purestep.runtime.async_rl.replay import Course, differing
from purestep.runtime.async_rl.scheduler import events as say
from purestep.runtime.async_rl.scheduler.machine import begin_schedule, scheduler
from purestep.runtime.async_rl.scheduler.state import KEEP, RECOMPUTE, Rules, Schedule, with_workers
from purestep.runtime.machine.drive import Handlers, drive
from purestep.runtime.machine.replay_log import Log, record_events, simulated, to_lines

SOURCE = "runtime.async_rl.replay: what a scheduler was told gives its states again, bit for bit"
PROMPTS = 40
Row = Mapping[str, Any]
Fold = Callable[[Course, Iterable[Row]], Course]


@frozen
class Script:
    """A run of several sessions, each cut off after so many events."""

    rules: Rules
    sessions: tuple[tuple[int, int, int], ...]  # generators, slots of each, events until it is cut off
    delays: tuple[int, ...]  # of commands, in turn
    failing: int  # every so many-eth sample fails; 0 fails none


def scripts() -> st.SearchStrategy[Script]:
    """Draw runs of a few dozen events."""
    rules = st.builds(
        Rules,
        batch=st.sampled_from((2, 4)),
        group=st.sampled_from((1, 2)),
        concurrency=st.integers(2, 6),
        staleness=st.integers(0, 2),
        updates=st.just(8),
        proximal=st.sampled_from((KEEP, RECOMPUTE)),
    )
    session = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(5, 30))
    return st.builds(
        Script,
        rules,
        st.lists(session, min_size=1, max_size=3).map(tuple),
        st.lists(st.integers(0, 5), min_size=1, max_size=7).map(tuple),
        st.sampled_from((0, 3, 5)),
    )


def recording(script: Script) -> tuple[list[Row], Schedule]:
    """The log of such a run, and the scheduler at its end."""
    rows, state = list[Row](), None
    for generators, slots, events in script.sessions:
        first = (
            begin_schedule(script.rules, prompts=PROMPTS, workers=generators, slots=slots) if state is None else state
        )
        state, log = with_workers(first, generators, slots), Log()
        rows.append({"session": len(rows), "version": state.version, "generators": generators, "slots": slots})
        world = simulated(_handlers(script), lambda number, command: float(script.delays[number % len(script.delays)]))
        for now in islice(drive(scheduler(script.rules), state, record_events(world, log)), events):
            state = now
        rows += [json.loads(text) for text in to_lines(log).splitlines()]
    assert state is not None
    return rows, state


def _handlers(script: Script) -> Handlers:
    def sample(command: say.Dispatch) -> tuple[Event, ...]:
        if script.failing and (command.group + command.seat + command.attempt) % script.failing == 1:
            raise OSError("no")
        name, version = (command.group, command.seat, command.attempt), command.version
        return say.TokenChunk(*name, 3, version), say.Finished(*name, 5, version, version)

    return {
        say.Dispatch: sample,
        say.Abort: lambda command: (),
        say.Report: lambda command: (),
        say.RetryAfter: lambda command: say.Due(command.command),
        say.Recompute: lambda command: say.Recomputed(command.version),
        say.Train: lambda command: say.Consumed(command.version),
        say.Publish: lambda command: say.Published(command.version),
    }


def replaying_laws() -> Suite:
    """The laws of a replay."""
    return Suite("replaying_laws", (_again(), _parts(), _refused()))


_law = law_constructor(scripts, SOURCE, most=200)


def _of(course: Course) -> Schedule:
    require(isinstance(course.state, Schedule), "there is no scheduler after the log")
    assert isinstance(course.state, Schedule)
    return course.state


def _alike(one: Schedule, other: Schedule) -> None:
    require(not differing(one, other), f"the schedulers differ in {', '.join(differing(one, other))}")


def _again() -> Law:
    def check(fold: Fold, script: Script, seen: Seen) -> None:
        rows, last = recording(script)
        seen("several sessions", len(script.sessions) > 1)
        seen("an update", last.version)
        seen("samples under way at the end of a session", last.running)
        course = fold(Course(rules=script.rules, prompts=PROMPTS), rows)
        _alike(_of(course), last)
        told = sum("event" in row for row in rows)
        same("sessions and events", (course.sessions, course.events), (len(script.sessions), told))

    claim = "A log gives the scheduler at its end again, whatever the number of sessions and of their generators."
    mutant = Mutant("goes on with the generators of the session before", _old_generators)
    needs = ("several sessions", "an update", "samples under way at the end of a session")
    return _law("a_log_gives_the_run_again", claim, mutant, check, *needs)


def _old_generators(fold: Fold) -> Fold:
    def folded(course: Course, rows: Iterable[Row]) -> Course:
        first: dict[str, Any] = {}
        for row in rows:
            if "session" in row:
                first = first or dict(row)
                row = {**row, "generators": first["generators"], "slots": first["slots"]}
            course = fold(course, [row])
        return course

    return folded


def _parts() -> Law:
    def check(fold: Fold, script: Script, seen: Seen) -> None:
        rows, last = recording(script)
        course = Course(rules=script.rules, prompts=PROMPTS)
        middle = len(rows) // 2
        seen("a log in two parts", 0 < middle < len(rows))
        halves = fold(fold(course, rows[:middle]), rows[middle:])
        _alike(_of(halves), last)
        require(halves == fold(course, rows), "a log in two parts gives another course than the whole")

    claim = "A log may be gone through in parts."
    mutant = Mutant("begins anew with each part", _anew)
    return _law("parts_give_the_whole", claim, mutant, check, "a log in two parts")


def _anew(fold: Fold) -> Fold:
    def folded(course: Course, rows: Iterable[Row]) -> Course:
        some = list(rows)
        opened = {"session": 0, "version": 0, "generators": 1, "slots": 1}
        return fold(
            evolve(course, state=(), sessions=0, events=0), some if some and "session" in some[0] else [opened, *some]
        )

    return folded


def _refused() -> Law:
    def check(fold: Fold, script: Script, seen: Seen) -> None:
        rows, _ = recording(script)
        course = Course(rules=script.rules, prompts=PROMPTS)
        told = [n for n, row in enumerate(rows) if "event" in row]
        seen("an event", told)
        unknown = [{**row, "event": {"$tag": "unknown"}} if n in told[-1:] else row for n, row in enumerate(rows)]
        for wrong, what in ((rows[1:], "without its first row"), (unknown, "with an event of no known class")):
            require(not told or _is_refused(fold, course, wrong), f"a log {what} is gone through")

    claim = "A log that has lost its beginning, or holds what nobody said, is refused and not gone through as far as it goes."
    mutant = Mutant("passes over what it does not know", _lenient)
    return _law("what_is_no_log_is_refused", claim, mutant, check, "an event")


def _is_refused(fold: Fold, course: Course, rows: Iterable[Row]) -> bool:
    try:
        fold(course, rows)
    except (ChoiceError, StructureError):
        return True
    return False


def _lenient(fold: Fold) -> Fold:
    def folded(course: Course, rows: Iterable[Row]) -> Course:
        for row in rows:
            with suppress(ChoiceError, StructureError):
                course = fold(course, [row])
        return course

    return folded

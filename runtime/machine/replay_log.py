"""Effects without side effects: a recorded log of events, the replay of a run from it, and effects in simulated time."""

import heapq
import json
from collections.abc import Callable, Iterable, Iterator

from attrs import evolve

from ...core.errors import ChoiceError, StructureError, message
from ...core.machine import Command, Failed, Interrupted, tag_of
from .drive import (
    DRIVER,
    DriveError,
    Effects,
    Entry,
    Finished,
    Handlers,
    Inbox,
    Received,
    Session,
    find_handler,
    perform,
    threads,
)
from .json_codec import decode, encode, json_line

Log = list[Entry]  # in the order in which the machine received them


def observe_events(effects: Effects | Handlers, note: Callable[[Entry], object]) -> Effects:
    """Return the same effects, which pass each entry to `note` before the machine receives it."""
    inner = effects if isinstance(effects, Effects) else threads(effects)

    def open_(inbox: Inbox) -> Session:
        session = inner.open(inbox)

        def follow() -> Entry:
            entry = session.follow()
            # A cause holds the frames of its traceback, and with them everything they refer to.
            note(evolve(entry, cause=None) if isinstance(entry, Received) else entry)
            return entry

        return evolve(session, follow=follow)

    return Effects(open_)


def record_events(effects: Effects | Handlers, log: Log) -> Effects:
    """Return the same effects, which append each entry to `log` in the order in which the machine receives it.

    >>> from purestep.core.machine import Machine, Started, Stop
    >>> from purestep.runtime.machine.drive import drive
    >>> machine, log = Machine(lambda count, event: (count + 1, (7, Stop()) if event == Started() else ())), []
    >>> list(drive(machine, 0, record_events({int: str}, log))), log
    ([1, 2], [Received(command=0, kind='int', event='7'), Finished(command=0, kind='int')])
    """
    return observe_events(effects, log.append)


def replay_events(log: Iterable[Entry]) -> Effects:
    """Return effects that perform nothing: the machine receives the events of the log, so its states are the same bit for bit.

    Raises: DriveError where the machine issues other commands than the recorded one, or where the log was cut short.

    >>> from purestep.core.machine import Machine, Started, Stop
    >>> from purestep.runtime.machine.drive import drive
    >>> echo = Machine(lambda seen, event: ((*seen, event), (Stop(),) if event == 7 else (event,)))
    >>> list(drive(echo, (), replay_events([Received(0, "started", 7), Finished(0, "started")])))[-1]
    (Started(), 7)
    """

    def open_(inbox: Inbox) -> Session:
        entries = iter(log)
        issued: list[str] = []

        def follow() -> Entry:
            if not inbox.empty():
                return inbox.get()
            entry = next(entries, None)
            if entry is None:
                where, remedy = (
                    "replayed: the log",
                    "the recorded run was cut short here; the states so far are its own",
                )
                raise DriveError(message(where, got="at its end", wanted="what came of all commands", remedy=remedy))
            _same_command(entry, issued)
            return entry

        return Session(lambda number, command: issued.append(tag_of(type(command))), follow, lambda wait: None)

    return Effects(open_)


def _same_command(entry: Entry, issued: list[str]) -> None:
    if entry.command == DRIVER:
        return
    got = issued[entry.command] if entry.command < len(issued) else "not issued"
    if got != entry.kind:
        remedy = "replay a log with the machine, state and handlers' classes it was recorded with"
        raise DriveError(message(f"replayed: command {entry.command}", got=got, wanted=entry.kind, remedy=remedy))


def simulated(handlers: Handlers, latency: Callable[[int, Command], float]) -> Effects:
    """Return effects in simulated time: command number n takes latency(n, command), and nothing waits for a clock.

    All commands run at once, and a handler is called, in the calling thread, at the moment its command ends; events of commands
    that end together come in order of issue. So a latency gives a schedule, and every run with it the same states.

    Raises: ChoiceError for a negative latency.

    >>> from purestep.core.machine import Machine, Started, Stop
    >>> from purestep.runtime.machine.drive import drive
    >>> machine = Machine(lambda seen, event: ((*seen, event), (3, 1, 2, Stop()) if event == Started() else ()))
    >>> list(drive(machine, (), simulated({int: str}, lambda number, command: command)))[-1]
    (Started(), '1', '2', '3')
    """

    def open_(inbox: Inbox) -> Session:
        now = 0.0
        running: list[tuple[float, int, Iterator[Entry]]] = []

        def begin(number: int, command: Command) -> None:
            delay = latency(number, command)
            if not delay >= 0:
                where = f"simulated: latency of {type(command).__name__}"
                raise ChoiceError(message(where, got=delay, wanted="0 or more", remedy="time does not run backwards"))
            heapq.heappush(running, (now + delay, number, perform(find_handler(handlers, command), number, command)))

        def follow() -> Entry:
            nonlocal now
            if not inbox.empty():
                return inbox.get()
            now, _, entries = running[0]
            entry = next(entries)
            if isinstance(entry, Finished):
                heapq.heappop(running)
            return entry

        return Session(begin, follow, lambda wait: running.clear())

    return Effects(open_)


def to_lines(log: Log) -> str:
    """Return a log as JSON lines. Raises: StructureError for an event that is no attrs value of numbers, strings and tuples.

    >>> to_lines([Received(0, "Work", (1, "a"))])
    '{"command":0,"kind":"Work","event":[1,"a"]}\\n'
    """
    rows = []
    for index, entry in enumerate(log):
        row = {"command": entry.command, "kind": entry.kind}
        rows.append(row | ({"event": encode(entry.event, f"log[{index}]")} if isinstance(entry, Received) else {}))
    return "".join(json_line(row) + "\n" for row in rows)


def from_lines(text: str, classes: Iterable[type] = ()) -> Log:
    """Return the log that `to_lines` wrote; `classes` are those of its events, and of commands that failed.

    Raises: ChoiceError for a class that is not among them, StructureError for a malformed line.
    """
    known = dict.fromkeys((Failed, Interrupted, *classes))
    log: Log = []
    for number, text_line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(text_line)
            command, kind = int(row["command"]), str(row["kind"])
        except (ValueError, KeyError, TypeError) as cause:
            where, remedy = f"from_lines: line {number}", "the file is torn or no log; cut it before this line"
            raise StructureError(message(where, got=repr(text_line[:40]), wanted="an entry", remedy=remedy)) from cause
        if "event" in row:
            log.append(Received(command, kind, decode(row["event"], known, "event")))
        else:
            log.append(Finished(command, kind))
    return log

"""Commands performed in batches: those of some kinds wait until nothing else is left to do, and are then performed together.

    drive(machine, state, gathered({Fetch: fetch, Publish: publish}, {Call: calls, Wait: waits}))

A handler of such a kind takes all waiting commands, in order of issue, and returns an event for each. So a hundred model calls
that a machine issues one by one become one batch, and many delays take as long as the longest. Kinds are performed in the order
of the mapping: while a call waits, no delay starts. Everything runs in the calling thread, in an order that depends on the
commands alone.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...core.errors import ShapeError, message
from ...core.machine import Command, Event, Failed, Interrupted, tag_of
from .drive import Effects, Entry, Finished, Handlers, Inbox, Received, Session, find_handler, perform

A = TypeVar("A")
B = TypeVar("B")
Together = Callable[[Sequence[Any]], Sequence[Event]]  # (commands) -> an event for each


def batch_commands(handlers: Handlers, together: Mapping[type[Any], Together]) -> Effects:
    """Return effects that perform the kinds of `together` in batches, and all other commands at once, each by its handler.

    An exception of a batch's handler becomes Failed for the batch's first command. Raises, from there: ShapeError if the
    handler returns another number of events.
    """

    def open_(inbox: Inbox) -> Session:
        ready: deque[Entry] = deque()
        waiting: dict[type[Any], list[tuple[int, Command]]] = {kind: [] for kind in together}

        def begin(number: int, command: Command) -> None:
            if type(command) in waiting:
                waiting[type(command)].append((number, command))
            else:
                ready.extend(perform(find_handler(handlers, command), number, command))

        def follow() -> Entry:
            if not inbox.empty():
                return inbox.get()
            if not ready:
                kind = next(kind for kind, commands in waiting.items() if commands)
                commands, waiting[kind] = waiting[kind], []
                ready.extend(_performed(together[kind], tag_of(kind), commands))
            return ready.popleft()

        def close(wait: bool) -> None:
            del wait
            ready.clear()
            waiting.update({kind: [] for kind in together})

        return Session(begin, follow, close)

    return Effects(open_)


def _performed(handler: Together, kind: str, commands: Sequence[tuple[int, Command]]) -> list[Entry]:
    try:
        events = tuple(handler([command for _, command in commands]))
        if len(events) != len(commands):
            where, remedy = f"gathered: events of {kind}", "answer each command"
            raise ShapeError(message(where, got=len(events), wanted=len(commands), remedy=remedy))
        entries = [Received(number, kind, event) for (number, _), event in zip(commands, events, strict=True)]
    except KeyboardInterrupt as cause:
        entries = [Received(commands[0][0], kind, Interrupted(), cause)]
    except BaseException as cause:  # as in drive.perform
        first, command = commands[0]
        entries = [Received(first, kind, Failed(command, f"{type(cause).__name__}: {cause}"), cause)]
    return [*entries, *(Finished(number, kind) for number, _ in commands)]


def side_by_side(work: Callable[[A], B], given: Sequence[A]) -> tuple[B, ...]:
    """Return the result of the work for each value, in the order given; several run in one thread each."""
    if len(given) < 2:
        return tuple(map(work, given))
    with ThreadPoolExecutor(len(given), thread_name_prefix="purestep") as pool:
        return tuple(pool.map(work, given))

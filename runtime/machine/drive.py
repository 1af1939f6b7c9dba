"""The one loop that performs effects: commands to the effects, events back to a pure machine.

`Effects` decides how commands are performed: `threads` (a plain mapping of handlers means it), `serial`, and in
`runtime.machine.replay_log` `record_events`, `replay_events` and `simulated`. The machine and the loop are the same under
all of them.
"""

import itertools
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

from attrs import define, field, frozen

from ...core.errors import ChoiceError, PurestepError, StructureError, message
from ...core.machine import Command, Event, Failed, Interrupted, Machine, Started, Stop, tag_of

S = TypeVar("S")
Handler = Callable[[Any], Event | Iterable[Event]]
Handlers = Mapping[type[Any], Handler]


class DriveError(PurestepError, RuntimeError):
    """Error of a machine that does not fit its effects: a dead end, or a log of another run."""


@frozen
class Received:
    """An event that reached the machine; `command` is the number, in order of issue, of the command that caused it."""

    command: int
    kind: str  # its class
    event: Event
    cause: BaseException | None = field(default=None, eq=False, repr=False)  # of Failed, in a live run


@frozen
class Finished:
    """The end of a command: no more events come from it."""

    command: int
    kind: str


Entry = Received | Finished
Inbox = SimpleQueue[Entry]
DRIVER = -1  # the command number of events that no command caused


@frozen
class Session:
    """Functions of one run's effects."""

    begin: Callable[[int, Command], None]  # starts or queues the command of this number
    follow: Callable[[], Entry]  # waits for the next entry; called only while a command is running
    close: Callable[[bool], None]  # cancels commands that have not begun; True waits for the running ones


@frozen
class Effects:
    """The way in which commands are performed. `follow` must also poll the inbox, where Ctrl-C arrives."""

    open: Callable[[Inbox], Session]


def drive(machine: Machine[S], state: S, effects: Effects | Handlers) -> Iterator[S]:
    """Run a machine: send it Started, then the events of its commands; yield the state after each event.

    state, commands = machine.step(state, event)

    A handler takes a command and returns one event, or a tuple, list or iterator of them (`()` for none); an iterator's
    events are sent as they come. After `Stop` the commands of its batch and those still running are finished and their
    events sent; commands that the machine then returns are not performed. An exception in a handler becomes
    Failed(command, error), and is raised here if the machine answers that with no command. The first Ctrl-C becomes
    Interrupted, between two events and never inside a handler, the second is raised.

    Raises: DriveError at a dead end (no command runs and none was Stop), ChoiceError for a command without handler.

    >>> from purestep.core.machine import Machine, Started, Stop
    >>> count = Machine(lambda n, event: (n + 1, (Stop(),) if n == 2 else (event,)))
    >>> list(drive(count, 0, {Started: lambda command: command}))
    [1, 2, 3]
    """
    inbox: Inbox = SimpleQueue()
    session = (effects if isinstance(effects, Effects) else threads(effects)).open(inbox)
    hurry = threading.Event()
    try:
        with _interrupts(inbox, hurry):
            yield from _loop(machine, state, session)
    except KeyboardInterrupt:
        hurry.set()
        raise
    finally:
        session.close(not hurry.is_set())


def _loop(machine: Machine[S], state: S, session: Session) -> Iterator[S]:
    numbers = itertools.count()
    running, stopped, interrupted = 0, False, False
    entry: Entry = Received(DRIVER, "", Started())
    while True:
        if isinstance(entry, Finished):
            running -= 1
        else:
            if isinstance(entry.event, Interrupted):
                if interrupted:
                    raise entry.cause or KeyboardInterrupt
                interrupted = True
            state, commands = machine.step(state, entry.event)
            _raise_unanswered(entry, commands)
            for command in () if stopped else commands:
                if isinstance(command, Stop):
                    stopped = True
                else:
                    session.begin(next(numbers), command)
                    running += 1
            yield state
        if running == 0:
            break
        entry = session.follow()
    if not stopped:
        raise DriveError(_dead_end(entry))


def _raise_unanswered(entry: Received, commands: tuple[Command, ...]) -> None:
    """Raise a handler's exception if the machine has no answer to it, or if it is not an `Exception` (SystemExit)."""
    if isinstance(entry.event, Failed):
        if entry.cause is not None and not (commands and isinstance(entry.cause, Exception)):
            raise entry.cause
        if not commands:
            raise DriveError(f"drive: {entry.kind} failed in the recorded run: {entry.event.error}")


def _dead_end(entry: Entry) -> str:
    after = entry.kind if isinstance(entry, Finished) else type(entry.event).__name__
    return message(
        f"drive: the machine's answer after {after}",
        got="nothing, with no command running",
        wanted="a command or Stop",
        remedy="answer every event that can come last",
    )


@define(eq=False)
class _Notice:
    """The handler of SIGINT while a machine is driven."""

    inbox: Inbox
    hurry: threading.Event
    noticed: bool = False

    def __call__(self, number: int, frame: object) -> None:
        if self.noticed:
            self.hurry.set()  # the exception may be raised in the consumer's code, which then only closes the generator
            raise KeyboardInterrupt
        self.noticed = True
        self.inbox.put(Received(DRIVER, "", Interrupted()))


def stopping() -> bool:
    """Return whether Ctrl-C has asked a machine to stop that is still driven: a handler that waits should end its wait.

    For handlers in any thread: signals reach the main thread alone, and the first one raises nothing there.

    >>> stopping()
    False
    """
    handler = signal.getsignal(signal.SIGINT)
    return isinstance(handler, _Notice) and handler.noticed


@contextmanager
def _interrupts(inbox: Inbox, hurry: threading.Event) -> Iterator[None]:
    """Turn the first SIGINT into an entry of the inbox; a signal handler that was installed by others stays."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _Notice(inbox, hurry))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not inbox.empty():
        raise KeyboardInterrupt  # it came too late for the machine to answer


def find_handler(handlers: Handlers, command: Command) -> Handler:
    """Return the handler of the command's class. Raises: ChoiceError."""
    if type(command) in handlers:
        return handlers[type(command)]
    known = sorted(kind.__name__ for kind in handlers)
    where = f"drive: the handler of {type(command).__name__}"
    raise ChoiceError(message(where, got="absent", wanted=f"one of those for {known}", remedy="add it to the handlers"))


def perform(handler: Handler, number: int, command: Command) -> Iterator[Entry]:
    """Yield the events of a command; the handler is called at the first one, and its exception becomes an entry."""
    kind = tag_of(type(command))
    try:
        for event in _events(kind, handler(command)):
            yield Received(number, kind, event)
    except GeneratorExit:
        raise
    except KeyboardInterrupt as cause:
        yield Received(number, kind, Interrupted(), cause)
    except BaseException as cause:  # also SystemExit: in a thread it would vanish, and the run would wait for ever
        yield Received(number, kind, Failed(command, f"{type(cause).__name__}: {cause}"), cause)
    yield Finished(number, kind)


def _events(kind: str, result: Any) -> Iterable[Event]:
    if result is None:
        where, remedy = f"drive: what the handler of {kind} returned", "return () when there is nothing to tell"
        raise StructureError(message(where, got="None", wanted="an event or several", remedy=remedy))
    return result if isinstance(result, (tuple, list, Iterator)) else (result,)


def threads(handlers: Handlers, *, workers: int = 8) -> Effects:
    """Run commands at once in a pool of threads, at most `workers` of them; events come in the order of completion."""

    def open_(inbox: Inbox) -> Session:
        pool = ThreadPoolExecutor(workers, thread_name_prefix="purestep")
        closing = threading.Event()

        def work(entries: Iterator[Entry]) -> None:
            for entry in entries:
                inbox.put(entry)
                if closing.is_set():
                    return

        def begin(number: int, command: Command) -> None:
            pool.submit(work, perform(find_handler(handlers, command), number, command))

        def close(wait: bool) -> None:
            closing.set()
            pool.shutdown(wait=wait, cancel_futures=True)

        return Session(begin, inbox.get, close)

    return Effects(open_)


def serial(handlers: Handlers) -> Effects:
    """Run commands one after the other in the calling thread, in order of issue."""

    def open_(inbox: Inbox) -> Session:
        waiting: deque[Iterator[Entry]] = deque()

        def follow() -> Entry:
            if not inbox.empty():
                return inbox.get()
            entry = next(waiting[0])
            if isinstance(entry, Finished):
                waiting.popleft()
            return entry

        def begin(number: int, command: Command) -> None:
            waiting.append(perform(find_handler(handlers, command), number, command))

        return Session(begin, follow, lambda wait: waiting.clear())

    return Effects(open_)

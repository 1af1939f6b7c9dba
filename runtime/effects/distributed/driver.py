"""A driver on rank 0, and functions that all ranks execute together when it calls them.

    def learn(state, batch): ...             # computed by all: gradients are added up, shards are gathered

    led(ranks, {"learn": learn}, program)    # on every process

    def program(driver):                     # runs on rank 0 alone
        ...                                  # for as long as it likes
        state = driver.call("learn", state, batch)

Rank 0 runs an ordinary program. The other ranks execute its calls ("words") in the same order, on the same trees: leaves that
are sharded over processes stay where they are, see `runtime.distributed.handles`, and everything else is sent. Between two
calls they wait as long as it takes, and check that rank 0 is alive. Calls of several threads are made one after the other.
"""

import signal
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import torch
from attrs import define, field
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.tensor import DTensor

from ....core.errors import PurestepError, choose, message
from ...distributed.handles import enrolled, with_handles, without_handles
from ..signals import end_at_once
from .heartbeat import Channel, alive
from .process_group import AGAIN, ProcessGroup, RankError, gather_tensor, one_line, shared

END = ""  # the last call, with the exit code
GRACE = 10.0  # seconds in which a running call may still end when a rank is lost
Handlers = Mapping[str, Callable[..., Any]]  # by word; each takes trees and returns one, the same on every process
Interrupt = Callable[[RankError], None]  # raises an error in the main thread
Call = tuple[str, Any, tuple[int, ...]]  # a word, trees with numbers for sharded leaves, numbers to be freed


def is_sharded(leaf: Any) -> bool:
    """Return whether this leaf is sharded over the processes."""
    return isinstance(leaf, DTensor)


@define(eq=False)
class Driver:
    """The driver on rank 0, through which it calls functions on all ranks; thread-safe."""

    ranks: ProcessGroup
    handlers: Handlers
    channel: Channel
    pool: ThreadPoolExecutor
    held: "weakref.WeakValueDictionary[int, Any]" = field(factory=weakref.WeakValueDictionary)  # leaves by number
    known: set[int] = field(factory=set)  # numbers of leaves that the other ranks hold
    following: int = 0  # the number of the next leaf
    words: int = 0  # number of calls so far
    over: str = ""  # the error text, once no more calls are possible
    lost: str = ""  # the error text, if a rank sends no heartbeats
    waiting: "tuple[Future[Any], ...]" = ()  # the call that `start_call` has started
    lock: threading.Lock = field(factory=threading.Lock)

    def call(self, word: str, *given: Any) -> Any:
        """Return the result of the handler of this word on trees, executed by all processes.

        Tensors are moved to the processes' devices. Raises: ChoiceError for a word without a handler; the handler's own
        PurestepError, if it raised one on all processes; RankError if a process is gone or had another outcome, and then for
        every later call.
        """
        handler = choose("call: word", word, self.handlers) if word != END else _end
        with self.lock:
            if self.lost or self.over:
                raise RankError(self.lost or self.over)
            held = dict(self.held.items())
            call = word, with_handles(given, held, is_sharded), tuple(sorted(self.known - held.keys()))
            with self._until_all_have_done(word):
                result, fault, new = _performed(self.ranks, word, handler, self._sent(call), held, self.following)
            self.known = {*held, *new}
            self.held.update(new)
            self.following += len(new)
        if fault is not None:
            raise fault
        return result

    @contextmanager
    def _until_all_have_done(self, word: str) -> Iterator[None]:
        """Allow no more calls after the last one, or after one that failed."""
        got = f"in the middle of {word!r}" if word else "at its end"
        self.over = message("ranks: rank 0", got=got, wanted="no more words", remedy=AGAIN)
        try:
            with one_line(self.ranks.rank, self.ranks.size, "in training"):
                yield
        except RankError as gone:
            self.over = str(gone)
            raise
        self.over = "" if word else self.over

    def _sent(self, call: Call) -> Any:
        if self.ranks.size > 1:
            self.words += 1
            self.channel.announce(self.words)
            self.channel.forget(self.words - 1)  # all ranks have finished it
        given: Any = shared(self.ranks, call)[1]
        return given

    def start_call(self, word: str, *given: Any) -> None:
        """Call it in a thread, after the running calls. One at a time: raises the exception of the one before."""
        self.settled()
        self.waiting = (self.pool.submit(self.call, word, *given),)

    def settled(self) -> None:
        """Wait for the call that `start_call` has started. Raises its exception."""
        waiting, self.waiting = self.waiting, ()
        for one in waiting:
            one.result()


def _end(code: int) -> tuple[()]:
    del code
    return ()


def _performed(
    ranks: ProcessGroup, word: str, handler: Callable[..., Any], given: Any, held: Mapping[int, Any], first: int
) -> tuple[Any, PurestepError | None, dict[int, Any]]:
    """Return (the handler's result, its PurestepError, new leaves), equal on all processes. Raises: RankError."""
    result: Any = ()
    fault: PurestepError | None = None
    try:
        result = handler(*without_handles(given, held))
    except RankError:
        raise
    except PurestepError as error:
        fault = error
    new = enrolled(result, held, first, is_sharded)
    ends = torch.stack(gather_tensor(ranks, torch.tensor([int(fault is not None), len(new)])))
    other = (ends != ends[0]).any(-1).nonzero()[:, 0].tolist()
    if other:
        got = f"at another end of {word!r} than rank 0" + (f" ({fault})" if fault else "")
        raise RankError(message(f"ranks: rank {other[0]}", got=got, wanted="the same on all", remedy=AGAIN))
    return result, fault, new


def led(ranks: ProcessGroup, handlers: Handlers, program: Callable[[Driver], int]) -> int:
    """Run `program` on rank 0, while the other ranks execute its calls; return its exit code on all of them.

    Handlers must do the same on all processes: see `Driver.call`. An error of the program ends the other ranks with 1, a
    SystemExit or Ctrl-C with its own code; the other ranks ignore Ctrl-C itself. `led` may be called several times with the
    same ranks; all of them must do so within a minute of each other.

    The death of any rank ends all: they raise RankError, rank 0 at its next call, or in the main thread, whatever it does,
    after a minute without a heartbeat. A call that is running then, in any thread, could block a process until the time limit
    of the process group: unless it ends within `GRACE` seconds, the process writes the error in one line to standard error and
    exits with 1, without running `finally` blocks and `atexit` functions, so that a launcher notices. Raises: any exception of
    the program; RankError.
    """
    channel = _channel(ranks)
    if ranks.rank:
        left = threading.Event()
        with ignore_ctrl_c(), alive(channel, ranks, lambda error: left.wait(GRACE) or end_at_once(str(error))):
            try:
                return _follow(ranks, handlers, channel)
            finally:
                left.set()
    with ThreadPoolExecutor(1, thread_name_prefix="purestep-later") as pool, raising_in_main() as interrupt:
        lead = Driver(ranks, handlers, channel, pool)

        def lost(error: RankError) -> None:
            lead.lost = str(error)
            interrupt(error)
            _freed(lead)

        with alive(channel, ranks, lost):
            return _through(lead, program)


def _channel(ranks: ProcessGroup) -> Channel:
    """Return a new channel for each `led`: the store still holds the last call of an earlier one. Each rank counts its own."""
    store = PrefixStore("purestep-led", ranks.store)
    return Channel(PrefixStore(str(store.add(f"talks of {ranks.rank}", 1)), store))


def _through(lead: Driver, program: Callable[[Driver], int]) -> int:
    """Return the program's exit code, after sending it to the other ranks; for an error, send the code that stands for it."""
    try:
        code = program(lead)
        lead.settled()
    except BaseException as cause:
        with suppress(Exception):
            lead.call(END, _code(cause))
        raise
    if not (lead.lost or lead.over):  # after Ctrl-C during a call, the other ranks end without an exit code
        lead.call(END, code)
    return code


def _freed(lead: Driver) -> None:
    """Wait until the running call has failed, because a rank is lost; exit the process if it still runs after `GRACE`."""
    if not lead.lock.acquire(timeout=GRACE):
        end_at_once(lead.lost)
    lead.lock.release()


def _code(cause: BaseException) -> int:
    if isinstance(cause, KeyboardInterrupt):
        return 130
    return cause.code if isinstance(cause, SystemExit) and isinstance(cause.code, int) else 1


def _follow(ranks: ProcessGroup, handlers: Handlers, channel: Channel) -> int:
    held: dict[int, Any] = {}
    number, first = 0, 0
    while True:
        number += 1
        channel.awaited(number, ranks)
        word, new, code = _heard(ranks, handlers, held, first)
        held.update(new)
        first += len(new)
        if word == END:
            return code


def _heard(
    ranks: ProcessGroup, handlers: Handlers, held: dict[int, Any], first: int
) -> tuple[str, dict[int, Any], int]:
    """Execute the next call; return its word, the new leaves, and the exit code of the last call."""
    word, given, gone = shared(ranks)
    for number in gone:
        del held[number]
    if word == END:
        _performed(ranks, word, _end, given, held, first)
        return word, {}, int(given[0])
    _, _, new = _performed(ranks, word, choose("word", word, handlers), given, held, first)
    return word, new, 0


@contextmanager
def ignore_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C, which reaches all processes: rank 0 handles it, saves, and then ends the others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def raising_in_main() -> Iterator[Interrupt]:
    """Yield a function by which other threads raise an error in the main thread, which runs this block; else a no-op.

    Uses SIGURG: it interrupts a wait, as Ctrl-C does, and is ignored without a handler.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        yield _nobody
        return
    errors: list[RankError] = []

    def interrupt(error: RankError) -> None:
        errors.append(error)
        signal.pthread_kill(main.ident or 0, signal.SIGURG)

    def handle(*_: object) -> None:
        if errors:
            raise errors.pop()

    signal.signal(signal.SIGURG, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def _nobody(error: RankError) -> None:
    """Ignore the error: the block is not in the main thread, or SIGURG has another handler."""

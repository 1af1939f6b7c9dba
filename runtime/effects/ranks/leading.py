"""One process that leads, and others that do beside it what only all of them can do together.

    def learn(state, batch): ...             # computed by all: gradients are added up, shards are gathered

    led(ranks, {"learn": learn}, program)    # on every process

    def program(lead):                       # runs on the first alone
        ...                                  # for as long as it likes
        state = lead.tell("learn", state, batch)

The first runs an ordinary program. What it tells the others they do in the same order, on the same trees: leaves that are
divided among processes stay where they are, see `runtime.ranks.naming`, and all else is sent. Between two of its words they
wait as long as it takes, and look whether it lives. Words of several threads take turns.
"""

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
from ...ranks.naming import enrolled, found, named
from ..ending import end_at_once
from .channel import Channel, alive
from .signals import deaf, interruptible
from .world import AGAIN, RankError, Ranks, gathered, one_line, shared

END = ""  # the last word, with the exit code
GRACE = 10.0  # seconds in which a word may still end when a rank is lost
Handlers = Mapping[str, Callable[..., Any]]  # by word; each takes trees and gives one, the same on every process
Call = tuple[str, Any, tuple[int, ...]]  # a word, trees in which names stand for leaves, numbers nobody needs any more


def divided(leaf: Any) -> bool:
    """Whether each process has a part of this leaf."""
    return isinstance(leaf, DTensor)


@define(eq=False)
class Lead:
    """What the first process tells the others by; any of its threads may."""

    ranks: Ranks
    handlers: Handlers
    channel: Channel
    pool: ThreadPoolExecutor
    held: "weakref.WeakValueDictionary[int, Any]" = field(factory=weakref.WeakValueDictionary)  # leaves by number
    known: set[int] = field(factory=set)  # numbers that the others have
    following: int = 0  # the number of the next leaf
    words: int = 0  # said so far
    over: str = ""  # why nothing more can be said
    lost: str = ""  # why, where somebody shows no sign of life
    waiting: "tuple[Future[Any], ...]" = ()  # what `later` is about to tell
    lock: threading.Lock = field(factory=threading.Lock)

    def tell(self, word: str, *given: Any) -> Any:
        """What the handler of this word gives of trees, done by all processes.

        Tensors come to the processes' devices. Raises: ChoiceError for a word without handler; what the handler refused with,
        where all have refused; RankError where somebody is gone or did otherwise, and from then on always.
        """
        handler = choose("tell: word", word, self.handlers) if word != END else _end
        with self.lock:
            if self.lost or self.over:
                raise RankError(self.lost or self.over)
            held = dict(self.held.items())
            call = word, named(given, held, divided), tuple(sorted(self.known - held.keys()))
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
        """Nothing can be said any more after the last word, or one that was not done well."""
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
            self.channel.forget(self.words - 1)  # whose end was told by all
        given: Any = shared(self.ranks, call)[1]
        return given

    def later(self, word: str, *given: Any) -> None:
        """Tells it in a thread, as soon as other words are done. One at a time: raises what the one before has raised."""
        self.settled()
        self.waiting = (self.pool.submit(self.tell, word, *given),)

    def settled(self) -> None:
        """Waits for what was to be told later. Raises what that has raised."""
        waiting, self.waiting = self.waiting, ()
        for one in waiting:
            one.result()


def _end(code: int) -> tuple[()]:
    del code
    return ()


def _performed(
    ranks: Ranks, word: str, handler: Callable[..., Any], given: Any, held: Mapping[int, Any], first: int
) -> tuple[Any, PurestepError | None, dict[int, Any]]:
    """(what the handler gave, what it refused with, leaves that are new), alike on all processes. Raises: RankError."""
    result: Any = ()
    fault: PurestepError | None = None
    try:
        result = handler(*found(given, held))
    except RankError:
        raise
    except PurestepError as error:
        fault = error
    new = enrolled(result, held, first, divided)
    ends = torch.stack(gathered(ranks, torch.tensor([int(fault is not None), len(new)])))
    other = (ends != ends[0]).any(-1).nonzero()[:, 0].tolist()
    if other:
        got = f"at another end of {word!r} than rank 0" + (f" ({fault})" if fault else "")
        raise RankError(message(f"ranks: rank {other[0]}", got=got, wanted="the same on all", remedy=AGAIN))
    return result, fault, new


def led(ranks: Ranks, handlers: Handlers, program: Callable[[Lead], int]) -> int:
    """Runs `program` on the first process, while others do what it tells them; on all of them gives its exit code.

    Handlers must do the same on all processes: see `Lead.tell`. An error of the program ends the others with 1, the exit of
    a SystemExit or Ctrl-C with its code; Ctrl-C itself they leave to the first. One world may be led again and again; all
    come to that within a minute.

    The death of any ends all: they raise RankError, the first at its next word, or in the main thread, whatever it does,
    when a minute has gone without a sign of life. A word that is under way then, in any thread, could keep a process in here
    until the world's time limit: unless it ends within `GRACE` seconds, the process tells the error in one line on standard
    error and ends with 1, without what `finally` and `atexit` would do, so that a launcher sees it. Raises: what the program
    raises; RankError.
    """
    channel = _channel(ranks)
    if ranks.rank:
        left = threading.Event()
        with deaf(), alive(channel, ranks, lambda error: left.wait(GRACE) or end_at_once(str(error))):
            try:
                return _follow(ranks, handlers, channel)
            finally:
                left.set()
    with ThreadPoolExecutor(1, thread_name_prefix="purestep-later") as pool, interruptible() as interrupt:
        lead = Lead(ranks, handlers, channel, pool)

        def lost(error: RankError) -> None:
            lead.lost = str(error)
            interrupt(error)
            _freed(lead)

        with alive(channel, ranks, lost):
            return _through(lead, program)


def _channel(ranks: Ranks) -> Channel:
    """That of this talk alone, since the last word of an earlier one stays in the store. Each rank counts its own talks."""
    store = PrefixStore("purestep-led", ranks.store)
    return Channel(PrefixStore(str(store.add(f"talks of {ranks.rank}", 1)), store))


def _through(lead: Lead, program: Callable[[Lead], int]) -> int:
    """The program's exit code, which the others are told, or the code that stands for its error."""
    try:
        code = program(lead)
        lead.settled()
    except BaseException as cause:
        with suppress(Exception):
            lead.tell(END, _code(cause))
        raise
    if not (lead.lost or lead.over):  # Ctrl-C in the middle of a word: then the others end without theirs
        lead.tell(END, code)
    return code


def _freed(lead: Lead) -> None:
    """Returns when no word is under way, which comes to its end without the rank that is lost; else this process ends."""
    if not lead.lock.acquire(timeout=GRACE):
        end_at_once(lead.lost)
    lead.lock.release()


def _code(cause: BaseException) -> int:
    if isinstance(cause, KeyboardInterrupt):
        return 130
    return cause.code if isinstance(cause, SystemExit) and isinstance(cause.code, int) else 1


def _follow(ranks: Ranks, handlers: Handlers, channel: Channel) -> int:
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


def _heard(ranks: Ranks, handlers: Handlers, held: dict[int, Any], first: int) -> tuple[str, dict[int, Any], int]:
    """Does what the first process says; gives the word, the leaves that are new, and the exit code of the last word."""
    word, given, gone = shared(ranks)
    for number in gone:
        del held[number]
    if word == END:
        _performed(ranks, word, _end, given, held, first)
        return word, {}, int(given[0])
    _, _, new = _performed(ranks, word, choose("word", word, handlers), given, held, first)
    return word, new, 0

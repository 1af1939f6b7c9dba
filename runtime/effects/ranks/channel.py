"""How a process that leads is heard by those that follow, and all know each other to live: by the store in which they met."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field, frozen

from ....core.errors import message
from .world import AGAIN, RankError, Ranks, one_line

BEAT = "beat"
EVERY, MISSED = 1.0, 60  # seconds between two signs of life, and how many in a row may be missed
PARTING = 5.0  # seconds in which a look comes to its end
LEAST, MOST = 5e-4, 1e-2  # seconds between two looks for a word


@frozen
class Channel:
    """Words by their numbers, and signs of life. A word itself is sent by other means."""

    store: Any  # torch.distributed's

    def announce(self, number: int) -> None:
        """The word of this number comes."""
        self.store.set(str(number), b"")

    def forget(self, number: int) -> None:
        """Everybody has heard it."""
        self.store.delete_key(str(number))

    def beat(self, rank: int, number: int) -> None:
        """Shows another sign of life of a rank."""
        self.store.set(f"{BEAT} {rank}", str(number))

    def sign(self, rank: int) -> bytes:
        """The newest sign of a rank's life; nothing where there was none."""
        name = f"{BEAT} {rank}"
        return self.store.get(name) if self.store.check([name]) else b""

    def awaited(self, number: int, ranks: Ranks) -> None:
        """Waits until the word of this number comes, as long as rank 0 lives. Raises: RankError; DistError without a store.

        The store is asked again and again: its own way of waiting warns each time that nothing has come.
        """
        first, pause, slept = Watch(self, by=ranks.rank, of=0), LEAST, 0.0
        while not self.store.check([str(number)]):
            time.sleep(pause)
            slept, pause = slept + pause, min(MOST, 2 * pause)
            if slept >= EVERY:
                first.look()
                slept = 0.0


@define
class Patience:
    """Looks are counted, not seconds, so that a machine that was asleep missed none."""

    last: bytes = b""
    missed: int = 0

    def lost(self, now: bytes) -> bool:
        """Whether too many looks in a row have found nothing new."""
        self.last, self.missed = now, self.missed + 1 if now == self.last else 0
        return self.missed > MISSED


@define
class Watch:
    """What a rank knows of another's life."""

    channel: Channel
    by: int
    of: int
    patience: Patience = field(factory=Patience)

    def look(self) -> None:
        """Looks for a new sign. Raises: RankError where too many looks in a row have found none."""
        if self.patience.lost(self.channel.sign(self.of)):
            raise _silent(self.by, f"a sign of rank {self.of}")


def _silent(rank: int, what: str) -> RankError:
    got, wanted = f"without {what} for {EVERY * MISSED:.0f} s", f"one each {EVERY:.0f} s"
    return RankError(message(f"ranks: rank {rank}", got=got, wanted=wanted, remedy=AGAIN))


@contextmanager
def alive(channel: Channel, ranks: Ranks, lost: Callable[[RankError], object]) -> Iterator[None]:
    """Shows signs of life while the block lasts. Whoever shows none is `lost`, which is called once, in a thread.

    Rank 0 looks for all others, and they look for it. So is the store lost, where it is gone or does not answer: whoever asks
    one whose host has vanished waits without end, so that another thread looks whether there is an answer.
    """
    over, own = threading.Event(), ranks.rank
    others = [Watch(channel, by=own, of=of) for of in ((0,) if own else range(1, ranks.size))]
    number = 0

    def show() -> None:
        nonlocal number
        while not over.is_set():
            try:
                with one_line(own, ranks.size, "in training"):
                    channel.beat(own, number)
                    for other in others:
                        other.look()
            except RankError as error:
                lost(error)
                return
            number += 1
            over.wait(EVERY)

    thread = threading.Thread(target=show, name="purestep-alive", daemon=True)

    def heed() -> None:
        patience = Patience()
        while not over.wait(EVERY) and thread.is_alive():
            if patience.lost(b"%d" % number):
                lost(_silent(own, "an answer of where all have met"))
                return

    thread.start()
    threading.Thread(target=heed, name="purestep-heed", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        thread.join(PARTING)

"""How a process that leads is heard by those that follow, and all know each other to live: by the store in which they met."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from attrs import define, frozen

from ....core.errors import message
from .world import AGAIN, RankError, Ranks

BEAT = "beat"
EVERY, MISSED = 1.0, 60  # seconds between two signs of life, and how many in a row may be missed
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
class Watch:
    """What a rank knows of another's life. Looks are counted, not seconds, so that a machine that was asleep missed none."""

    channel: Channel
    by: int
    of: int
    last: bytes = b""
    missed: int = 0

    def look(self) -> None:
        """Looks for a new sign. Raises: RankError where too many looks in a row have found none."""
        now = self.channel.sign(self.of)
        self.last, self.missed = now, self.missed + 1 if now == self.last else 0
        if self.missed > MISSED:
            got, wanted = f"without a sign of rank {self.of} for {EVERY * MISSED:.0f} s", f"one each {EVERY:.0f} s"
            raise RankError(message(f"ranks: rank {self.by}", got=got, wanted=wanted, remedy=AGAIN))


@contextmanager
def alive(channel: Channel, ranks: Ranks, lost: Callable[[RankError], None]) -> Iterator[None]:
    """Shows signs of life while the block lasts. On rank 0, whoever shows none is `lost`, which is called in a thread."""
    over = threading.Event()
    others = [Watch(channel, by=0, of=rank) for rank in range(1, ranks.size) if ranks.rank == 0]

    def show() -> None:
        number = 0
        while not over.is_set():
            try:
                channel.beat(ranks.rank, number)
                for other in others:
                    other.look()
            except dist.DistError:  # the store is gone: whoever says or awaits the next word is told
                return
            except RankError as error:
                lost(error)
                return
            number += 1
            over.wait(EVERY)

    thread = threading.Thread(target=show, name="purestep-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

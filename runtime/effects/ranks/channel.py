"""How a process that leads is heard by those that follow, and known to live: by the store in which all of them have met."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from attrs import frozen

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

    def beat(self, number: int) -> None:
        """Shows another sign of life."""
        self.store.set(BEAT, str(number))

    def awaited(self, number: int, ranks: Ranks) -> None:
        """Waits until the word of this number comes, as long as rank 0 lives. Raises: RankError; DistError without a store.

        Signs of life are counted by looks, not by a clock, so that a machine that was asleep has missed none. The store is
        asked again and again: its own way of waiting warns each time that nothing has come.
        """
        last, missed, pause, slept = b"", 0, LEAST, 0.0
        while not self.store.check([str(number)]):
            time.sleep(pause)
            slept, pause = slept + pause, min(MOST, 2 * pause)
            if slept >= EVERY:
                now = self.store.get(BEAT) if self.store.check([BEAT]) else b""
                last, missed, slept = now, missed + 1 if now == last else 0, 0.0
            if missed > MISSED:
                got, wanted = f"without a sign of rank 0 for {EVERY * MISSED:.0f} s", f"one each {EVERY:.0f} s"
                raise RankError(message(f"ranks: rank {ranks.rank}", got=got, wanted=wanted, remedy=AGAIN))


@contextmanager
def alive(channel: Channel) -> Iterator[None]:
    """Shows signs of life while the block lasts."""
    over = threading.Event()

    def show() -> None:
        number = 0
        while not over.is_set():
            try:
                channel.beat(number)
            except dist.DistError:  # the store is gone: whoever says the next word is told
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

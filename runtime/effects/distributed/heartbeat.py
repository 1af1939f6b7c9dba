"""Calls from the leading rank to the others, and heartbeats of all ranks, through the store of the process group."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field, frozen

from ....core.errors import message
from .process_group import AGAIN, ProcessGroup, RankError, one_line

BEAT = "beat"
EVERY, MISSED = 1.0, 60  # seconds between two heartbeats, and how many in a row may be missed
PARTING = 5.0  # seconds in which the heartbeat thread must end
LEAST, MOST = 5e-4, 1e-2  # seconds between two polls for a call


@frozen
class Channel:
    """Announcements of calls, by number, and heartbeats. The call itself is sent by a collective."""

    store: Any  # torch.distributed's

    def announce(self, number: int) -> None:
        """Announce the call of this number."""
        self.store.set(str(number), b"")

    def forget(self, number: int) -> None:
        """Remove an announcement that all ranks have seen."""
        self.store.delete_key(str(number))

    def beat(self, rank: int, number: int) -> None:
        """Store another heartbeat of a rank."""
        self.store.set(f"{BEAT} {rank}", str(number))

    def sign(self, rank: int) -> bytes:
        """Return a rank's latest heartbeat; b"" if there was none."""
        name = f"{BEAT} {rank}"
        return self.store.get(name) if self.store.check([name]) else b""

    def awaited(self, number: int, ranks: ProcessGroup) -> None:
        """Wait until the call of this number is announced, as long as rank 0 is alive.

        Raises: RankError; DistError without a store. The store is polled, because its own wait logs a warning each time that it
        runs out.
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
    """Count of missed heartbeats: checks are counted, not seconds, so that a machine that was suspended misses none."""

    last: bytes = b""
    missed: int = 0

    def lost(self, now: bytes) -> bool:
        """Return whether too many checks in a row have found no new heartbeat."""
        self.last, self.missed = now, self.missed + 1 if now == self.last else 0
        return self.missed > MISSED


@define
class Watch:
    """One rank's check of another's heartbeats."""

    channel: Channel
    by: int
    of: int
    patience: Patience = field(factory=Patience)

    def look(self) -> None:
        """Check for a new heartbeat. Raises: RankError if too many checks in a row have found none."""
        if self.patience.lost(self.channel.sign(self.of)):
            raise _silent(self.by, f"a sign of rank {self.of}")


def _silent(rank: int, what: str) -> RankError:
    got, wanted = f"without {what} for {EVERY * MISSED:.0f} s", f"one each {EVERY:.0f} s"
    return RankError(message(f"ranks: rank {rank}", got=got, wanted=wanted, remedy=AGAIN))


@contextmanager
def alive(channel: Channel, ranks: ProcessGroup, lost: Callable[[RankError], object]) -> Iterator[None]:
    """Send heartbeats during the block. If another rank sends none, `lost` is called once, in a thread.

    Rank 0 checks all others, and they check it. A store that is gone or does not answer counts as a loss too: a request to a
    store whose host has vanished blocks for ever, so another thread checks that requests come to an end.
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

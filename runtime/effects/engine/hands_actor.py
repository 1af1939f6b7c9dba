"""The actor that runs a worker's body in a thread of its process, and exchanges letters with whoever it works for."""

import pickle
import threading
import time
from collections import deque
from contextvars import copy_context
from typing import Any

from ..child_program import ANSWER, NOTE, RAISED, READY, RETURNED, STOP, StoppedError, described
from . import hands_rules as rules


class Post:
    """A worker: what its body sees (`Mailbox`), and `exchange` for the other side. Letters are pickles of words."""

    def __init__(self, letter: bytes) -> None:
        self.letter = letter  # of (body, arguments)
        self.changed = threading.Condition()
        self.box = rules.Box()
        self.given: deque[bytes] = deque()
        self.waiting = self.asked = False  # the body waits for a letter; it has looked for one in vain
        self.thread: threading.Thread | None = None

    def setup(self) -> None:
        """Imports the body and starts it, in the context of this call: an engine's own calls need to know whose they are."""
        if self.thread is None:
            given = pickle.loads(self.letter)
            run = copy_context().run
            self.thread = threading.Thread(target=run, args=(self.run, *given), name="purestep-body", daemon=True)
            self.thread.start()

    def run(self, body: Any, arguments: tuple[Any, ...]) -> None:
        """The body, from its first to its last word."""
        self.say(READY)
        try:
            body(self, *arguments)
            self.say(RETURNED, "its body came to an end")
        except StoppedError:
            self.say(RETURNED, "it was stopped")
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            self.say(RAISED, described(error))

    def say(self, *words: Any) -> None:
        """Has a letter sent."""
        letter = pickle.dumps(words)
        with self.changed:
            self.box = rules.put(self.box, letter)
            self.changed.notify_all()

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """See `Mailbox`."""
        until = time.monotonic() + seconds
        with self.changed:
            self.asked = self.waiting = not self.given
            self.changed.notify_all()
            while not self.given and (left := until - time.monotonic()) > 0:
                self.changed.wait(left)
            self.waiting = False
            if not self.given:
                return ()
            letter = self.given.popleft()
        word, *rest = pickle.loads(letter)
        if word == STOP:
            raise StoppedError
        return tuple(rest)

    def answer(self, task: int, payload: Any) -> None:
        """See `Mailbox`."""
        self.say(ANSWER, task, payload)

    def note(self, payload: Any) -> None:
        """See `Mailbox`."""
        self.say(NOTE, payload)

    def exchange(self, come: rules.Parcel, seconds: float) -> tuple[rules.Parcel, bool]:
        """Takes letters and gives those there are; without any it waits for one, at most so long.

        It comes back at once where the body looks for letters and finds none: gives whether that is so, too.
        """
        until = time.monotonic() + seconds
        with self.changed:
            self.asked = False
            self.box, new = rules.opened(self.box, come)
            self.given.extend(new)
            self.changed.notify_all()
            while not self.box.kept and not self.hungry() and (left := until - time.monotonic()) > 0:
                self.changed.wait(left)
            return rules.parcel(self.box), self.hungry()

    def hungry(self) -> bool:
        """Whether the body has nothing to do, or could do more."""
        return not self.given and (self.waiting or self.asked)

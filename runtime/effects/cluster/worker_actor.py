"""The actor that runs a worker's body in a thread of its process, and exchanges messages with the worker's owner."""

import pickle
import threading
import time
from collections import deque
from contextvars import copy_context
from typing import Any

from ..workers.program import ANSWER, NOTE, RAISED, READY, RETURNED, STOP, StoppedError, describe_exception
from . import worker_rules


class Post:
    """A worker: the `Mailbox` that its body uses, and `exchange` for the other side. Messages are pickled tuples."""

    def __init__(self, letter: bytes) -> None:
        self.letter = letter  # of (body, arguments)
        self.changed = threading.Condition()
        self.box = worker_rules.Endpoint()
        self.given: deque[bytes] = deque()
        self.waiting = self.asked = False  # the body waits for a message; it has looked for one and there was none
        self.thread: threading.Thread | None = None

    def setup(self) -> None:
        """Import the body and start it in a copy of this call's context: an engine's own calls need their actor's."""
        if self.thread is None:
            given = pickle.loads(self.letter)
            run = copy_context().run
            self.thread = threading.Thread(target=run, args=(self.run, *given), name="purestep-body", daemon=True)
            self.thread.start()

    def run(self, body: Any, arguments: tuple[Any, ...]) -> None:
        """Run the body, and report its start and its end."""
        self.say(READY)
        try:
            body(self, *arguments)
            self.say(RETURNED, "its body came to an end")
        except StoppedError:
            self.say(RETURNED, "it was stopped")
        except BaseException as error:  # SystemExit too: in a thread it would vanish
            self.say(RAISED, describe_exception(error))

    def say(self, *words: Any) -> None:
        """Queue a message for sending."""
        letter = pickle.dumps(words)
        with self.changed:
            self.box = worker_rules.put_letter(self.box, letter)
            self.changed.notify_all()

    def receive(self, seconds: float) -> tuple[Any, ...]:
        """Return the next task: see `Mailbox`."""
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
        """Send the result of a task: see `Mailbox`."""
        self.say(ANSWER, task, payload)

    def note(self, payload: Any) -> None:
        """Send a sign of life: see `Mailbox`."""
        self.say(NOTE, payload)

    def exchange(self, come: worker_rules.Parcel, seconds: float) -> tuple[worker_rules.Parcel, bool]:
        """Take the messages of a parcel and return those to be sent; if there are none, wait for one, at most so many seconds.

        Returns at once if the body has looked for messages and found none; the second value is whether that is so.
        """
        until = time.monotonic() + seconds
        with self.changed:
            self.asked = False
            self.box, new = worker_rules.open_parcel(self.box, come)
            self.given.extend(new)
            self.changed.notify_all()
            while not self.box.kept and not self.hungry() and (left := until - time.monotonic()) > 0:
                self.changed.wait(left)
            return worker_rules.parcel(self.box), self.hungry()

    def hungry(self) -> bool:
        """Return whether the body waits for a message, or has looked for one and could do more."""
        return not self.given and (self.waiting or self.asked)

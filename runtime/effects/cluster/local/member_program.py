"""The body of a member's process: it imports the standard library alone, until its actor imports more.

A call is a number, a byte that states whether it makes the actor, and a pickle: of (actor, arguments) if it does, else of
(method, arguments). An answer is that number, a byte that states whether there is a value, and a pickle of the value or the
error. The text of this module is sent to the processes of Ray and Monarch, so it imports nothing of the package.
"""

import pickle
import struct
from typing import Any

# of a call: its number, whether it makes the actor; of an answer: its number, whether there is a value
HEAD = struct.Struct(">Q?")
LONGEST = 300  # characters of an error
LARGEST = 1 << 30  # bytes of a call or an answer


def describe_failure(error: BaseException) -> str:
    """Return an exception in one line: its class and the first line of its text.

    >>> describe_failure(KeyError("dosk"))
    "KeyError: 'dosk'"
    """
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"[:LONGEST]


def answer_message(call: int, made: bool, value: Any) -> bytes:
    """Return the message of an answer; if the value cannot be sent, an answer with that error.

    >>> HEAD.unpack_from(answer_message(3, True, 7)), HEAD.unpack_from(answer_message(3, True, struct))
    ((3, True), (3, False))
    """
    try:
        letter = pickle.dumps(value)
    except Exception as error:
        return HEAD.pack(call, False) + pickle.dumps(f"what it gave cannot be sent ({describe_failure(error)})")
    if len(letter) > LARGEST:
        return HEAD.pack(call, False) + pickle.dumps(f"what it gave has {len(letter)} bytes, more than {LARGEST}")
    return HEAD.pack(call, made) + letter


class MemberStage:
    """The actor, once it is made."""

    def __init__(self) -> None:
        self.actor: Any = None

    def perform(self, call: int, makes: bool, letter: bytes) -> bytes:
        """Make a call; return the message of its answer."""
        try:
            first, arguments = pickle.loads(letter)
            if makes:
                self.actor = first(*arguments)
                if hasattr(self.actor, "setup"):
                    self.actor.setup()
                return answer_message(call, True, None)
            return answer_message(call, True, getattr(self.actor, first)(*arguments))
        except BaseException as error:  # SystemExit too: a call does not end the member
            return answer_message(call, False, describe_failure(error))


def serve(mailbox: Any) -> None:
    """Make the calls that come through the mailbox of a process, one by one, until it is stopped."""
    stage = MemberStage()
    while True:
        for _, letter in filter(None, [mailbox.receive(60.0)]):
            call, makes = HEAD.unpack_from(letter)
            mailbox.note(stage.perform(call, makes, letter[HEAD.size :]))

"""The body of a process that performs calls for `tool_calls.in_processes`. The standard library alone, to start at once.

A task is one pickle of (function, arguments). Once it is loaded a note is sent, at which the caller's time limit starts, and
then the answer: a pickle of the outcome and the result or error.
"""

import pickle
from typing import Any

from ..workers.program import describe_exception

RETURNED, RAISED, UNREADABLE = "returned", "raised", "unreadable"
LONGEST = 200  # characters of an error that a model is shown


def serve(mailbox: Any) -> None:
    """Perform calls, one after the other, until the mailbox is stopped."""
    while True:
        for task, frame in filter(None, [mailbox.receive(60.0)]):
            mailbox.answer(task, _performed(mailbox, frame))


def _performed(mailbox: Any, frame: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(frame)
    except BaseException as error:
        return pickle.dumps((UNREADABLE, describe_exception(error, LONGEST)))
    mailbox.note("begun")
    try:
        return pickle.dumps((RETURNED, function(*arguments)))
    except BaseException as error:  # a tool that calls sys.exit must not take the worker with it
        return pickle.dumps((RAISED, describe_exception(error, LONGEST)))

"""Words of a command line, and functions that all commands share."""

import sys
from pathlib import Path

import tyro

from ...core.errors import ChoiceError, message
from ..effects import folder

FLAGS = (tyro.conf.OmitArgPrefixes,)


def check_text(where: str, text: str, *, remedy: str) -> None:
    """Raise ChoiceError for text that came in another encoding, or that holds a NUL byte, which no name of a file can have.

    >>> check_text("a word", "run\\udcff", remedy="rename it")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: a word is 'run\\udcff', wanted text in UTF-8; rename it
    """
    if "\0" in text:
        raise ChoiceError(message(where, got=ascii(text[:200]), wanted="text without a NUL byte", remedy=remedy))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ChoiceError(message(where, got=ascii(text), wanted="text in UTF-8", remedy=remedy)) from None


def say(text: str) -> None:
    """Print a line for the user on standard error, separate from a command's output."""
    print(text, file=sys.stderr, flush=True)


def loading(run: Path) -> None:
    """Print that a run is loaded, before torch is imported for it. Raises: CheckpointError if there is no such folder."""
    say(f"loading {folder.existing(run)}")


def trusting(every: bool) -> None:
    """Let this process import any task that a run names, where the command line allows it."""
    if every:
        from ..effects.task_reference import EVERY, trust

        trust(EVERY)

"""A task named by a reference, MODULE:NAME or FILE.py:NAME, imported from there once this process trusts it.

A run's folder names its task, but must not decide what is imported: `trust` is called with the references of a command line.
"""

from ...core.errors import ChoiceError, TrustError, message
from ...core.language.task import TextTask
from .module_reference import imported
from .module_reference import with_absolute_path as with_absolute_path

WHERE, FORM = "task", "MODULE:NAME or FILE.py:NAME of a TextTask"
EVERY = "*"
_trusted = set[str]()


def trust(reference: str) -> None:
    """Let this process import that reference, or any reference with `EVERY`."""
    _trusted.add(reference)


def load_task(reference: str) -> TextTask:
    """Return the task that a reference names; its module is imported.

    Raises: TrustError for a reference that is not trusted; ChoiceError if there is no such module or name, if importing it
    raises, or if the value is no task.
    """
    if not {reference, EVERY} & _trusted:
        got, remedy = f"that of a run, {reference}", "if you trust it, repeat the command with --trust"
        raise TrustError(message(WHERE, got=got, wanted="one that this command names", remedy=remedy))
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise ChoiceError(message(WHERE, got=repr(reference), wanted=FORM, remedy="e.g. safe.py:SAFE"))
    module = imported(WHERE, place)
    if not hasattr(module, name):
        there = [one for one, value in vars(module).items() if isinstance(value, TextTask)]
        wanted, remedy = f"one of {there}" if there else "the name of a TextTask in it", "name it as the file does"
        raise ChoiceError(message(f"{WHERE}: {name} in {place}", got="absent", wanted=wanted, remedy=remedy))
    task = getattr(module, name)
    if not isinstance(task, TextTask):
        got, remedy = (
            type(task).__name__,
            "make one: purestep.core.language.task.TextTask(name=..., env=..., parser=...)",
        )
        raise ChoiceError(message(f"{WHERE}: {name} in {place}", got=got, wanted="a TextTask", remedy=remedy))
    return task

"""A task named by a reference, MODULE:NAME or FILE.py:NAME, imported from there once this process trusts it.

A run's folder names its task, but must not decide what is imported: `trust` is called with the references of a command line.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ...core.errors import ChoiceError, TrustError, described, message
from ...core.language.task import TextTask

WHERE, FORM = "task", "MODULE:NAME or FILE.py:NAME of a TextTask"
EVERY = "*"
_trusted = set[str]()
PREFIX = "purestep_task_"  # of the names under which files are imported


def absolute(reference: str) -> str:
    """Return the reference with the path of its file made absolute, so that it can be resolved from any folder.

    >>> absolute("package.worlds:SAFE"), absolute("safe.py:SAFE").endswith("/safe.py:SAFE")
    ('package.worlds:SAFE', True)
    """
    place, colon, name = reference.rpartition(":")
    return f"{Path(place).absolute()}{colon}{name}" if place.endswith(".py") else reference


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
    module = _module(place)
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


def _module(place: str) -> ModuleType:
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        return _of_file(Path(place).absolute())
    except (Exception, SystemExit) as cause:
        remedy = "see that it can be imported on its own" if not isinstance(cause, OSError) else "check the path"
        if isinstance(cause, ModuleNotFoundError) and cause.name == place.partition(".")[0]:
            remedy = "install it, or name its file: FILE.py:NAME"
        wanted = "a module that can be imported"
        raise ChoiceError(message(f"{WHERE}: {place}", got=described(cause), wanted=wanted, remedy=remedy)) from cause


def _of_file(path: Path) -> ModuleType:
    """Return the module that a file makes, under a name of its own; its functions can be sent to other processes here."""
    name = PREFIX + path.stem
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

"""Modules that a user names, MODULE or FILE.py, imported with errors of one line. Imports no torch."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ...core.errors import ChoiceError, describe_error, message

GYMNASIUM = "gym:"  # before the name of an environment of Gymnasium's, which may begin with a reference's PLACE:
PREFIX = "purestep_task_"  # of the names under which files are imported


def is_reference(text: str) -> bool:
    """Return whether a text is a reference PLACE:NAME, and not a name.

    >>> is_reference("boat.py:BOAT"), is_reference("cartpole"), is_reference("gym:CartPole-v1")
    (True, False, False)
    """
    return ":" in text.removeprefix(GYMNASIUM)


def with_absolute_path(reference: str) -> str:
    """Return the reference PLACE:NAME with the path of its file made absolute, so that it can be resolved from any folder.

    >>> with_absolute_path("package.worlds:SAFE"), with_absolute_path("safe.py:SAFE").endswith("/safe.py:SAFE")
    ('package.worlds:SAFE', True)
    """
    before = GYMNASIUM if reference.startswith(GYMNASIUM) else ""
    place, colon, name = reference.removeprefix(before).rpartition(":")
    return f"{before}{Path(place).absolute()}{colon}{name}" if place.endswith(".py") else reference


def absolute_reference(reference: str) -> str:
    """Return a reference PLACE:NAME, or a PLACE alone, with the path of its file made absolute.

    >>> absolute_reference("math"), absolute_reference("calculator.py").endswith("/calculator.py")
    ('math', True)
    """
    return (
        with_absolute_path(f"{reference}:").removesuffix(":")
        if reference.endswith(".py")
        else with_absolute_path(reference)
    )


def imported(where: str, place: str) -> ModuleType:
    """Return the module of a name or of a FILE.py. Raises: ChoiceError, beginning with `where`, if it cannot be imported.

    >>> imported("task", "json").__name__
    'json'
    """
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        return _of_file(Path(place).absolute())
    except (Exception, SystemExit) as cause:
        remedy = "see that it can be imported on its own" if not isinstance(cause, OSError) else "check the path"
        if isinstance(cause, ModuleNotFoundError) and cause.name == place.partition(".")[0]:
            remedy = "install it, or name its file: FILE.py:NAME"
        wanted = "a module that can be imported"
        raise ChoiceError(
            message(f"{where}: {place}", got=describe_error(cause), wanted=wanted, remedy=remedy)
        ) from cause


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

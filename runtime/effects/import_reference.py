"""Modules named by a reference: MODULE by its name, FILE.py by its path. Imports the standard library and errors alone."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ...core.errors import ChoiceError, described, message

PREFIX = "purestep_task_"  # of the names under which files are imported


def import_module(where: str, place: str) -> ModuleType:
    """Return the module of a name, or that of a file's path, which is imported once.

    Raises: ChoiceError, beginning with `where`, if there is none or importing it raises.

    >>> import_module("tool", "math").gcd(4, 6)
    2
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
        raise ChoiceError(message(f"{where}: {place}", got=described(cause), wanted=wanted, remedy=remedy)) from cause


def _of_file(path: Path) -> ModuleType:
    """Return the module that a file makes, under a name of its own."""
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

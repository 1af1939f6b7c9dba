"""Objects named on a command line: `package.module:object`, or `file.py:object`."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.errors import StructureError, describe_error, message

SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Fields", "Tuple")


def load_target(target: str) -> Any:
    """Return the object at "package.module:name" or "file.py:name"; importing runs its module. Raises: StructureError."""
    module_name, _, name = target.rpartition(":")
    if not module_name and ":" not in target:
        remedy = "write package.module:object"
        raise StructureError(message("verify: target", got=repr(target), wanted="module:object", remedy=remedy))
    try:
        value = load_module(module_name)
        for part in name.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # importing runs the user's module, which may raise anything
        remedy = "check the spelling, and that it can be imported from here"
        raise StructureError(
            message(f"verify: {target}", got=describe_error(error), wanted="an object", remedy=remedy)
        ) from error
    return value


def load_module(name: str) -> Any:
    """Return the module of that name, or of that file."""
    file = Path(name)
    folder = str(file.resolve().parent if name.endswith(".py") else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not name.endswith(".py"):
        return importlib.import_module(name)
    known = sys.modules.get(file.stem)
    if known is not None and Path(str(getattr(known, "__file__", ""))).resolve() == file.resolve():
        return known
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise FileNotFoundError(f"no file {name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def values_of(option: str, words: Sequence[str]) -> dict[str, Any]:
    """Return `name=expression` pairs as values; an expression may use torch, np, st, gymnasium, our
    spaces (Box, Discrete, ...) and the strategies of this package.

    >>> values_of("--declare", ["convention=drop", "low=0.5"])
    {'convention': 'drop', 'low': 0.5}
    """
    found = {}
    for word in words:
        name, _, text = word.partition("=")
        if not text:
            raise StructureError(message(f"verify: {option}", got=repr(word), wanted="name=value", remedy="write both"))
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    import numpy as np
    import torch
    from hypothesis import strategies as st

    from ..strategies import values

    known: dict[str, Any] = {"torch": torch, "np": np, "st": st, **vars(values)}
    if "gymnasium." in text:
        known["gymnasium"] = importlib.import_module("gymnasium")
    if text.partition("(")[0] in SPACES:
        from ...core import spaces

        known.update({name: getattr(spaces, name) for name in SPACES})
    try:
        return eval(text, known)  # the user's own command line
    except NameError:
        return text  # a word
    except Exception as error:
        remedy = "write a Python expression"
        raise StructureError(message("verify: value", got=describe_error(error), wanted=text, remedy=remedy)) from error

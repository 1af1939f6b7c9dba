"""Reward functions given as Python objects: known by a name in this process alone, since a run's record holds no functions."""

import sys
from collections.abc import Callable
from typing import Any

from ....core.errors import ChoiceError, message

HERE = "here:"  # of names of functions that only this process has
_functions: dict[str, Callable[..., Any]] = {}


def name_of_function(function: str | Callable[..., Any]) -> str:
    """Return a name for a function: MODULE:FUNCTION if it can be imported from there, else here:NAME, for this process.

    >>> import math
    >>> name_of_function(math.dist), name_of_function("exact"), name_of_function(lambda prompts, completions: [])
    ('math:dist', 'exact', 'here:<lambda>')
    """
    if isinstance(function, str):
        return function
    name, place = getattr(function, "__qualname__", type(function).__name__), getattr(function, "__module__", "")
    module = sys.modules.get(place)
    if place != "__main__" and module is not None and getattr(module, name, None) is function:
        return f"{place}:{name}"
    _functions[HERE + name] = function
    return HERE + name


def given(name: str) -> str | Callable[..., Any]:
    """Return the function that `name_of_function` named in this process; other names as they are. Raises: ChoiceError."""
    if not name.startswith(HERE):
        return name
    if name not in _functions:
        got, remedy = "a function of the script that began the run", "move it to a file, FILE.py:FUNCTION"
        raise ChoiceError(message(f"reward {name}", got=got, wanted="one that can be imported", remedy=remedy))
    return _functions[name]

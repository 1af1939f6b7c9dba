"""Draws that depend only on a law and its profile, not on the modules that are imported.

Hypothesis also tries numbers and texts from the source code of imported local modules. These modules depend on what was
imported before in the same process: a law would draw other inputs in a run of all tests than alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture import providers

NAMES = ("Constants", "CONSTANTS_CACHE", "_get_local_constants")  # private: another version may have others


@contextmanager
def settled() -> Iterator[None]:
    """Keep Hypothesis from using constants of modules, inside a `with` block and in all threads of the process.

    A version of Hypothesis without these private names is left as it is.

    >>> with settled():
    ...     len(providers._get_local_constants())
    0
    """
    module: Any = providers
    before = {name: getattr(module, name) for name in NAMES if hasattr(module, name)}
    if len(before) < len(NAMES):
        yield
        return
    none = module.Constants()
    module._get_local_constants = lambda: none
    module.CONSTANTS_CACHE = type(module.CONSTANTS_CACHE)(1024)  # the old cache contains constants of modules
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)

"""Draws that depend on a law and its profile alone, and not on what else is imported.

Hypothesis also tries numbers and texts that stand in the sources of imported modules of one's own. Which those are depends on
what was imported before in the same process: a law would draw other inputs in a run of all tests than alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture import providers

NAMES = ("Constants", "CONSTANTS_CACHE", "_get_local_constants")  # private: another version may have others


@contextmanager
def settled() -> Iterator[None]:
    """Within it Hypothesis takes no constants from modules. A version that does so in another way is left as it is.

    It holds for all threads of the process.

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
    module.CONSTANTS_CACHE = type(module.CONSTANTS_CACHE)(1024)  # the other one remembers constants of modules
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)

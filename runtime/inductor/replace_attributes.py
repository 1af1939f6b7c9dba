"""Attributes of other packages, replaced for the length of a block."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def replace_attributes(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Set these attributes of `owner` to these values in the block; names that it lacks are ignored.

    >>> import gc
    >>> with replace_attributes(gc, {"collect": lambda: "nothing", "not there": 0}):
    ...     gc.collect(), hasattr(gc, "not there")
    ('nothing', False)
    """
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, values[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)

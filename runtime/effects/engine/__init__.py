"""Engines: actors in processes on one or many hosts. `interface` says what each gives; an engine is imported when it is opened.

A back-end is a module with two functions:

    clustered(hosts: tuple[str, ...]) -> AbstractContextManager[Cluster]   # no hosts: this machine, named "local"
    serve(address: str, ...) -> None                                       # what `purestep host` runs until it is ended

Where its package is not installed, or is of a version that it does not work with, `clustered` raises EngineError.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ....core.errors import choose
from .interface import Cluster

ENGINES: Mapping[str, str] = {"processes": "processes", "monarch": "monarch_engine", "ray": "ray_engine"}


def opened(name: str, *, hosts: Sequence[str] = ()) -> AbstractContextManager[Cluster]:
    """A cluster of the engine `name` on hosts at these addresses, or on this machine; stopped at the end of the block.

    Raises: ChoiceError for a name that is none; EngineError (see `interface`) for an engine or a host that cannot be had.
    """
    back_end = importlib.import_module(f".{choose('opened: engine', name, ENGINES)}", __name__)
    cluster: AbstractContextManager[Cluster] = back_end.clustered(tuple(hosts))
    return cluster

"""Engines: actors in processes on one or many hosts. `interface` says what each gives; an engine is imported when it is opened.

A back-end is a module with two functions:

    clustered(hosts, *, key) -> AbstractContextManager[Cluster]     # no hosts: this machine, named "local"
    serve(address, *, key, ready) -> None           # a host, until Ctrl-C or SIGTERM; `ready` is told where it listens

Where its package is not installed, or is of a version that it does not work with, both raise EngineError.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

from ....core.errors import choose
from .interface import Cluster

ENGINES: Mapping[str, str] = {"processes": "processes", "monarch": "monarch_engine", "ray": "ray_engine"}


def opened(name: str, *, hosts: Sequence[str] = (), key: Path | None = None) -> AbstractContextManager[Cluster]:
    """A cluster of the engine `name` on hosts at these addresses, or on this machine; stopped at the end of the block.

    The key is a file with the secret that the hosts have, or PURESTEP_KEY where none is named.
    Raises: ChoiceError for a name that is none; EngineError (see `interface`) for an engine or a host that cannot be had.
    """
    cluster: AbstractContextManager[Cluster] = _back_end("opened", name).clustered(tuple(hosts), key=key)
    return cluster


def served(name: str, address: str, *, key: Path | None = None, ready: Callable[[str], None]) -> None:
    """This machine as a host for the engine `name`, until Ctrl-C or SIGTERM; `ready` is told the address once it listens.

    Raises: as `opened`, and EngineError where nobody can listen at that address.
    """
    _back_end("host", name).serve(address, key=key, ready=ready)


def _back_end(where: str, name: str) -> ModuleType:
    return importlib.import_module(f".{choose(f'{where}: engine', name, ENGINES)}", __name__)

"""Engines: actors in processes on one or many hosts, behind one `interface`. An engine is imported when it is opened.

A back-end is a module with two functions:

    clustered(hosts, *, store) -> AbstractContextManager[Cluster]   # no hosts: this machine, named "local"
    serve(address, *, ready) -> None            # a host, until Ctrl-C or SIGTERM; `ready` is called with its address

If its package is not installed, or has a version that does not work here, both raise EngineError.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType

from ....core.errors import choose
from .interface import Cluster

ENGINES: Mapping[str, str] = {"processes": "local.engine", "monarch": "monarch.engine", "ray": "ray.engine"}


def open_cluster(name: str, *, hosts: Sequence[str] = (), store: int = 0) -> AbstractContextManager[Cluster]:
    """Open a cluster of the engine `name` on hosts at these addresses, or on this machine; stopped at the end of the block.

    `processes` runs on this machine; the hosts of `monarch` run `purestep host`; those of `ray` belong to the cluster that
    RAY_ADDRESS names. A Ray that is started here gets an object store for `store` bytes.
    Raises: ChoiceError for an unknown name; EngineError (see `interface`) for an engine or a host that is not available.
    """
    cluster: AbstractContextManager[Cluster] = _back_end("opened", name).clustered(tuple(hosts), store=store)
    return cluster


def serve_host(name: str, address: str, *, ready: Callable[[str], None]) -> None:
    """Serve this machine as a host for the engine `name`, until Ctrl-C or SIGTERM; `ready` is called with the address.

    Raises: as `open_cluster`, and EngineError if the address cannot be listened at, or if the engine has hosts of another kind.
    """
    _back_end("host", name).serve(address, ready=ready)


def _back_end(where: str, name: str) -> ModuleType:
    return importlib.import_module(f".{choose(f'{where}: engine', name, ENGINES)}", __name__)

"""Versions of the engines' libraries: whether one is installed, and whether the engine was tested with it."""

import re
import sys
from importlib import metadata

from ....core.errors import message
from .interface import EngineError

TRIED = {"ray": ("ray", "2.60"), "monarch": ("torchmonarch", "0.7.x")}  # engine: its package, and the tested versions


def installed(engine: str) -> str:
    """Return the installed version of an engine's library, without importing it.

    Raises: EngineError if there is none or an untested one, and for Monarch on other systems than Linux.
    """
    package, _ = TRIED[engine]
    if engine == "monarch" and sys.platform != "linux":
        remedy = "use another engine"
        raise EngineError(message("engine monarch: the system", got=sys.platform, wanted="linux", remedy=remedy))
    try:
        return tried(engine, metadata.version(package))
    except metadata.PackageNotFoundError:
        where = f"engine {engine}: {package}"
        raise EngineError(message(where, got="not installed", wanted="installed", remedy=_remedy(engine))) from None


def tried(engine: str, version: str) -> str:
    """Return the version if the engine was tested with it: other minor versions change interfaces that are used here.

    Raises: EngineError.

    >>> tried("ray", "2.60.1"), tried("monarch", "0.7.0")
    ('2.60.1', '0.7.0')
    >>> tried("ray", "2.9.3")
    Traceback (most recent call last):
    purestep.runtime.effects.cluster.interface.EngineError: engine ray: the version of ray is 2.9.3, wanted 2.60; \
pip install 'purestep[ray]'
    """
    package, tested = TRIED[engine]
    if re.match(rf"{re.escape(tested.removesuffix('.x'))}(?![0-9])", version):
        return version
    where = f"engine {engine}: the version of {package}"
    raise EngineError(message(where, got=version, wanted=tested, remedy=_remedy(engine)))


def _remedy(engine: str) -> str:
    return f"pip install 'purestep[{engine}]'"

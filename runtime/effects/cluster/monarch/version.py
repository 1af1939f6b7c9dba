"""Version of Monarch: whether it is installed, and whether the engine was tested with it."""

import re
import sys
from importlib import metadata

from .....core.errors import message
from ..interface import EngineError

TRIED = "0.7"  # other minor versions change interfaces that are used here
REMEDY = "pip install 'purestep[monarch]'"


def installed() -> str:
    """Return the installed version of Monarch, without importing it.

    Raises: EngineError if there is none or an untested one, and on other systems than Linux.
    """
    if sys.platform != "linux":
        remedy = "use another engine"
        raise EngineError(message("engine monarch: the system", got=sys.platform, wanted="linux", remedy=remedy))
    try:
        return tried(metadata.version("torchmonarch"))
    except metadata.PackageNotFoundError:
        where = "engine monarch: torchmonarch"
        raise EngineError(message(where, got="not installed", wanted="installed", remedy=REMEDY)) from None


def tried(version: str) -> str:
    """Return the version if the engine was tested with it.

    Raises: EngineError.

    >>> tried("0.7.0")
    '0.7.0'
    >>> tried("0.70.1")
    Traceback (most recent call last):
    purestep.runtime.effects.cluster.interface.EngineError: engine monarch: the version of torchmonarch is 0.70.1, wanted \
0.7.x; pip install 'purestep[monarch]'
    """
    if re.match(rf"{re.escape(TRIED)}(?![0-9])", version):
        return version
    where = "engine monarch: the version of torchmonarch"
    raise EngineError(message(where, got=version, wanted=f"{TRIED}.x", remedy=REMEDY))

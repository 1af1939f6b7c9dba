"""Version of Ray: whether it is installed, and whether the engine was tested with it."""

import re
from importlib import metadata

from .....core.errors import message
from ..interface import EngineError

TRIED = (
    (2, 60),
    (2, 60),
)  # the first and the last tested version: others change interfaces that are used here
REMEDY = "pip install 'purestep[ray]'"


def installed() -> str:
    """Return the installed version of Ray, without importing it. Raises: EngineError if there is none or an untested one."""
    try:
        return tried(metadata.version("ray"))
    except metadata.PackageNotFoundError:
        raise EngineError(message("engine ray: ray", got="not installed", wanted="installed", remedy=REMEDY)) from None


def tried(version: str) -> str:
    """Return the version if the engine was tested with it.

    Raises: EngineError.

    >>> tried("2.60.0")
    '2.60.0'
    >>> tried("2.9.3")
    Traceback (most recent call last):
    purestep.runtime.effects.cluster.interface.EngineError: engine ray: the version of ray is 2.9.3, wanted 2.60; \
pip install 'purestep[ray]'
    """
    found = re.match(r"(\d+)\.(\d+)(?!\d)", version)
    if found and TRIED[0] <= (int(found[1]), int(found[2])) <= TRIED[1]:
        return version
    wanted = " to ".join(dict.fromkeys(".".join(map(str, one)) for one in TRIED))
    raise EngineError(message("engine ray: the version of ray", got=version, wanted=wanted, remedy=REMEDY))

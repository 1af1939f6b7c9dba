"""Which Ray there is, and whether the engine has been tried with it."""

import re
from importlib import metadata

from ....core.errors import message
from .interface import EngineError

TRIED = (
    (2, 60),
    (2, 60),
)  # the first and the last version with which the contract was tried: others move what we rely on
REMEDY = "pip install 'purestep[ray]'"


def installed() -> str:
    """The version of Ray that is installed, without importing it. Raises: EngineError for none, or one that was not tried."""
    try:
        return tried(metadata.version("ray"))
    except metadata.PackageNotFoundError:
        raise EngineError(message("engine ray: ray", got="not installed", wanted="installed", remedy=REMEDY)) from None


def tried(version: str) -> str:
    """The version, where it is one that was tried.

    Raises: EngineError.

    >>> tried("2.60.0")
    '2.60.0'
    >>> tried("2.9.3")
    Traceback (most recent call last):
    purestep.runtime.effects.engine.interface.EngineError: engine ray: the version of ray is 2.9.3, wanted 2.60; \
pip install 'purestep[ray]'
    """
    found = re.match(r"(\d+)\.(\d+)(?!\d)", version)
    if found and TRIED[0] <= (int(found[1]), int(found[2])) <= TRIED[1]:
        return version
    wanted = " to ".join(dict.fromkeys(".".join(map(str, one)) for one in TRIED))
    raise EngineError(message("engine ray: the version of ray", got=version, wanted=wanted, remedy=REMEDY))

"""Check that a host has the package versions of the machine that trains: both exchange instances of their classes.

Torch's local build label (the part after "+") is not compared: a host with GPUs has another build than a trainer without.
"""

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

import torch

from ...core.errors import ChoiceError, message

Packages = Mapping[str, str]  # package name -> version


def packages() -> Packages:
    """Return the versions of this process that must match between hosts.

    >>> sorted(packages())
    ['purestep', 'python', 'torch']
    """
    return {
        "purestep": _version("purestep"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": str(torch.__version__).partition("+")[0],
    }


def _version(name: str) -> str:
    """Return the version of an installed package; "not installed" for one that is only on the import path.

    >>> _version("nowhere")
    'not installed'
    """
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return "not installed"


def refuse_others(ours: Packages, theirs: Packages, host: str) -> None:
    """Refuse a host whose packages differ from ours. An empty `ours` accepts every host.

    Raises: ChoiceError that names the first package that differs.

    >>> refuse_others({"torch": "2.13.0"}, {"torch": "2.13.0", "numpy": "2.0"}, "10.0.0.2:7000")
    >>> refuse_others({"torch": "2.13.0"}, {"torch": "2.12.1"}, "10.0.0.2:7000")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: host 10.0.0.2:7000: torch is 2.12.1, wanted 2.13.0 as where it trains; install that there
    """
    for name, version in ours.items():
        if theirs.get(name) != version:
            got, wanted = theirs.get(name, "not there"), f"{version} as where it trains"
            raise ChoiceError(message(f"host {host}: {name}", got=got, wanted=wanted, remedy="install that there"))

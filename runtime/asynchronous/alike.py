"""Whether a host has the packages of the machine that trains: what goes between them are values of their classes.

Torch's build is not compared: a host with GPUs has another one than a trainer without.
"""

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata

import torch

from ...core.errors import ChoiceError, message

Packages = Mapping[str, str]  # versions, by name


def packages() -> Packages:
    """Those of this process that have to be alike.

    >>> sorted(packages())
    ['purestep', 'python', 'torch']
    """
    return {
        "purestep": _version("purestep"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": str(torch.__version__).partition("+")[0],
    }


def _version(name: str) -> str:
    """That of an installed package; another word where it is only on the path for imports.

    >>> _version("nowhere")
    'not installed'
    """
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return "not installed"


def refuse_others(ours: Packages, theirs: Packages, host: str) -> None:
    """Raises: ChoiceError where a host's packages are not ours, naming the first that differs; none of ours refuses nobody.

    >>> refuse_others({"torch": "2.13.0"}, {"torch": "2.13.0", "numpy": "2.0"}, "10.0.0.2:7000")
    >>> refuse_others({"torch": "2.13.0"}, {"torch": "2.12.1"}, "10.0.0.2:7000")
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: host 10.0.0.2:7000: torch is 2.12.1, wanted 2.13.0 as where it trains; install that there
    """
    for name, version in ours.items():
        if theirs.get(name) != version:
            got, wanted = theirs.get(name, "not there"), f"{version} as where it trains"
            raise ChoiceError(message(f"host {host}: {name}", got=got, wanted=wanted, remedy="install that there"))

"""What this machine has for moving weights, and the way that is chosen for several, which is said in one line."""

import importlib.util
import os
import platform
import secrets
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..weights_file import shared_folder
from .choice import Choice, Host, choice

BOOT = Path("/proc/sys/kernel/random/boot_id")
DEVICES = Path("/sys/class/infiniband")


def this_host(*, boot: Path = BOOT, devices: Path = DEVICES) -> Host:
    """What this process sees here. It is small, and goes to whoever chooses.

    >>> this_host().memory == this_host().memory
    True
    """
    verbs = devices.is_dir() and any(devices.iterdir())
    monarch = importlib.util.find_spec("monarch") is not None
    return Host(name=platform.node() or "localhost", memory=_memory(boot), monarch=monarch, verbs=verbs)


def _memory(boot: Path) -> str:
    """The boot of the machine and its device for shared memory: containers of one machine have different ones."""
    folder = shared_folder()
    with suppress(OSError):
        return f"{boot.read_text().strip()}/{os.stat(folder).st_dev}"
    return f"{uuid.getnode():x}/{folder}"


def fresh_key() -> bytes:
    """A secret that nobody has had, for one publisher and those who fetch from it."""
    return secrets.token_bytes(32)


def chosen(
    hosts: Sequence[Host],
    *,
    fixed: bool = False,
    within: bool = True,
    asked: str = "",
    report: Callable[[str], object] = print,
) -> Choice:
    """The `choice` for these hosts, said to `report` in one line. Raises: ChoiceError.

    >>> chosen([this_host(), this_host()]).way
    weights go by shared: all processes see the same memory
    'shared'
    """
    found = choice(hosts, fixed=fixed, within=within, asked=asked)
    report(str(found))
    return found

"""What this machine has for moving weights, and the way that is chosen for several, which is said in one line."""

import importlib.util
import os
import platform
import secrets
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ....core.errors import message
from ..weights_file import shared_folder
from ..weights_layout import WeightsError
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


def own_address(towards: str) -> str:
    """The number under which a host at HOST:PORT sees this machine; nothing is sent to it. Raises: WeightsError.

    >>> own_address("127.0.0.1:7000")
    '127.0.0.1'
    """
    name, _, port = towards.rpartition(":")
    try:
        found = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as asked:
            asked.connect(found[4])
            return str(asked.getsockname()[0])
    except (OSError, ValueError) as cause:
        remedy = "name an address of this machine that hosts can reach"
        got = f"without a way to it ({cause})"
        raise WeightsError(
            message(f"host {towards}", got=got, wanted="a host that can be reached", remedy=remedy)
        ) from cause


def chosen(hosts: Sequence[Host], *, fixed: bool = False, report: Callable[[str], object] = print) -> Choice:
    """The choice for these hosts, said to `report` in one line. Raises: ChoiceError.

    >>> chosen([this_host(), this_host()]).way
    weights go by shared: all processes see the same memory
    'shared'
    """
    found = choice(hosts, fixed=fixed)
    report(str(found))
    return found

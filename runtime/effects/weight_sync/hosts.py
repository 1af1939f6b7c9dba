"""This machine's properties for the transfer of weights, and the choice of a transport, reported in one line."""

import os
import platform
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .select_transport import ChosenTransport, Host, transport_for
from .shared_memory.file import shared_folder

BOOT = Path("/proc/sys/kernel/random/boot_id")
DEVICES = Path("/sys/class/infiniband")


def this_host() -> Host:
    """Return this machine's properties. The value is small, and is sent to the process that chooses.

    >>> this_host().memory == this_host().memory
    True
    """
    verbs = DEVICES.is_dir() and any(DEVICES.iterdir())
    return Host(name=platform.node() or "localhost", memory=_memory(), verbs=verbs)


def _memory() -> str:
    """Return an id of the boot and the device of shared memory: containers of one machine have different devices."""
    folder = shared_folder()
    with suppress(OSError):
        return f"{BOOT.read_text().strip()}/{os.stat(folder).st_dev}"
    return f"{uuid.getnode():x}/{folder}"


def choose_transport(
    hosts: Sequence[Host], *, engine: str, asked: str = "", report: Callable[[str], object] = print
) -> ChosenTransport:
    """Return the `select_transport` for these hosts, and pass it to `report` in one line. Raises: ChoiceError.

    >>> choose_transport([this_host(), this_host()], engine="processes").way
    weights go by shared: all processes see the same memory
    'shared'
    """
    found = transport_for(hosts, engine=engine, asked=asked)
    report(str(found))
    return found

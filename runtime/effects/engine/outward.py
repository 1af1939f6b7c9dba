"""How others see this machine."""

import socket

from ....core.errors import message
from .interface import EngineError
from .processes_wire import parted


def outward(address: str) -> str:
    """This machine's number as the host at that address sees it; nothing is sent.

    Raises: EngineError for a host to which no way leads, ChoiceError for what is no address.

    >>> outward("127.0.0.1:7000")
    '127.0.0.1'
    """
    try:
        found = socket.getaddrinfo(*parted(address), type=socket.SOCK_DGRAM)[0]
        with socket.socket(*found[:3]) as probe:
            probe.connect(found[4])
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:  # UnicodeError: no name can be so
        got, remedy = f"unreachable ({getattr(error, 'strerror', '') or error})", "see that the network leads there"
        raise EngineError(message(f"host {address}", got=got, wanted="a host that listens", remedy=remedy)) from error

"""Addresses of hosts: HOST:PORT, those that only this machine can use, and this machine's address as other hosts see it."""

import socket

from ....core.errors import ChoiceError, message
from .interface import EngineError


def parted(address: str) -> tuple[str, int]:
    """Return the host and port of "HOST:PORT", "[::1]:PORT" too.

    Raises: ChoiceError for a malformed address.

    >>> parted("10.0.0.1:7000"), parted("[::1]:7000")
    (('10.0.0.1', 7000), ('::1', 7000))
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        remedy = "write both, as in 10.0.0.1:7000"
        raise ChoiceError(message("host: address", got=repr(address), wanted="HOST:PORT", remedy=remedy))
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_and_port(host: str, port: int) -> str:
    """Return "HOST:PORT".

    >>> host_and_port("10.0.0.1", 7000), host_and_port("::1", 7000)
    ('10.0.0.1:7000', '[::1]:7000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host's name or IP address is a loopback address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("10.0.0.1")
    (True, True, True, False)
    """
    return host == "localhost" or host == "::1" or host.startswith("127.")


def outward(address: str) -> str:
    """Return this machine's IP address as the host at that address sees it; nothing is sent.

    Raises: EngineError for a host to which there is no route, ChoiceError for a malformed address.

    >>> outward("127.0.0.1:7000")
    '127.0.0.1'
    """
    try:
        found = socket.getaddrinfo(*parted(address), type=socket.SOCK_DGRAM)[0]
        with socket.socket(*found[:3]) as probe:
            probe.connect(found[4])
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:  # UnicodeError: not a possible name
        got, remedy = f"unreachable ({getattr(error, 'strerror', '') or error})", "see that the network leads there"
        raise EngineError(message(f"host {address}", got=got, wanted="a host that listens", remedy=remedy)) from error

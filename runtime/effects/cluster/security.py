"""Keys and tokens of the engines' libraries: which are set, and whether other users can read their files."""

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ....core.errors import message
from .addresses import is_loopback
from .interface import EngineError

MONARCH = ("HYPERACTOR_TLS_CERT", "HYPERACTOR_TLS_KEY", "HYPERACTOR_TLS_CA")
RAY = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
USE_RAY_TLS, TOKEN, TOKEN_PATH, TOKEN_MODE = "RAY_USE_TLS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
TOKEN_FILE = Path("~/.ray/auth_token")  # where Ray looks last
RAY_ADDRESS = "RAY_ADDRESS"  # Ray's own: the cluster that it uses
TRUST = "--trust-network"


def monarch_scheme(environment: Mapping[str, str] = os.environ) -> str:
    """Return the scheme of Monarch's addresses: "tls" if its certificates are set, else "tcp".

    Raises: EngineError if only some are set, one is absent, or others can read the key.

    >>> monarch_scheme({})
    'tcp'
    """
    if not any(environment.get(name) for name in MONARCH):
        return "tcp"
    refuse_incomplete(MONARCH, environment)
    return "tls"


def ray_security(environment: Mapping[str, str] = os.environ) -> tuple[bool, bool]:
    """Return whether this process sends Ray a token, and whether it uses TLS.

    Raises: EngineError if a certificate is not set or absent, or others can read the key or the token's file.

    >>> ray_security({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a token"}), ray_security({"RAY_AUTH_MODE": "disabled"})
    ((True, False), (False, False))
    """
    tls = environment.get(USE_RAY_TLS, "").lower() in ("1", "true")
    if tls:
        refuse_incomplete(RAY, environment)
    mode = environment.get(TOKEN_MODE, "token")
    if mode.lower() != "token":
        return False, tls
    if environment.get(TOKEN):
        return True, tls
    path = Path(environment.get(TOKEN_PATH) or TOKEN_FILE.expanduser())
    if path.exists():
        refuse_readable(path, TOKEN_PATH)
    return path.exists(), tls


def ray_token(environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the token that this process sends to Ray, empty if it sends none.

    >>> ray_token({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a token"}), ray_token({"RAY_AUTH_MODE": "disabled"})
    (b'a token', b'')
    """
    path = Path(environment.get(TOKEN_PATH) or TOKEN_FILE.expanduser())
    if environment.get(TOKEN_MODE, "token").lower() == "token":
        with suppress(OSError):
            return (environment.get(TOKEN) or path.read_text()).strip().encode()
    return b""


def describe_security(engine: str, hosts: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return one line on how connections to an engine's hosts are secured, or "" if the hosts are this machine.

    Ray's hosts are in the cluster that RAY_ADDRESS names. Raises: EngineError, as the functions above.

    >>> describe_security("ray", "", {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_MODE": "disabled"})
    'ray at 10.0.0.1:6379 is spoken to without a token and without TLS: whoever reaches its ports can run code there'
    """
    at = environment.get(RAY_ADDRESS, "") if engine == "ray" else hosts
    if not at:
        return ""
    token, tls = (False, monarch_scheme(environment) == "tls") if engine == "monarch" else ray_security(environment)
    how = [f"{'with' if token else 'without'} a token"] if engine == "ray" else []
    how += [f"{'with' if tls else 'without'} TLS"]
    open_ = "" if token or tls else ": whoever reaches its ports can run code there"
    return f"{engine} at {at} is spoken to {' and '.join(how)}{open_}"


def refuse_incomplete(names: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Refuse certificates of which one is not set or absent, or whose key others can read. Raises: EngineError."""
    for name in names:
        path = environment.get(name, "")
        if not path or not Path(path).is_file():
            got = f"{path or 'not set'}, no file" if path else "not set"
            remedy = f"name all of {', '.join(names)}"
            raise EngineError(message(name, got=got, wanted="a file", remedy=remedy))
        if "KEY" in name:
            refuse_readable(Path(path), name)


def refuse_readable(path: Path, name: str) -> None:
    """Refuse a file with a secret that users other than its owner can read. Raises: EngineError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        raise EngineError(
            message(f"{name}: {path}", got=f"readable by others ({mode:o})", wanted="600", remedy=f"chmod 600 {path}")
        )


def refuse_network(what: str, hosts: Iterable[str]) -> None:
    """Refuse an unauthenticated, unencrypted transport to hosts other than this machine. Raises: EngineError.

    >>> refuse_network("gloo", ["127.0.0.1"])
    >>> refuse_network("gloo", ["127.0.0.1", "10.0.0.2"])
    Traceback (most recent call last):
    purestep.runtime.effects.cluster.interface.EngineError: gloo is not encrypted and goes to 10.0.0.2, wanted a network that \
is trusted; --trust-network, where it is your own
    """
    for host in hosts:
        if not is_loopback(host):
            got, remedy = f"not encrypted and goes to {host}", f"{TRUST}, where it is your own"
            raise EngineError(message(what, got=got, wanted="a network that is trusted", remedy=remedy))

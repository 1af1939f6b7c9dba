"""Waits for a server that is still starting."""

import time

from .chat_client import Server, ServerError, refused
from .vllm import probed

PAUSE = 2.0  # seconds between two tries


def wait_for(server: Server, *, seconds: float = 600.0) -> None:
    """Returns once the server answers. Raises: ServerError with what it said last, when it has not after so long."""
    begin = time.monotonic()
    while True:
        try:
            probed(server, (0, 0))
            return
        except ServerError as silent:
            if time.monotonic() - begin > seconds:
                got, remedy = f"silent for {seconds:.0f} s", f"look at the server; it says: {silent}"
                raise refused(server.url, "server", got=got, wanted="an answer", remedy=remedy) from silent
        time.sleep(PAUSE)

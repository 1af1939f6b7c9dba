"""A cluster of Ray as `ray start` makes it, for benchmarks: a first node here, and others, also in network namespaces."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs import kill_session, listens

RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block"]
START = 120.0  # seconds in which a node must be there
STORE = 200 << 20  # bytes of an object store
WORDS = ("--disable-usage-stats", "--num-cpus=4")


@contextmanager
def first(address: str, *, store: int = STORE) -> Iterator[str]:
    """Start the first node at this address of this machine; yields HOST:PORT, which RAY_ADDRESS names in the block."""
    place = Path(tempfile.mkdtemp(prefix="r"))
    token, kept = place / "token", dict(os.environ)
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    with socket.create_server((address, 0)) as free:
        port = free.getsockname()[1]
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token), RAY_ADDRESS=f"{address}:{port}")
    words = ["--head", f"--port={port}", f"--node-ip-address={address}", "--include-dashboard=false"]
    process = started([], [*words, f"--temp-dir={place / 'ray'}"], store=store)
    try:
        until = time.monotonic() + START
        while not listens(address, port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no node of Ray at {address}:{port}")
            time.sleep(0.2)
        yield f"{address}:{port}"
    finally:
        ended(process)
        os.environ.clear()
        os.environ.update(kept)
        shutil.rmtree(place, ignore_errors=True)


def started(within: Sequence[str], words: Sequence[str], *, store: int = STORE) -> "subprocess.Popen[bytes]":
    """Run `ray start` with these words in a session of its own."""
    command = [*within, *RAY, *words, *WORDS, f"--object-store-memory={store}"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, **quiet)


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Kill a node with all that it has started."""
    kill_session(process.pid)
    process.wait()

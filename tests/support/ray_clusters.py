"""Nodes of Ray as people start them, by `ray start`, each with all its processes in a session of its own."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from attrs import frozen

from .engine_contract import path_with
from .programs import END, START, free_port, kill_session, listens, until

HERE = Path(__file__).parent
TOKEN = "0123456789abcdef" * 4
STORE = 100 << 20
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]


@frozen
class Node:
    """A node that runs."""

    process: "subprocess.Popen[bytes]"
    address: str  # of its cluster

    def kill(self) -> None:
        """All its processes, without a word."""
        kill_session(self.process.pid)


@contextmanager
def node(
    *words: str,
    within: Callable[..., list[str]] = lambda *all_: [*all_],
    store: int = STORE,
    environment: Mapping[str, str] = {},
) -> Iterator["subprocess.Popen[bytes]"]:
    """`ray start --block`, gone with all it has started in the end."""
    own = {"PYTHONPATH": path_with(HERE), "RAY_USAGE_STATS_ENABLED": "0", **environment}
    command = within(*RAY, "start", *words, "--block", f"--object-store-memory={store}", "--num-cpus=4")
    with subprocess.Popen(
        command,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END)
            kill_session(process.pid)


@contextmanager
def head(ip: str, *, environment: Mapping[str, str] = {}, store: int = STORE) -> Iterator[Node]:
    """The first node of a cluster, once it listens."""
    port, folder = free_port(), tempfile.mkdtemp(prefix="r")
    words = ("--head", f"--port={port}", f"--node-ip-address={ip}", "--include-dashboard=false", f"--temp-dir={folder}")
    try:
        with node(*words, environment=environment, store=store) as process:
            until(lambda: listens(ip, int(port)), "Ray listens", seconds=START, alive=lambda: process.poll() is None)
            yield Node(process, f"{ip}:{port}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own_address() -> str:
    """The address that Ray takes for that of this machine."""
    with ExitStack() as stack:
        probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])

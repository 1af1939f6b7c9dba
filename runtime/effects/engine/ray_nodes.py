"""A node of Ray on this machine alone, held by a process of ours and gone with it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ..child_program import gone, session
from . import ray_node
from .nodes import begun, ended
from .ray_folders import made

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
    bury: Callable[
        [int], object
    ]  # (process): it is gone, with its group, when this comes back; it has been told to end
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
    try:
        said, child = begun(
            ray_node.keep,
            (common | own, True),
            what="a node of Ray",
            timeout=timeout,
            environment=environment(token),
            pass_fds=(hold,),  # which alone holds the folder from now on
            stderr=subprocess.DEVNULL,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(hold)

    def end() -> None:
        ended(child, LEAVE)
        shutil.rmtree(folder, ignore_errors=True)

    return Node(
        gcs=said["gcs"],
        number=said["node"],
        ip=said["ip"],
        folder=folder,
        running=lambda: not child.process.ended(),
        bury=lambda pid: gone(lambda: session(child.process.pid, pid)),
        end=end,
    )


def environment(token: str) -> dict[str, str]:
    """What Ray's processes read at their start, and who speaks to them; nothing of ours without a token."""
    return {} if not token else {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}

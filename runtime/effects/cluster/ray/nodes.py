"""A node of Ray on this machine alone, in a child that ends with this process."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ...workers.program import gone, session
from ..nodes import end_child, start_child
from . import node
from .folders import new_locked_folder

STORE = 80 << 20  # bytes of the object store without weights, near the least that Ray takes
LOOPBACK = "127.0.0.1"
LEAVE = 10.0  # seconds that Ray has to end by itself
QUICK: Mapping[str, Any] = {
    "prestart_worker_first_driver": False,
    "process_group_cleanup_enabled": True,  # processes that a member has started end with it
    "enable_metrics_collection": False,
    "health_check_initial_delay_ms": 2000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1500,
    # an unreachable node is lost after about 20 s, but not one that a busy machine or a bad line keeps from answering;
    # other checks notice a lost host earlier
    "health_check_failure_threshold": 10,
}


@frozen
class RayNode:
    """A running node."""

    gcs: str  # the address of its cluster
    number: str  # its id in the cluster
    ip: str  # its address
    folder: str  # of its sockets and logs
    running: Callable[[], bool]
    bury: Callable[
        [int], object
    ]  # (process): kills it, which was ordered to end, with its group; returns once they are gone
    end: Callable[[], None]  # ends it with all that it has started; a second call does nothing


def head(token: str, store: int = 0, *, timeout: float) -> RayNode:
    """Start the only node of a cluster of this machine alone, which requires the token.

    Its object store has `store` bytes besides those that Ray needs. Raises: EngineError with Ray's message.
    """
    own = {"include_dashboard": False, "no_monitor": True, "_system_config": dict(QUICK)}
    return _started(own | {"object_store_memory": STORE + store, "node_ip_address": LOOPBACK}, token, timeout)


def _started(own: dict[str, Any], token: str, timeout: float) -> RayNode:
    folder, hold = new_locked_folder()
    common = {
        "num_cpus": max(1, os.cpu_count() or 1),  # so many processes are started at a time
        "temp_dir": folder,
        "include_log_monitor": False,
        "dashboard_agent_listen_port": 0,
    }
    try:
        said, child = start_child(
            node.keep_node,
            (common | own, True),
            what="a node of Ray",
            timeout=timeout,
            environment=ray_variables(token),
            pass_fds=(hold,),  # the child alone holds the folder's lock from now on
            stderr=subprocess.DEVNULL,
        )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(hold)

    def end() -> None:
        end_child(child, LEAVE)
        shutil.rmtree(folder, ignore_errors=True)

    return RayNode(
        gcs=said["gcs"],
        number=said["node"],
        ip=said["ip"],
        folder=folder,
        running=lambda: not child.process.ended(),
        bury=lambda pid: gone(lambda: session(child.process.pid, pid)),
        end=end,
    )


def ray_variables(token: str) -> dict[str, str]:
    """Return the environment variables for Ray's processes and those that connect to them; none without a token."""
    return {} if not token else {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}

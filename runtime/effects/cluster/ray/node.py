"""The body of a process beside a cluster that keeps a node of Ray, that is, Ray's own processes, until it is stopped.

Ray's command for this starts four more processes, which are not needed here, and leaves its processes behind when it is
killed.
"""

import importlib
import shutil
from contextlib import suppress
from typing import Any

LOOK = 0.5  # seconds between two checks of Ray's processes


def keep_node(mailbox: Any, parameters: dict[str, Any], head: bool) -> None:
    """Start a node with these parameters, send its address, and end it when it is stopped or one of its processes ends."""
    given = importlib.import_module("ray._private.parameter").RayParams(**parameters)
    start = importlib.import_module("ray._private.node").Node
    node = start(given, head=head, shutdown_at_exit=True, spawn_reaper=True)
    mailbox.note({"gcs": node.gcs_address, "node": node.node_id, "ip": node.node_ip_address})
    with suppress(EOFError):
        while not node.dead_processes():
            mailbox.receive(LOOK)
    node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
    shutil.rmtree(parameters["temp_dir"], ignore_errors=True)

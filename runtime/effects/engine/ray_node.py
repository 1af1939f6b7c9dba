"""What runs beside a cluster as a node of Ray: Ray's own processes, kept until nobody holds the other end of a pipe.

It is run by its path. One line of JSON comes in, the keyword arguments of Ray's node and whether it is the head; one goes out,
{"gcs": address of the cluster, "node": number of the node, "ip": its address} or {"why": ...}. It ends, and all that Ray has
started with it, when its standard input ends or one of Ray's processes has. Ray's command for this starts four more processes,
which serve nobody here, and leaves what it has started behind when it is killed.
"""

import importlib
import json
import os
import select
import shutil
import sys
from typing import Any

LOOK = 0.5  # seconds between two looks at Ray's processes


def started(order: dict[str, Any]) -> Any:
    """Ray's node, running."""
    parameters = importlib.import_module("ray._private.parameter").RayParams(**order["parameters"])
    node = importlib.import_module("ray._private.node").Node
    return node(parameters, head=order["head"], shutdown_at_exit=True, spawn_reaper=True)


def keep(node: Any) -> None:
    """Waits until it is not wanted any more, or a part of it is gone; then ends it."""
    while not node.dead_processes():
        if select.select([sys.stdin], [], [], LOOK)[0] and not os.read(0, 1):
            break
    node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)


def main() -> None:
    """Starts a node, says which, and keeps it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    order = json.loads(sys.stdin.readline())
    try:
        node = started(order)
        answer = {"gcs": node.gcs_address, "node": node.node_id, "ip": node.node_ip_address}
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        print(json.dumps({"why": f"{type(error).__name__}: {said}"}), file=answers, flush=True)
        raise SystemExit(1) from error
    print(json.dumps(answer), file=answers, flush=True)
    keep(node)
    shutil.rmtree(order["parameters"]["temp_dir"], ignore_errors=True)


if __name__ == "__main__":
    main()

"""What a process does that has Ray to itself: opens, spawns, says which processes there are, and waits to be killed."""

import importlib
import json
import os
import signal
import time
from pathlib import Path

from engine_actors import Counter  # type: ignore[import-not-found]
from engine_contract import FOUND, descendants  # type: ignore[import-not-found]

from purestep.core.errors import PurestepError
from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Done, MemberLost


def main() -> None:
    """Prints one line of JSON when all is there."""
    terminated, environment = signal.getsignal(signal.SIGTERM), dict(os.environ)
    with open_cluster("ray") as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=60.0)
        first = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in descendants()}
        os.kill(next(pid for pid, name in first.items() if name == "gcs_server"), signal.SIGKILL)
        told = [cluster.failure(4 * FOUND) for _ in mesh.members]
        lost = [getattr(answer, "lost", False) for answer in mesh.call("add", timeout=60.0)], cluster.hosts()
    after = descendants()
    kept = signal.getsignal(signal.SIGTERM) == terminated
    changed = sorted(name for name, _ in environment.items() ^ os.environ.items())
    ray = importlib.import_module("ray")
    ray.init(address="local", num_cpus=1, include_dashboard=False, configure_logging=False)
    try:
        with open_cluster("ray"):
            refused = ""
    except PurestepError as error:
        refused = str(error)
    ray.shutdown(wait_for_processes=True)
    with open_cluster("ray") as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=60.0)
        children = [one.value for one in mesh.call("child", timeout=60.0) if isinstance(one, Done)]
        said = {
            "first": [*first.values()],
            "told": [f"{one.member} {one.why}" if isinstance(one, MemberLost) else "" for one in told],
            "lost": lost,
            "after": len(after),
            "refused": refused,
            "kept": kept,
            "changed": changed,
            "processes": sorted(descendants() | {*children}),
        }
        print(json.dumps(said), flush=True)
        time.sleep(600.0)


if __name__ == "__main__":
    main()

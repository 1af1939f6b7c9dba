"""What a process does that has Monarch to itself: uses it beside a cluster, loses a member's host, and waits to be killed."""

import importlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from engine_actors import Counter  # type: ignore[import-not-found]
from engine_contract import FOUND, descendants  # type: ignore[import-not-found]

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Done, MemberLost, Mesh

monarch: Any = importlib.import_module("monarch.actor")


def pid(self: Any) -> int:
    """The process of an actor."""
    return os.getpid()


def values(mesh: Mesh, method: str) -> list[Any]:
    """What all members give."""
    return [one.value for one in mesh.call(method, timeout=60.0) if isinstance(one, Done)]


def main() -> None:
    """Prints one line of JSON when all is there."""
    heard, environment = list[str](), dict(os.environ)
    monarch.unhandled_fault_hook = lambda failure: heard.append(str(failure.mesh_name))
    with open_cluster("monarch") as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=60.0)
        (node,) = (pid for pid in descendants() if b"host of Monarch" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(node, signal.SIGKILL)
        told = [cluster.failure(FOUND) for _ in mesh.members]
        lost = [getattr(answer, "lost", False) for answer in mesh.call("add", timeout=60.0)], cluster.hosts()
    after = descendants()
    with open_cluster("monarch") as cluster:
        actor = type("Mine", (monarch.Actor,), {"pid": monarch.endpoint(pid)})
        mine = monarch.this_host().spawn_procs(name="mine").spawn("mine", actor)
        os.kill(mine.pid.call_one().get(timeout=60.0), signal.SIGKILL)
        mesh = cluster.spawn(Counter, size=2, timeout=60.0)
        until = time.monotonic() + FOUND
        while not any(name.startswith("mine-") for name in heard) and time.monotonic() < until:
            time.sleep(0.02)
        said = {
            "told": [f"{one.member} {one.why}" if isinstance(one, MemberLost) else "" for one in told],
            "lost": lost,
            "after": len(after),
            "heard": sorted(name.partition("-")[0] for name in heard),
            "changed": sorted(name for name, _ in environment.items() ^ os.environ.items()),
            "processes": sorted(descendants() | {*values(mesh, "child")}),
        }
        print(json.dumps(said), flush=True)
        time.sleep(600.0)


if __name__ == "__main__":
    main()

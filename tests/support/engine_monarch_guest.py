"""A run on a host of Monarch that others use, too: spawns, prints which processes there are, and waits to be killed."""

import sys
import time

from engine_actors import Counter  # type: ignore[import-not-found]

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.cluster.interface import Done

if __name__ == "__main__":
    with open_cluster("monarch", hosts=(sys.argv[1],)) as cluster:
        mesh = cluster.spawn(Counter, size=2, timeout=60.0)
        answers = (*mesh.call("pid", timeout=60.0), *mesh.call("child", timeout=60.0))
        print(*[one.value for one in answers if isinstance(one, Done)], flush=True)
        time.sleep(600.0)

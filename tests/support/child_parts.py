"""Bodies, actors and tools of test_child_process, and a program with one kind of children: child_parts.py KIND FOLDER.

What is started writes its number as a file of the folder.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from purestep.runtime.effects.cluster import open_cluster
from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.tools.calls import in_processes
from purestep.runtime.effects.workers.pool import WorkerMessage, working


def start_in_a_group_of_its_own(folder: str = "") -> int:
    """Start a process that a signal to this one's group does not reach; its number also becomes a file of the folder."""
    pid = subprocess.Popen(["sleep", "600"], process_group=0).pid
    if folder:
        Path(folder, str(pid)).touch()
    return pid


def idle(mailbox: Any, folder: str = "") -> None:
    """Start a process and wait for work."""
    mailbox.note((os.getpid(), start_in_a_group_of_its_own(folder)))
    while True:
        mailbox.receive(60.0)


def hang(folder: str) -> None:
    """Start a process and wait for ever."""
    start_in_a_group_of_its_own(folder)
    Path(folder, str(os.getpid())).touch()
    time.sleep(600.0)


class Actor:
    """A member of a cluster that hangs in a call."""

    def hang(self, folder: str) -> None:
        """See `hang`."""
        hang(folder)


def tools(folder: str) -> None:
    with in_processes(1) as perform:
        perform(hang, (folder,), 600.0)


def workers(folder: str) -> None:
    with working(idle, (folder,), size=1, patience=600.0) as workers:
        while True:
            report = workers.receive(1.0)
            if isinstance(report, WorkerMessage):
                Path(folder, str(report.payload[0])).touch()


def members(folder: str) -> None:
    with open_cluster("processes") as cluster:
        cluster.spawn(Actor, size=1, timeout=60.0).call("hang", (folder,), timeout=600.0)


def server(folder: str) -> None:
    script = Path(folder).with_suffix(".sh")
    script.write_text(f"#!/bin/sh\ntouch {folder}/$$\nsleep 600 &\ntouch {folder}/$!\nwait\n")
    script.chmod(0o755)
    with running(script, Path(folder), name="policy", log=script.with_suffix(".log")):
        pass


if __name__ == "__main__":
    import child_parts  # type: ignore[import-not-found]  # children do not find what is of __main__

    getattr(child_parts, sys.argv[1])(sys.argv[2])

"""Processes on hosts in namespaces, forked from one that has imported everything once; `forks` starts that one.

python tests/support/forked_hosts.py MODULE           one JSON object a line: a child to fork, or the number of one to look at
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen


@frozen
class Forks:
    """The process that forks others."""

    process: "subprocess.Popen[str]"

    def _asked(self, words: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, told: Path, *words: object, space: str = "", **environment: object) -> int:
        """A child that runs the module's `main(words)` on a host; its number. Its standard error goes to a file."""
        given = {name: str(value) for name, value in environment.items()}
        number: int = self._asked(
            {"told": str(told), "words": [str(word) for word in words], "space": space, "environment": given}
        )
        return number

    def code(self, child: int, seconds: float = 90.0) -> int:
        """The exit code of a child, which has to end."""
        end = time.monotonic() + seconds
        while (found := self._asked(child)) == "":
            assert time.monotonic() < end, "it does not end"
            time.sleep(0.05)
        assert isinstance(found, int)
        return found


@contextmanager
def forks(module: str) -> Iterator[Forks]:
    """The process that forks, for a block, at whose end its children are ended."""
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns of hosts that have addresses and no names
    environment = {**os.environ, **quiet, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = [sys.executable, "-W", "error", __file__, module]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(words, **pipes) as process:
        yield Forks(process)
        assert process.stdin is not None
        process.stdin.close()


def _child(given: dict[str, Any]) -> list[str]:
    """Becomes what was asked for."""
    if given["space"]:
        libc = importlib.import_module("ctypes").CDLL(None, use_errno=True)
        there = os.open(f"/run/netns/{given['space']}", os.O_RDONLY)
        assert libc.setns(there, 0x40000000) == 0
        os.close(there)
    os.environ.update(given["environment"])
    null, told = os.open(os.devnull, os.O_RDWR), os.open(given["told"], os.O_WRONLY | os.O_CREAT)
    for target, source in ((0, null), (1, null), (2, told)):
        os.dup2(source, target)
    return [str(word) for word in given["words"]]


def _serve() -> list[str]:
    """Forks and looks until the end; in a child, what it is to do."""
    alive, codes = set[int](), dict[int, int]()
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, dict):
            child = os.fork()
            if not child:
                return _child(asked)
            alive.add(child)
            print(child, flush=True)
            continue
        if asked in alive:
            found, status = os.waitpid(asked, os.WNOHANG)
            if found:
                alive.remove(asked)
                codes[asked] = os.waitstatus_to_exitcode(status)
        print(json.dumps(codes.get(asked, "")), flush=True)
    for child in alive:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return []


if __name__ == "__main__":
    program: Any = importlib.import_module(sys.argv[1])
    gc.freeze()  # children need not look at what was imported when they end
    if todo := _serve():
        sys.exit(program.main(todo))
    os._exit(0)  # to take a large library apart takes long, and nothing is left to be written

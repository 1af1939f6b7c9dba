"""Processes forked from one that has imported everything once: ranks, and hosts in namespaces.

A process that starts anew spends five seconds on imports; one that is forked from `forks` or `fork_server` spends none. What a
program does before and while it imports is tested with processes that start anew.

python tests/support/forks.py MODULE...           one JSON object a line: a child to fork, or the number of one to look at
"""

import atexit
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns of hosts that have addresses and no names
USUAL = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
COMMANDS = "purestep.runtime.cli.main"
BESIDE = (  # that the commands import once they know what to do
    *("runtime.text.run", "runtime.async_rl.report", "runtime.effects.distributed.learner"),
    *("runtime.effects.hugging_face.causal_lm", "runtime.text.distributed_learner", "runtime.recipes.zorplex"),
)


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

    def start(
        self,
        told: Path,
        *words: object,
        module: str,
        environment: Mapping[str, object],
        space: str = "",
        strict: bool = True,
    ) -> int:
        """A child that runs `module.main(words)` in a session of its own; its number. What it says goes to the file `told`.

        `space` is the namespace of its host. With `strict`, warnings are errors, and its output is thrown away.
        """
        given = {
            **os.environ,
            **USUAL,
            **(QUIET if space else {}),
            **{name: str(value) for name, value in environment.items()},
        }
        number: int = self._asked(
            {
                **{"told": str(told), "module": module, "words": [str(word) for word in words], "space": space},
                **{"strict": strict, "environment": given, "folder": str(Path.cwd())},
            }
        )
        return number

    def ended(self, child: int) -> int | None:
        """The exit code of a child, if it has ended."""
        found = self._asked(child)
        assert found == "" or isinstance(found, int)
        return None if found == "" else found

    def code(self, child: int, seconds: float = 90.0) -> int:
        """The exit code of a child, which has to end."""
        end = time.monotonic() + seconds
        while (found := self.ended(child)) is None:
            assert time.monotonic() < end, "it does not end"
            time.sleep(0.02)
        return found


def _started(*modules: str, **environment: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-W", "error", __file__, *modules]
    pipes: Any = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "env": {**os.environ, **USUAL, **environment},
    }
    return subprocess.Popen(words, **pipes)


@contextmanager
def forks(*modules: str) -> Iterator[Forks]:
    """The process that forks, for a block, at whose end its children are ended."""
    with _started(*modules, **QUIET) as process:
        yield Forks(process)
        assert process.stdin is not None
        process.stdin.close()


@functools.cache
def fork_server() -> Forks:
    """The process that forks ranks, until the tests end."""
    process = _started(COMMANDS, *(f"purestep.{name}" for name in BESIDE))
    atexit.register(process.communicate)
    return Forks(process)


def _child(given: dict[str, Any]) -> dict[str, Any]:
    """Becomes what was asked for."""
    if given["space"]:
        libc = importlib.import_module("ctypes").CDLL(None, use_errno=True)
        there = os.open(f"/run/netns/{given['space']}", os.O_RDONLY)
        assert libc.setns(there, 0x40000000) == 0
        os.close(there)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    if not given["strict"]:
        warnings.resetwarnings()
    null, told = os.open(os.devnull, os.O_RDWR), os.open(given["told"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for target, source in ((0, null), (1, null if given["strict"] else told), (2, told)):
        os.dup2(source, target)
    return given


def _serve() -> dict[str, Any]:
    """Forks and looks until the end; in a child, what it is to do."""
    alive, codes = set[int](), dict[int, int]()
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, dict):
            child = os.fork()
            if not child:
                os.setsid()
                return _child(asked)
            alive.add(child)
            while os.getsid(child) != child:
                time.sleep(0.0005)
            print(child, flush=True)
            continue
        if asked in alive:
            found, status = os.waitpid(asked, os.WNOHANG)
            if found:
                alive.remove(asked)
                codes[asked] = os.waitstatus_to_exitcode(status)
        print(json.dumps(codes.get(asked, "")), flush=True)
    for child in alive:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return {}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # children need not look at what was imported when they end
    if todo := _serve():
        program: Any = importlib.import_module(todo["module"])
        sys.argv = ["purestep", *todo["words"]]
        sys.exit(program.main(todo["words"]))
    os._exit(0)  # to take a large library apart takes long, and nothing is left to be written

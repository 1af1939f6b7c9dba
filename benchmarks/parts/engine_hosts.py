"""Hosts for `engine_zorplex`: `purestep host` or `ray start` in network namespaces, with addresses and memory of their own.

Where namespaces are not allowed they are processes of this machine at distinct addresses, which see its shared memory; nodes of
Ray need namespaces.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from attrs import define, field

from . import ray_nodes
from .async_outside import PROCESSES, PURESTEP, alive

PORT = 7000
START = 60.0  # seconds in which a host has to listen
DEAD = 10.0  # seconds in which what was killed or is over has to be gone
PRIVATE = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'  # `ip netns exec` has given it mounts of its own


@define
class Host:
    """A host: where it is, and its process while it is there."""

    engine: str
    address: str  # as --hosts names it
    space: str  # its namespace; "" for none
    log: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)
    alone: set[int] = field(factory=set, init=False)  # what runs here before a run uses it
    known: set[int] = field(factory=set, init=False)  # without a namespace: what has been seen to run here

    def start(self) -> None:
        """Starts `purestep host`, and waits until it listens; a node of Ray is waited for by the run. Raises: RuntimeError."""
        inside = ["ip", "netns", "exec", self.space, "sh", "-c", PRIVATE, "sh"] if self.space else []
        if self.engine == "ray":
            there = ["--address", os.environ["RAY_ADDRESS"], "--node-name", self.address]
            self.process = ray_nodes.started(inside, [*there, "--node-ip-address", self.address])
            return
        program = [str(PURESTEP), "host", "--listen", self.address]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*inside, *program], stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        until = time.perf_counter() + START
        while not (self.process.stdout.read() or b"").strip():
            if self.process.poll() is not None or time.perf_counter() > until:
                self.close()
                raise RuntimeError(f"no host at {self.address}: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)
        self.alone = self.running()

    def kill(self) -> int:
        """Kills all that runs on the host, as where its machine is gone; gives how many processes that were."""
        killed = killed_of(self.running)
        self.close()
        return len(killed)

    def running(self) -> set[int]:
        """The processes on the host."""
        if self.space:
            return running_in(self.space)
        if self.process is not None:
            self.known |= {self.process.pid, *started_by(self.process.pid)}
        return {pid for pid in self.known if alive(pid)}

    def left(self) -> int:
        """Return the number of processes on the host beside its own, some time after its last run; those of Ray stay there."""
        if self.engine == "ray":
            return sum(b"purestep" in (PROCESSES / str(pid) / "cmdline").read_bytes() for pid in self.running())
        own = {self.process.pid, *self.alone} if self.process is not None else set[int]()
        until = time.perf_counter() + DEAD
        while (others := self.running() - own) and time.perf_counter() < until:
            time.sleep(0.05)
        return len(others)

    def close(self) -> None:
        """Ends its process where it is there."""
        if self.process is not None and self.process.stdout is None:
            ray_nodes.ended(self.process)
            self.process = None
        if self.process is not None and self.process.stdout is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(DEAD)
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None


def running_in(space: str) -> set[int]:
    """The processes in a namespace."""
    told = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=True)
    return {int(word) for word in told.stdout.split()}


def killed_of(running: Callable[[], set[int]]) -> set[int]:
    """Kills what runs until nothing does any more, or for a while; gives what was killed."""
    killed, until = set[int](), time.perf_counter() + DEAD
    while (there := running()) and time.perf_counter() < until:
        for pid in there:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= there
        time.sleep(0.05)
    return killed


def started_by(pid: int) -> set[int]:
    """The processes that a process has started, and that these have."""
    found = set[int]()
    for told in (PROCESSES / str(pid) / "task").glob("*/children"):
        with suppress(OSError):
            own = {int(word) for word in told.read_text().split()}
            found |= own.union(*map(started_by, own))
    return found


@contextmanager
def hosts(engine: str, count: int, folder: Path) -> Iterator[list[Host]]:
    """So many hosts that listen, for a block."""
    with namespaces(count) as places, ExitStack() as stack:
        if engine == "ray":
            stack.enter_context(ray_nodes.first(f"{places[0][0].rpartition('.')[0]}.1"))
        made = [
            Host(engine, address if engine == "ray" else f"{address}:{PORT}", space, folder / f"host-{number}.log")
            for number, (address, space) in enumerate(places)
        ]
        try:
            for host in made:
                host.start()
            yield made
        finally:
            for host in made:
                host.kill()


@contextmanager
def namespaces(count: int) -> Iterator[list[tuple[str, str]]]:
    """(address, namespace) of so many places on one bridge; what runs there at the end is killed."""
    mark = os.getpid() % 10000
    bridge, net = f"pb{mark}", f"10.{200 + mark % 50}.{mark // 50}"
    places = [(f"{net}.{2 + number}", f"pn{mark}-{number}") for number in range(count)]
    made, bridges = list[str](), list[str]()
    try:
        try:
            _ip("link", "add", bridge, "type", "bridge")
            bridges.append(bridge)
            _ip("addr", "add", f"{net}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for address, space in places:
                _ip("netns", "add", space)
                made.append(space)
                _joined(bridge, address, space)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no network namespaces ({error}): hosts are processes at distinct addresses", flush=True)
            places = [(f"127.0.0.{2 + number}", "") for number in range(count)]
        yield places
    finally:
        for space in made:
            with suppress(subprocess.CalledProcessError):
                killed_of(partial(running_in, space))  # a namespace that has lost its name names nobody
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        for link in (*(f"{space}a" for space in made), *bridges):
            subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


def _joined(bridge: str, address: str, space: str) -> None:
    """Links a namespace to the bridge, with that address."""
    outer, inner = f"{space}a", f"{space}b"
    _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
    _ip("link", "set", inner, "netns", space)
    _ip("link", "set", outer, "master", bridge)
    _ip("link", "set", outer, "up")
    _ip("-n", space, "addr", "add", f"{address}/24", "dev", inner)
    _ip("-n", space, "link", "set", inner, "up")
    _ip("-n", space, "link", "set", "lo", "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

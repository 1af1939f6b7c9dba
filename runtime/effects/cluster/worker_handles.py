"""Workers of a pool as members of a cluster: an engine for `workers.working`, on any hosts.

    with opened("ray") as cluster, working(body, size=4, patience=30.0, engine=on(cluster)) as workers: ...

Each worker is a mesh of one member. The workers of a lost host are lost with it, and restarted on the hosts that are left.
"""

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

from attrs import frozen

from ....core.errors import PurestepError, message
from ..workers.pool import Body, Engine, Inbox, WorkerHandle, WorkersError
from ..workers.process import DIED, read_letter, task_message
from ..workers.program import ANSWER, NOTE, READY, STOP, describe_exception
from . import worker_rules
from .device_assignment import Device, DeviceAssignment
from .interface import LATE, Cluster, EngineError, Mesh, Unanswered
from .worker_actor import Post

POLL = 0.5  # seconds that an exchange waits for a message of the worker
PACES = (0.01, 0.1)  # seconds between two exchanges with an idle worker: at first, and at most
SLACK = 10.0  # seconds more that an exchange may take
GOES_ON = (READY, NOTE, ANSWER)  # words after which more messages may come
KILL = 10.0  # seconds in which a member must be gone
WAIT = 1.0  # seconds that `end` waits for that
LOOK = 0.1  # seconds between two looks for a host


@frozen
class _Site:
    """The cluster, hosts and devices that workers can use."""

    cluster: Cluster
    named: tuple[str, ...]
    start: float
    book: DeviceAssignment

    def there(self) -> list[str]:
        """Return the hosts that are available now."""
        return [host for host in self.cluster.hosts() if not self.named or host in self.named]


def _alike(arguments: tuple[Any, ...], device: str) -> tuple[Any, ...]:
    """Return the same arguments for any device."""
    return arguments


def on(
    cluster: Cluster,
    *,
    hosts: tuple[str, ...] = (),
    start: float = 60.0,
    devices: tuple[str, ...] = ("",),
    fitted: Callable[[tuple[Any, ...], str], tuple[Any, ...]] = _alike,
) -> Engine:
    """Return an engine with workers on the cluster's hosts, or on `hosts`; worker i is on host i modulo the available hosts.

    `devices` are assigned likewise: a body gets `fitted(arguments, device)`. A replacement gets the host and device of the
    worker that it replaces or, if that host is gone, those that are used least (`device_assignment`).

    A worker that has not started within `start` seconds is lost, as is one for which no host was available for so long. Bodies
    are imported by their module's name. The engine raises WorkersError for a body that cannot be sent. Raises: ChoiceError.
    """
    site = _Site(cluster, hosts, start, DeviceAssignment(devices))

    def engine(number: int, body: Body, arguments: tuple[Any, ...], inbox: Inbox) -> WorkerHandle:
        def letter(device: str) -> bytes:
            try:
                return pickle.dumps((body, fitted(arguments, device)))
            except Exception as error:
                wanted, remedy = "a function of a module and values that pickle knows", "move it to a module"
                got = f"not to be sent ({describe_exception(error)})"
                raise WorkersError(message("on: body", got=got, wanted=wanted, remedy=remedy)) from error

        letter(devices[0])
        worker = _Worker(site, number, letter, inbox)
        worker.thread.start()
        return WorkerHandle(
            packed=task_message,
            send=worker.put,
            stop=lambda: worker.put(pickle.dumps((STOP,))),
            end=worker.end,
            joined=worker.gone.wait,
        )

    return engine


class _Worker:
    """This side of a worker, and the thread that exchanges messages with it."""

    def __init__(self, site: _Site, number: int, letter: Callable[[str], bytes], inbox: Inbox) -> None:
        self.site, self.number, self.letter, self.inbox = site, number, letter, inbox
        self.spot = site.book.take(
            self, site.there()
        )  # here and not in the thread, so that workers that start together are assigned in order
        self.changed = threading.Condition()
        self.box = worker_rules.Endpoint()
        self.mesh: Mesh | None = None
        self.ending, self.gone = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"purestep-hand-{number}", daemon=True)

    def put(self, letter: bytes) -> None:
        """Queue a message for sending."""
        with self.changed:
            self.box = worker_rules.put_letter(self.box, letter)
            self.changed.notify_all()

    def end(self) -> None:
        """End the member, and wait up to `WAIT` seconds for that."""
        with self.changed:
            self.ending.set()
            self.changed.notify_all()
            mesh = self.mesh
        self.site.book.leave(self)
        if mesh is not None and not self.gone.is_set():
            threading.Thread(target=self.kill, args=(mesh,), name="purestep-end", daemon=True).start()
        self.gone.wait(WAIT)

    def kill(self, mesh: Mesh) -> None:
        """Kill the member. `joined` returns False if it is still running afterwards."""
        try:
            mesh.stop(timeout=KILL)
        except EngineError:
            return
        self.gone.set()

    def run(self) -> None:
        """Start the worker, exchange messages until it ends, and report its end to the worker pool."""
        try:
            mesh = self.begun()
        except PurestepError as error:
            self.gone.set()
            self.inbox.put((self.number, DIED, " ".join(str(error).split())))
            return
        finally:
            if self.ending.is_set():  # it may have been assigned a new spot after `end` released its spot
                self.site.book.leave(self)
        with self.changed:
            self.mesh = mesh
        try:
            why = self.served(mesh)
        except PurestepError as error:
            why = " ".join(str(error).split())
        self.kill(mesh)
        if why:
            self.inbox.put((self.number, DIED, why))

    def begun(self) -> Mesh:
        """Return the worker's mesh, on its assigned host and device; wait if no host is available."""
        until = time.monotonic() + self.site.start
        while not (spot := self.placed()):
            if self.ending.wait(LOOK) or time.monotonic() > until:
                got, remedy = f"none for {self.site.start:.1f} s", "add one"
                raise EngineError(message("on: hosts", got=got, wanted="at least 1", remedy=remedy))
        letter = self.letter(spot.device)
        return self.site.cluster.spawn(Post, (letter,), size=1, hosts=(spot.host,), timeout=self.site.start)

    def placed(self) -> Device | tuple[()]:
        """Return the worker's spot, or a new one if its host is gone; () if no host is available."""
        there = self.site.there()
        if not self.spot or self.spot.host not in there:
            self.spot = self.site.book.take(self, there)
        return self.spot

    def served(self, mesh: Mesh) -> str:
        """Exchange messages until the worker ends; return why it did, or "" if it has reported that itself or was ended."""
        pace = PACES[0]
        while not self.ending.is_set():
            answer = mesh.call("exchange", (worker_rules.parcel(self.box), POLL), timeout=POLL + SLACK)[0]
            if isinstance(answer, Unanswered):
                if answer.lost or not answer.why.startswith(LATE):
                    return answer.why
                continue
            come, hungry = answer.value
            with self.changed:
                self.box, new = worker_rules.open_parcel(self.box, come)
            for letter in new:
                words = read_letter(letter)
                self.inbox.put((self.number, *words))
                if words[0] not in GOES_ON:
                    return ""
            pace = PACES[0] if new else min(PACES[1], 2.0 * pace)
            with self.changed:
                if hungry and not new and not self.box.kept and not self.ending.is_set():
                    self.changed.wait(pace)
        return ""

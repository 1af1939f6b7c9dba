"""Members on one node of Ray, each an actor of its own: started, called, heard and ended.

Ray is never asked to start one again: who is told of a death decides. A death is seen by a call that never comes back, which
Ray ends a few hundredths of a second after the process.
What Ray tells is passed on by a thread of ours. Ray's own must never wait for us: `ray.kill` waits for it, and is called by who
has locked the ledger.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .. import processes_member
from . import ray_member
from .processes_here import ENDED, SAID, Place, Tell
from .processes_rules import Seat

PROGRAM = Path(processes_member.__file__).read_text()
OPTIONS: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"watch": 1}}
BECAUSE, DETAIL, CAUSES = (
    "The actor is dead because ",
    "Worker exit detail: ",
    " Some common causes",
)  # in what Ray says
LONGEST = 200  # letters of why a member has ended
Bury = Callable[[int, Callable[[], None]], None]  # (process, what to do once it is gone); does not wait


def on_node(ray: Any, node: str, tell: Tell, *, path: tuple[str, ...], bury: Bury) -> Place:
    """Actors on the node of that number, which look for modules in `path` first."""
    crew = _Crew(ray, node, tell, [*path], bury)
    return Place(crew.start, crew.send, crew.end, crew.close)


class _Crew:
    """The actors that are there."""

    def __init__(self, ray: Any, node: str, tell: Tell, path: list[str], bury: Bury) -> None:
        self.ray, self.tell, self.path, self.bury = ray, tell, path, bury
        ray.cloudpickle.register_pickle_by_value(ray_member)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        self.actor = ray.remote(**OPTIONS)(ray_member.Member).options(scheduling_strategy=strategy)
        self.actors: dict[Seat, Any] = {}
        self.pids: dict[Seat, int] = {}
        self.told: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what is to be done with what Ray has told
        self.closed = False
        threading.Thread(target=self.listen, name="purestep-ray-ear", daemon=True).start()

    def listen(self) -> None:
        """Passes on what Ray tells, in its order, until all is over and nobody is there."""
        while not self.closed or self.actors:
            self.told.get()()

    def then(self, future: Any, work: Callable[[Any], None]) -> None:
        """Has something done with what comes of a call, once that is known."""
        future.add_done_callback(lambda done: self.told.put(lambda: work(done)))

    def start(self, seat: Seat) -> None:
        if not self.ray.is_initialized():  # it would start another Ray by itself
            self.tell(ENDED, seat, b"Ray has ended")
            return
        actor = self.actors[seat] = self.actor.remote(self.path, PROGRAM)
        self.then(actor.pid.remote().future(), lambda future: self._began(seat, future))
        watch = actor.watch.options(concurrency_group="watch").remote()
        self.then(watch.future(), lambda future: self._ended(seat, future))

    def _began(self, seat: Seat, future: Any) -> None:
        if not future.exception():
            self.pids[seat] = future.result()

    def send(self, seat: Seat, letter: bytes) -> None:
        actor = self.actors.get(seat)
        if actor is not None:
            self.then(actor.perform.remote(letter).future(), lambda future: self._said(seat, letter, future))

    def _said(self, seat: Seat, letter: bytes, future: Any) -> None:
        error = future.exception()
        if error is None:
            self.tell(SAID, seat, future.result())
        elif not isinstance(error, self.ray.exceptions.RayActorError):  # one who has died is told of by `watch`
            call, _ = processes_member.HEAD.unpack_from(letter)
            self.tell(SAID, seat, processes_member.answered(call, False, processes_member.described(error)))

    def _ended(self, seat: Seat, future: Any) -> None:
        self.actors.pop(seat, None)
        pid = self.pids.pop(seat, 0)
        why = _why(future.exception()).encode()
        if pid:
            self.bury(pid, lambda: self.tell(ENDED, seat, why))
        else:
            self.tell(ENDED, seat, why)

    def end(self, seat: Seat) -> None:
        actor = self.actors.get(seat)
        if actor is not None:
            self.ray.kill(actor)

    def close(self) -> None:
        for seat in [*self.actors]:
            self.end(seat)
        self.closed = True
        self.told.put(lambda: None)


def _why(error: BaseException | None) -> str:
    """What Ray says of a death, in one line.

    >>> _why(RuntimeError("It died.\\n\\tpid: 3\\nThe actor is dead because it was killed by `ray.kill`."))
    'its process ended (it was killed by `ray.kill`)'
    """
    lines = str(error).splitlines() or ["no reason is known"]
    told = [line for line in lines if BECAUSE in line] or lines
    first = told[0].rpartition(BECAUSE)[2].rpartition(DETAIL)[2].partition(CAUSES)[0]
    return f"its process ended ({first.rstrip('.')[:LONGEST]})"

"""Members on one node of Ray, each an actor of its own: starting, calls, answers and end.

Ray never restarts an actor: the cluster that is notified of a death decides. A death is detected by a call that never
returns, which Ray fails a few hundredths of a second after the process has ended.
Ray's notifications are passed on by a thread of ours. Ray's own threads must never wait for us: `ray.kill` waits for them, and
is called while the ledger is locked.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..local import member_program
from ..local.members import ENDED, SAID, HostAccess, Tell
from ..local.rules import Seat
from . import member

PROGRAM = Path(member_program.__file__).read_text()
OPTIONS: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"watch": 1}}
BECAUSE, DETAIL, CAUSES = (
    "The actor is dead because ",
    "Worker exit detail: ",
    " Some common causes",
)  # in Ray's messages
LONGEST = 200  # characters of the reason why a member has ended
Bury = Callable[[int, Callable[[], None]], None]  # (process, what to do once it is gone); does not wait


def on_node(ray: Any, node: str, tell: Tell, *, path: tuple[str, ...], bury: Bury) -> HostAccess:
    """Return the place for actors on the node with that id, which look for modules in `path` first."""
    members = _RayMembers(ray, node, tell, [*path], bury)
    return HostAccess(members.start, members.send, members.end, members.close)


class _RayMembers:
    """The running actors on one node."""

    def __init__(self, ray: Any, node: str, tell: Tell, path: list[str], bury: Bury) -> None:
        self.ray, self.tell, self.path, self.bury = ray, tell, path, bury
        ray.cloudpickle.register_pickle_by_value(member)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        self.actor = ray.remote(**OPTIONS)(member.Member).options(scheduling_strategy=strategy)
        self.actors: dict[Seat, Any] = {}
        self.pids: dict[Seat, int] = {}
        self.told: SimpleQueue[Callable[[], None]] = SimpleQueue()  # callbacks for Ray's notifications, in order
        self.closed = False
        threading.Thread(target=self.listen, name="purestep-ray-ear", daemon=True).start()

    def listen(self) -> None:
        """Run the callbacks in their order, until this is closed and no actor is left."""
        while not self.closed or self.actors:
            self.told.get()()

    def then(self, future: Any, work: Callable[[Any], None]) -> None:
        """Queue `work(future)` once a call has its result."""
        future.add_done_callback(lambda done: self.told.put(lambda: work(done)))

    def start(self, seat: Seat) -> None:
        if not self.ray.is_initialized():  # else Ray would start another cluster by itself
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
        elif not isinstance(error, self.ray.exceptions.RayActorError):  # deaths are reported by `watch`
            call, _ = member_program.HEAD.unpack_from(letter)
            self.tell(SAID, seat, member_program.answer_message(call, False, member_program.describe_failure(error)))

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
    """Return Ray's reason for a death, in one line.

    >>> _why(RuntimeError("It died.\\n\\tpid: 3\\nThe actor is dead because it was killed by `ray.kill`."))
    'its process ended (it was killed by `ray.kill`)'
    """
    lines = str(error).splitlines() or ["no reason is known"]
    told = [line for line in lines if BECAUSE in line] or lines
    first = told[0].rpartition(BECAUSE)[2].rpartition(DETAIL)[2].partition(CAUSES)[0]
    return f"its process ended ({first.rstrip('.')[:LONGEST]})"

"""Supervision of workers as a pure state machine: their tasks, time-outs and replacements.

`supervisor_step(state, event) -> (state, actions)`. A task that was assigned to a worker is answered once or handed back once.
Events carry the time.
"""

from attrs import evolve, frozen

from ....core.errors import ChoiceError, message

HUNG, GARBAGE, LATE = "hung", "garbage", "gone before it was sent"  # in addition to an engine's reasons for an end
PAUSE, LONGEST = 0.1, 30.0  # seconds before the second replacement in a row, and at most before a later one


@frozen
class WorkerState:
    """One worker: time of its last message or of becoming busy, whether it has started, and its tasks."""

    number: int
    since: float
    ready: bool = False
    tasks: tuple[int, ...] = ()


@frozen(kw_only=True)
class PoolState:
    """State of the worker pool: always `size` workers or pending starts, until it gives up."""

    size: int
    patience: float  # seconds that a worker with work may be silent
    start: float  # seconds that it may take to start
    tries: int  # consecutive losses, with no answer between, after which no worker is replaced
    workers: tuple[WorkerState, ...] = ()
    due: tuple[float, ...] = ()  # when replacements start
    next: int = 0  # the number of the next worker; numbers are never used again
    failures: int = 0  # workers lost since the last answer


@frozen
class SupervisorClock:
    """Event: the current time."""

    now: float


@frozen
class WorkerReady:
    """Event: a worker has started."""

    worker: int
    now: float


@frozen
class TaskSent:
    """Event: a worker is assigned a task."""

    worker: int
    task: int
    now: float


@frozen
class MessageReceived:
    """Event: a worker has sent a message that finishes no task."""

    worker: int
    now: float


@frozen
class TaskAnswered:
    """Event: a worker has answered a task."""

    worker: int
    task: int
    now: float


@frozen
class WorkerEnded:
    """Event: a worker has ended, or is unusable."""

    worker: int
    why: str
    now: float


@frozen
class StartWorker:
    """Action: start this worker."""

    worker: int


@frozen
class KillWorker:
    """Action: kill this worker, if it still runs."""

    worker: int


@frozen
class Deliver:
    """Action: deliver the answer, which counts."""

    worker: int
    task: int


@frozen
class ReportLost:
    """Action: report that a worker was lost, or a task never reached it; the tasks are to be assigned again."""

    worker: int
    why: str
    tasks: tuple[int, ...]


@frozen
class PoolExhausted:
    """Action: report that workers are no longer replaced."""

    why: str


Event = SupervisorClock | WorkerReady | TaskSent | MessageReceived | TaskAnswered | WorkerEnded
Action = StartWorker | KillWorker | Deliver | ReportLost | PoolExhausted


def pool_state(
    size: int,
    *,
    patience: float,
    start: float = 60.0,
    tries: int = 5,
    now: float = 0.0,
) -> PoolState:
    """Return a worker pool of which all workers are to be started. Raises: ChoiceError.

    >>> pool_state(2, patience=5.0).due
    (0.0, 0.0)
    """
    least = {"size": size, "patience": patience, "start": start, "tries": tries}
    for name, value in least.items():
        if not value > 0:
            raise ChoiceError(message(f"workers: {name}", got=value, wanted="more than 0", remedy="let somebody work"))
    return PoolState(size=size, patience=patience, start=start, tries=tries, due=(now,) * size)


def supervisor_step(state: PoolState, event: Event) -> tuple[PoolState, tuple[Action, ...]]:
    """Return the next state and the actions to perform.

    Messages of a lost worker are ignored: its tasks are assigned to others. Raises: ChoiceError for a task that a worker
    has already.

    >>> state, actions = supervisor_step(pool_state(1, patience=5.0), SupervisorClock(0.0))
    >>> actions, supervisor_step(supervisor_step(state, WorkerReady(0, 1.0))[0], TaskSent(0, 7, 2.0))[0].workers
    ((StartWorker(worker=0),), (WorkerState(number=0, since=2.0, ready=True, tasks=(7,)),))
    """
    if isinstance(event, SupervisorClock):
        return _looked(state, event.now)
    worker = next((one for one in state.workers if one.number == event.worker), None)
    if isinstance(event, TaskSent):
        return _sent(state, worker, event)
    if worker is None:
        return state, ()
    if isinstance(event, WorkerEnded):
        return _lost(state, worker, event.why, event.now)
    if isinstance(event, WorkerReady):
        return _with(state, evolve(worker, ready=True, since=event.now)), ()
    if isinstance(event, MessageReceived):
        return _with(state, evolve(worker, since=event.now)), ()
    if event.task not in worker.tasks:
        return _lost(state, worker, f"{GARBAGE}: an answer to task {event.task}, which it does not have", event.now)
    rest = tuple(task for task in worker.tasks if task != event.task)
    state = evolve(_with(state, evolve(worker, tasks=rest, since=event.now)), failures=0)
    return state, (Deliver(worker.number, event.task),)


def _with(state: PoolState, changed: WorkerState) -> PoolState:
    return evolve(state, workers=tuple(changed if one.number == changed.number else one for one in state.workers))


def _sent(state: PoolState, worker: WorkerState | None, event: TaskSent) -> tuple[PoolState, tuple[Action, ...]]:
    if any(event.task in one.tasks for one in state.workers):
        remedy = "give each task a number of its own, and give it out again only when it came back"
        raise ChoiceError(message(f"workers: task {event.task}", got="with a worker", wanted="free", remedy=remedy))
    if worker is None:
        return state, (ReportLost(event.worker, LATE, (event.task,)),)
    since = event.now if worker.ready and not worker.tasks else worker.since
    return _with(state, evolve(worker, tasks=(*worker.tasks, event.task), since=since)), ()


def _lost(state: PoolState, worker: WorkerState, why: str, now: float) -> tuple[PoolState, tuple[Action, ...]]:
    failures = state.failures + 1
    over = failures >= state.tries
    state = evolve(
        state,
        workers=tuple(one for one in state.workers if one.number != worker.number),
        due=() if over else (*state.due, now + replacement_pause(failures)),
        failures=failures,
    )
    actions: tuple[Action, ...] = (KillWorker(worker.number), ReportLost(worker.number, why, worker.tasks))
    return state, (
        *actions,
        PoolExhausted(f"{failures} workers were lost in a row; the last one {why}"),
    ) if over else actions


def replacement_pause(failures: int) -> float:
    """Return the seconds before the replacement after so many consecutive losses: 0 after the first, then doubling each time.

    pause_1 = 0,   pause_n = min(30, 0.1 2^(n-2))

    >>> [replacement_pause(n) for n in (1, 2, 3, 4, 99)]
    [0.0, 0.1, 0.2, 0.4, 30.0]
    """
    return 0.0 if failures < 2 else min(LONGEST, PAUSE * 2.0 ** min(failures - 2, 60))


def deadline(state: PoolState, worker: WorkerState) -> float:
    """Return the time at which a silent worker counts as hung; infinity if it has nothing to do.

    >>> deadline(pool_state(1, patience=5.0), WorkerState(0, 1.0, True, (7,)))
    6.0
    """
    if not worker.ready:
        return worker.since + state.start
    return worker.since + state.patience if worker.tasks else float("inf")


def wakes(state: PoolState) -> float:
    """Return the next time at which a Clock event has an effect.

    >>> wakes(pool_state(1, patience=5.0, now=3.0))
    3.0
    """
    return min((*state.due, *(deadline(state, worker) for worker in state.workers)), default=float("inf"))


def _looked(state: PoolState, now: float) -> tuple[PoolState, tuple[Action, ...]]:
    actions: tuple[Action, ...] = ()
    for worker in state.workers:
        if now >= deadline(state, worker):
            doing = "with work" if worker.ready else "at its start"
            silent = f"{HUNG}: silent for {now - worker.since:.1f} s {doing}"
            state, more = _lost(state, worker, silent, now)
            actions = (*actions, *more)
    count = sum(moment <= now for moment in state.due)
    new = tuple(WorkerState(state.next + i, now) for i in range(count))
    state = evolve(
        state,
        workers=(*state.workers, *new),
        due=tuple(moment for moment in state.due if moment > now),
        next=state.next + count,
    )
    return state, (*actions, *(StartWorker(worker.number) for worker in new))

"""Laws of supervision of workers: no task is lost or done twice, hung workers are found, and lost ones are replaced.

The subject is a `step(state, event) -> (state, actions)` as in `runtime.effects.workers.supervisor`; the events are drawn.
"""

from collections.abc import Callable
from typing import Any

from attrs import Factory, evolve, frozen
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.runtime.effects.workers.supervisor import (
    Action,
    Deliver,
    Event,
    MessageReceived,
    PoolExhausted,
    PoolState,
    ReportLost,
    StartWorker,
    SupervisorClock,
    TaskAnswered,
    TaskSent,
    WorkerEnded,
    WorkerReady,
    pool_state,
    replacement_pause,
)

# --- mutants ---
# Common errors in supervisors: each an edit of a right step.


AnyStep = Callable[[PoolState, Event], Any]


def sends_to_the_gone(step: AnyStep) -> AnyStep:
    """Ignore the result of a send."""

    def careless(state: PoolState, event: Event) -> Any:
        after, actions = step(state, event)
        return after, () if isinstance(event, TaskSent) else actions

    return careless


def takes_any_answer(step: AnyStep) -> AnyStep:
    """Look a task up by its number, whichever worker the answer comes from."""

    def trusting(state: PoolState, event: Event) -> Any:
        if isinstance(event, TaskAnswered):
            owner = next((one.number for one in state.workers if event.task in one.tasks), event.worker)
            after, actions = step(state, evolve(event, worker=owner))
            named = [evolve(one, worker=event.worker) if isinstance(one, Deliver) else one for one in actions]
            return after, tuple(named)
        return step(state, event)

    return trusting


def from_the_beginning(step: AnyStep) -> AnyStep:
    """Measure a worker's silence from its first task on."""

    def impatient(state: PoolState, event: Event) -> Any:
        after, actions = step(state, event)
        since = {worker.number: worker.since for worker in state.workers}
        if isinstance(event, TaskAnswered | MessageReceived):
            workers = [evolve(one, since=since.get(one.number, one.since)) for one in after.workers]
            after = evolve(after, workers=tuple(workers))
        return after, actions

    return impatient


def replaces_twice(step: AnyStep) -> AnyStep:
    """Start a replacement for every sign of a death."""

    def eager(state: PoolState, event: Event) -> Any:
        known = not isinstance(event, WorkerEnded) or event.worker in [one.number for one in state.workers]
        after, actions = step(state, event)
        return (after if known else evolve(after, due=(*after.due, event.now))), actions

    return eager


def at_once(step: AnyStep) -> AnyStep:
    """Restart at once, without a count of failures."""

    def hasty(state: PoolState, event: Event) -> Any:
        after, actions = step(evolve(state, failures=0), event)
        return evolve(after, failures=0), actions

    return hasty


def ignores_strange_answers(step: AnyStep) -> AnyStep:
    """Ignore answers to unknown tasks."""

    def mild(state: PoolState, event: Event) -> Any:
        if isinstance(event, TaskAnswered):
            mine = next((one.tasks for one in state.workers if one.number == event.worker), ())
            if event.task not in mine:
                return state, ()
        return step(state, event)

    return mild


def hands_back_all(step: AnyStep) -> AnyStep:
    """Return the tasks of all workers when one is lost."""

    def thorough(state: PoolState, event: Event) -> Any:
        after, actions = step(state, event)
        if isinstance(event, WorkerEnded) and any(isinstance(action, ReportLost) for action in actions):
            tasks = tuple(task for worker in state.workers for task in worker.tasks)
            workers = tuple(evolve(worker, tasks=()) for worker in after.workers)
            actions = tuple(evolve(one, tasks=tasks) if isinstance(one, ReportLost) else one for one in actions)
            return evolve(after, workers=workers), actions
        return after, actions

    return thorough


def idle_is_hanging(step: AnyStep) -> AnyStep:
    """Count an idle worker as hung."""

    def strict(state: PoolState, event: Event) -> Any:
        if not isinstance(event, SupervisorClock):
            return step(state, event)
        late = [w for w in state.workers if w.ready and not w.tasks and event.now - w.since >= state.patience]
        actions: tuple[Any, ...] = ()
        for worker in late:
            state, more = step(state, WorkerEnded(worker.number, "hung", event.now))
            actions = (*actions, *more)
        after, more = step(state, event)
        return after, (*actions, *more)

    return strict


def keeps_the_answered(step: AnyStep) -> AnyStep:
    """Keep finished tasks in the list, so that they are returned later."""

    def forgetful(state: PoolState, event: Event) -> Any:
        after, actions = step(state, event)
        if isinstance(event, TaskAnswered) and any(isinstance(action, Deliver) for action in actions):
            kept = {worker.number: worker.tasks for worker in state.workers}
            after = evolve(after, workers=tuple(evolve(one, tasks=kept[one.number]) for one in after.workers))
        return after, actions

    return forgetful


def never_ready(step: AnyStep) -> AnyStep:
    """Ignore that a worker is ready, so that its time limit stays that of the start."""

    def slow(state: PoolState, event: Event) -> Any:
        return (state, ()) if isinstance(event, WorkerReady) else step(state, event)

    return slow


MUTANTS: dict[str, Callable[[Any], Any]] = {
    "hands back everybody's work": hands_back_all,
    "takes a worker without work for one that hangs": idle_is_hanging,
    "does not cross off what was answered": keeps_the_answered,
    "does not notice that a worker has begun": never_ready,
}


# --- laws ---


SOURCE = "runtime.effects.workers.supervisor: a pool of workers as a pure machine"
Step = Callable[[PoolState, Event], tuple[PoolState, tuple[Action, ...]]]
PATIENCE, START, TRIES = 4.0, 6.0, 5
Acts = tuple[tuple[str, int, int], ...]


@frozen
class Moment:
    """An event, the pool before and after it, and the actions."""

    event: Event
    before: PoolState
    after: PoolState
    actions: tuple[Action, ...]


@frozen
class Course:
    """The results of a story."""

    moments: list[Moment] = Factory(list)

    def actions(self, kind: type) -> list[Any]:
        """All actions of that kind."""
        return [action for moment in self.moments for action in moment.actions if isinstance(action, kind)]


def stories() -> SearchStrategy[Acts]:
    """Draw acts of workers and callers: (verb, index of the worker, task or seconds)."""
    many = ("send", "send", "send", "answer", "answer", "answer", "wait", "wait")
    verbs = st.sampled_from((*many, "note", "end", "ready", "ready", "ghost", "strange"))
    act = st.tuples(verbs, st.integers(0, 5), st.integers(0, 5))
    return st.lists(act, min_size=16, max_size=50).map(tuple)


def played(step: Step, story: Acts) -> Course:
    """Run a story through the machine.

    "ghost" is an answer from a worker that may be gone, "strange" one to a task that may be another's.
    """
    state, now, course, next_task = pool_state(2, patience=PATIENCE, start=START, tries=TRIES), 0.0, Course(), 0

    def feed(event: Event) -> None:
        nonlocal state
        after, actions = step(state, event)
        course.moments.append(Moment(event, state, after, actions))
        state = after

    feed(SupervisorClock(now))
    for verb, which, value in story:
        workers = state.workers
        number = workers[which % len(workers)].number if workers else 0
        tasks = workers[which % len(workers)].tasks if workers else ()
        if verb == "send":
            feed(TaskSent(number if value else max(0, number - 2), next_task, now))
            next_task += 1
        elif verb == "answer" and tasks:
            feed(TaskAnswered(number, tasks[value % len(tasks)], now))
        elif verb == "ghost":
            feed(TaskAnswered(max(0, number - 2), value, now))
        elif verb == "strange":
            out = [task for worker in workers for task in worker.tasks] or [value]
            feed(TaskAnswered(number, out[value % len(out)], now))
        elif verb in ("note", "ready"):
            feed((MessageReceived if verb == "note" else WorkerReady)(number, now))
        elif verb == "end":
            feed(WorkerEnded(number, "died", now))
            feed(WorkerEnded(number, "died", now))  # a pipe that is closed and a process that ended
        else:
            now += value
            feed(SupervisorClock(now))
    return course


def workers_laws() -> Suite:
    """The laws of supervision of workers."""
    return Suite("workers_laws", (_once(), _own(), _silent(), _replaced(), _pauses(), _garbage()))


def _law(name: str, claim: str, mutant: Mutant, check: Callable[[Course, Seen], None], *needs: str) -> Law:
    def on_course(step: Step, story: Acts, seen: Seen) -> None:
        check(played(step, story), seen)

    return Law(
        name=name,
        claim=claim,
        source=SOURCE,
        inputs=always(stories()),
        check=on_course,
        mutant=mutant,
        needs=needs,
        most=500,
    )


def _once() -> Law:
    def check(course: Course, seen: Seen) -> None:
        sent = [moment.event.task for moment in course.moments if isinstance(moment.event, TaskSent)]
        ends = [action.task for action in course.actions(Deliver)]
        back = [task for action in course.actions(ReportLost) for task in action.tasks]
        there = [task for worker in course.moments[-1].after.workers for task in worker.tasks]
        seen("a task handed back", back)
        seen("an answer from a worker that is gone", _ghosts(course))
        found = sorted([*ends, *back, *there])
        require(
            found == sorted(sent), f"tasks {sorted(sent)} were sent; answered {ends}, back {back}, still out {there}"
        )

    claim = "Every task that is sent is answered once, or handed back once, or still with its worker."
    mutant = Mutant("loses what it sends to a worker that is gone", sends_to_the_gone)
    return _law("tasks_end_once", claim, mutant, check, "a task handed back", "an answer from a worker that is gone")


def _ghosts(course: Course) -> list[Moment]:
    answers = [moment for moment in course.moments if isinstance(moment.event, TaskAnswered)]
    return [one for one in answers if one.event.worker not in {w.number for w in one.before.workers}]  # type: ignore[union-attr]


def _own() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            had = {worker.number: worker.tasks for worker in moment.before.workers}
            for action in moment.actions:
                if isinstance(action, ReportLost) and not isinstance(moment.event, TaskSent):
                    seen("a loss beside another's work", any(had[n] for n in had if n != action.worker))
                    require(action.tasks == had[action.worker], f"{action} of a worker that had {had[action.worker]}")
                if isinstance(action, Deliver):
                    require(action.task in had.get(action.worker, ()), f"{action}: it is somebody else's task")

    claim = "One lost worker costs its own work and nobody else's, and what it says later does not count."
    mutant = Mutant("takes an answer from whoever gives it", takes_any_answer)
    return _law("losses_are_ones_own", claim, mutant, check, "a loss beside another's work")


def _silent() -> Law:
    def check(course: Course, seen: Seen) -> None:
        heard: dict[int, float] = {}
        for moment in course.moments:
            event = moment.event
            now = event.now
            if isinstance(event, SupervisorClock):
                lost = {action.worker for action in moment.actions if isinstance(action, ReportLost)}
                for worker in moment.before.workers:
                    limit = (PATIENCE if worker.tasks else float("inf")) if worker.ready else START
                    late = now - heard.get(worker.number, now) >= limit
                    seen("a worker that hangs", late)
                    seen("a worker without work for long", worker.ready and not worker.tasks and now - worker.since > 4)
                    require(
                        (worker.number in lost) == late, f"{worker} at {now}, last heard {heard.get(worker.number)}"
                    )
                for worker in moment.after.workers:
                    heard.setdefault(worker.number, now)
            elif isinstance(event, TaskSent):
                had = {worker.number: worker for worker in moment.before.workers}
                if event.worker in had and not had[event.worker].tasks and had[event.worker].ready:
                    heard[event.worker] = now
            else:
                heard[event.worker] = now

    claim = "A worker that has work and is silent for its time counts as hung then; one without work never does."
    mutant = Mutant("measures from when a worker has begun", from_the_beginning)
    return _law("silence_is_found", claim, mutant, check, "a worker that hangs", "a worker without work for long")


def _replaced() -> Law:
    def check(course: Course, seen: Seen) -> None:
        over, numbers = False, [action.worker for action in course.actions(StartWorker)]
        require(numbers == sorted(set(numbers)), f"workers were started under the numbers {numbers}")
        for moment in course.moments:
            over = over or any(isinstance(action, PoolExhausted) for action in moment.actions)
            there = len(moment.after.workers) + len(moment.after.due)
            seen("two losses of one worker", _again(moment))
            require(over or there == 2, f"{there} workers and starts after {moment.event}, wanted 2")

    claim = "Each lost worker is replaced by one, however often its loss is told."
    mutant = Mutant("starts another one each time it is told", replaces_twice)
    return _law("each_loss_is_replaced_once", claim, mutant, check, "two losses of one worker")


def _again(moment: Moment) -> bool:
    event = moment.event
    return isinstance(event, WorkerEnded) and event.worker not in {worker.number for worker in moment.before.workers}


def _pauses() -> Law:
    def check(course: Course, seen: Seen) -> None:
        failures = 0
        for moment in course.moments:
            for action in moment.actions:
                if isinstance(action, Deliver):
                    failures = 0
                elif isinstance(action, ReportLost) and not isinstance(moment.event, TaskSent):
                    failures += 1
                    gave_up = any(isinstance(other, PoolExhausted) for other in moment.actions)
                    seen("several losses in a row", failures > 2)
                    require(gave_up or failures < TRIES, f"{failures} losses in a row, and it goes on")
                    due = max(moment.after.due, default=0.0)
                    wanted = moment.event.now + replacement_pause(failures)
                    clock = isinstance(moment.event, SupervisorClock)  # then a replacement may have started at once
                    require(gave_up or clock or due >= wanted, f"loss {failures}: due at {due}, wanted {wanted}")
            if any(isinstance(action, PoolExhausted) for action in moment.actions):
                return

    claim = "Losses in a row are replaced after growing pauses, and after so many not at all; an answer ends the row."
    mutant = Mutant("replaces at once, for ever", at_once)
    return _law("losses_in_a_row_slow_down", claim, mutant, check, "several losses in a row")


def _garbage() -> Law:
    def check(course: Course, seen: Seen) -> None:
        for moment in course.moments:
            event = moment.event
            had = {worker.number: worker.tasks for worker in moment.before.workers}
            if isinstance(event, TaskAnswered) and event.worker in had and event.task not in had[event.worker]:
                seen("an answer to another's task", any(event.task in tasks for tasks in had.values()))
                whys = [action.why for action in moment.actions if isinstance(action, ReportLost)]
                require(len(whys) == 1, f"{event} of a worker that has {had[event.worker]} led to {moment.actions}")
                require(str(event.task) in whys[0], f"the loss does not name the task: {whys[0]}")

    claim = "A worker that answers what it was not asked is lost, and the loss names the task."
    mutant = Mutant("ignores answers that fit no task", ignores_strange_answers)
    return _law("garbage_is_refused_by_name", claim, mutant, check, "an answer to another's task")

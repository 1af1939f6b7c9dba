"""Asynchronous saves as a pure state machine: one at a time, in order; a failure is reported once, to the next caller.

SaveRequested(step) -> BeginSave(step)       no save is running
          -> WaitForSave()            one is running: the caller waits for its end
          -> RaiseFault(fault)       an earlier one failed; this one is not started
SaveEnded(fault)                   the running save has succeeded, or failed; then waiting callers are answered
NoMoreSaves() -> WaitForSave(), RaiseFault(fault) or AllSaved()
"""

from attrs import evolve, frozen


@frozen
class SaveRequested:
    """Event: a caller wants this step saved."""

    step: int


@frozen
class SaveEnded:
    """Event: the running save has ended; `fault` is "" if it succeeded."""

    fault: str = ""


@frozen
class NoMoreSaves:
    """Event: no more saves will be requested."""


@frozen
class BeginSave:
    """Answer: write this step."""

    step: int


@frozen
class WaitForSave:
    """Answer: wait until the running save has ended."""


@frozen
class RaiseFault:
    """Answer: raise this error."""

    fault: str


@frozen
class AllSaved:
    """Answer: all saves have succeeded, or their failure was reported."""


Event = SaveRequested | SaveEnded | NoMoreSaves
Answer = BeginSave | WaitForSave | RaiseFault | AllSaved


@frozen
class SaveQueue:
    """The running save, waiting callers, and a failure that was not reported yet."""

    writing: tuple[int, ...] = ()  # the step, or nothing
    waiting: tuple[SaveRequested | NoMoreSaves, ...] = ()  # requests made meanwhile, in their order
    fault: str = ""  # of the last save


def step(desk: SaveQueue, event: Event) -> tuple[SaveQueue, tuple[Answer, ...]]:
    """Return the next state and the answers.

    >>> desk, answers = step(SaveQueue(), SaveRequested(7))
    >>> answers
    (BeginSave(step=7),)
    >>> desk, answers = step(desk, SaveRequested(8))
    >>> answers
    (WaitForSave(),)
    >>> step(desk, SaveEnded("the disk is full"))[1]
    (RaiseFault(fault='the disk is full'),)
    """
    if not isinstance(event, SaveEnded):
        return (
            (evolve(desk, waiting=(*desk.waiting, event)), (WaitForSave(),)) if desk.writing else _answered(desk, event)
        )
    if not desk.writing:
        return desk, ()
    after, answers = evolve(desk, writing=(), waiting=(), fault=event.fault), list[Answer]()
    for one in desk.waiting:
        after, told = step(after, one)
        answers += [answer for answer in told if not isinstance(answer, WaitForSave)]
    return after, tuple(answers)


def _answered(desk: SaveQueue, event: SaveRequested | NoMoreSaves) -> tuple[SaveQueue, tuple[Answer, ...]]:
    if desk.fault:
        return evolve(desk, fault=""), (RaiseFault(desk.fault),)
    if isinstance(event, NoMoreSaves):
        return desk, (AllSaved(),)
    return evolve(desk, writing=(event.step,)), (BeginSave(event.step),)

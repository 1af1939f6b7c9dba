"""Asynchronous saves as a pure state machine: one at a time, in order; a failure is reported once, to the next caller.

Ask(step) -> Begin(step)       no save is running
          -> Wait()            one is running: the caller waits for its end
          -> Tell(fault)       an earlier one failed; this one is not started
Ended(fault)                   the running save has succeeded, or failed; then waiting callers are answered
Leave() -> Wait(), Tell(fault) or Gone()
"""

from attrs import evolve, frozen


@frozen
class Ask:
    """Event: a caller wants this step saved."""

    step: int


@frozen
class Ended:
    """Event: the running save has ended; `fault` is "" if it succeeded."""

    fault: str = ""


@frozen
class Leave:
    """Event: no more saves will be requested."""


@frozen
class Begin:
    """Answer: write this step."""

    step: int


@frozen
class Wait:
    """Answer: wait until the running save has ended."""


@frozen
class Tell:
    """Answer: raise this error."""

    fault: str


@frozen
class Gone:
    """Answer: all saves have succeeded, or their failure was reported."""


Event = Ask | Ended | Leave
Answer = Begin | Wait | Tell | Gone


@frozen
class Desk:
    """The running save, waiting callers, and a failure that was not reported yet."""

    writing: tuple[int, ...] = ()  # the step, or nothing
    waiting: tuple[Ask | Leave, ...] = ()  # requests made meanwhile, in their order
    fault: str = ""  # of the last save


def step(desk: Desk, event: Event) -> tuple[Desk, tuple[Answer, ...]]:
    """Return the next state and the answers.

    >>> desk, answers = step(Desk(), Ask(7))
    >>> answers
    (Begin(step=7),)
    >>> desk, answers = step(desk, Ask(8))
    >>> answers
    (Wait(),)
    >>> step(desk, Ended("the disk is full"))[1]
    (Tell(fault='the disk is full'),)
    """
    if not isinstance(event, Ended):
        return (evolve(desk, waiting=(*desk.waiting, event)), (Wait(),)) if desk.writing else _answered(desk, event)
    if not desk.writing:
        return desk, ()
    after, answers = evolve(desk, writing=(), waiting=(), fault=event.fault), list[Answer]()
    for one in desk.waiting:
        after, told = step(after, one)
        answers += [answer for answer in told if not isinstance(answer, Wait)]
    return after, tuple(answers)


def _answered(desk: Desk, event: Ask | Leave) -> tuple[Desk, tuple[Answer, ...]]:
    if desk.fault:
        return evolve(desk, fault=""), (Tell(desk.fault),)
    if isinstance(event, Leave):
        return desk, (Gone(),)
    return evolve(desk, writing=(event.step,)), (Begin(event.step),)

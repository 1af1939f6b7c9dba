"""Saves beside training as a pure machine: one at a time, in order, and a fault is told once to whoever comes next.

Ask(step) -> Begin(step)       nothing is being written
          -> Wait()            something is: whoever asked waits for its end
          -> Tell(fault)       an earlier one failed; this one is not begun
Ended(fault)                   what was being written is whole, or failed; then whoever waits is answered
Leave() -> Wait(), Tell(fault) or Gone()
"""

from attrs import evolve, frozen


@frozen
class Ask:
    """Somebody wants this step saved."""

    step: int


@frozen
class Ended:
    """What was being written ended; `fault` is "" where it is whole."""

    fault: str = ""


@frozen
class Leave:
    """Nothing more will be asked for."""


@frozen
class Begin:
    """Write this step."""

    step: int


@frozen
class Wait:
    """Until what is being written has ended."""


@frozen
class Tell:
    """Raise this."""

    fault: str


@frozen
class Gone:
    """All that was asked for is whole, or was told."""


Event = Ask | Ended | Leave
Answer = Begin | Wait | Tell | Gone


@frozen
class Desk:
    """What is being written, who waits, and what nobody was told yet."""

    writing: tuple[int, ...] = ()  # the step, or nothing
    waiting: tuple[Ask | Leave, ...] = ()  # whoever asked in the meantime, in their order
    fault: str = ""  # of the last one written


def step(desk: Desk, event: Event) -> tuple[Desk, tuple[Answer, ...]]:
    """The next state, and what to do.

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

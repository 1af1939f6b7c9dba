"""Simulated generators and a simulated trainer: their settings, and the state of their work.

The number of a sample's tokens is drawn, and does not depend on the generator or the time. Tokens come in chunks, at one
speed. Generators get new weights in one of three ways:

    interrupt    at the end of a chunk, in the middle of a sample
    next         at the beginning of the next sample
    barrier      all at once, when all have finished their samples; none begins another sample until then

`effects` has their transitions.
"""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from ....core.errors import ChoiceError, choose, message
from ...machine.simulation import Agenda, Drawn, Line
from ..scheduler import events as say

INTERRUPT, NEXT, BARRIER = "interrupt", "next", "barrier"
Name = tuple[int, int, int]  # group, seat, attempt
BEGINNING = Agenda()


def sound(number: int) -> tuple[float, ...]:
    """Deliver every message at once, and once: a transport without faults."""
    return (0.0,)


@frozen(kw_only=True)
class Twins:
    """Durations in simulated seconds, and the transport of messages. Raises: ChoiceError.

    `patience`: seconds without the end of a sample after which its time-out is sent. A transport that loses messages needs it:
    otherwise the run waits forever for a lost end.

    >>> Twins(tokens=lambda prompt, seat, attempt: 100.0, patience=0.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: Twins: patience is 0.0, wanted more than 0; inf waits for ever
    """

    tokens: Drawn  # of a sample: its prompt, seat and attempt; rounded, and at least 1
    chunk: int = 25  # tokens between two messages
    speed: float = 100.0  # tokens a second of each sample under way
    load: float = 0.02  # seconds for a generator to load new weights
    recompute: float = 0.0
    train: float = 1.0
    publish: float = 0.02
    weights: str = INTERRUPT
    patience: float = float("inf")
    line: Line = sound  # between generators and scheduler; the trainer's messages do not use it

    def __attrs_post_init__(self) -> None:
        for name in ("chunk", "speed", "patience"):
            if not getattr(self, name) > 0:
                remedy = "inf waits for ever" if name == "patience" else "no sample would ever end"
                raise ChoiceError(
                    message(f"Twins: {name}", got=getattr(self, name), wanted="more than 0", remedy=remedy)
                )
        choose("Twins: weights", self.weights, {INTERRUPT: 0, NEXT: 0, BARRIER: 0})


@frozen(slots=False)
class Flight:
    """A sample under way."""

    number: int  # of its command
    version: int  # of the weights that sample its next token
    left: int  # tokens still to come
    began: float
    tokens: int = 0
    head: int = -1  # the oldest version among its tokens


@frozen
class Chunk:
    """Due: the next tokens of a sample."""

    name: Name
    number: int  # of its command
    tokens: int


@frozen
class Late:
    """Due: the time-out of a sample."""

    name: Name
    number: int


@frozen
class New:
    """Due: the weights of a new version."""

    number: int
    command: say.Publish


@frozen(slots=False)
class SimulationState:
    """State of the simulation: all that is under way, and counters."""

    agenda: Agenda = BEGINNING
    flights: Mapping[Name, Flight] = MappingProxyType({})
    held: tuple[tuple[int, say.Dispatch], ...] = ()  # samples to begin with the next version
    waits: tuple[New, ...] = ()  # weights to publish when no sample is under way
    newest: int = 0  # the newest published version
    sent: int = 0  # number of messages of generators
    busy: float = 0.0  # seconds of sampling, over all samples

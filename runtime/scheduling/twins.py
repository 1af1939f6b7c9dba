"""Generators and a trainer in simulated time: what they are like, and all that is under way with them.

A sample's tokens are drawn, and the same whoever makes them and when. They come in chunks, at one speed. How generators get
new weights is one of three ways:

    interrupt    at the end of a chunk, in the middle of a sample
    next         at the beginning of the next sample
    barrier      all at once, when all have finished what they had; none begins another sample until then

What happens to them stands in `twin_world`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

from ...core.errors import ChoiceError, choose, message
from ..simulated import Agenda, Drawn, Line
from . import messages as say

INTERRUPT, NEXT, BARRIER = "interrupt", "next", "barrier"
Name = tuple[int, int, int]  # group, seat, attempt
BEGINNING = Agenda()


def sound(number: int) -> tuple[float, ...]:
    """A line that brings every message at once, and once."""
    return (0.0,)


@frozen(kw_only=True)
class Twins:
    """How long things take, in simulated seconds, and what becomes of messages. Raises: ChoiceError.

    `patience`: after so many seconds without the end of a sample its time-out is told. A line that loses messages needs it:
    otherwise a lost end is waited for, for ever.

    >>> Twins(tokens=lambda prompt, seat, attempt: 100.0, patience=0.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: Twins: patience is 0.0, wanted more than 0; inf waits for ever
    """

    tokens: Drawn  # of a sample: its prompt, seat and attempt; rounded, and at least 1
    chunk: int = 25  # tokens between two messages
    speed: float = 100.0  # tokens a second of each sample under way
    load: float = 0.02  # in which a generator takes new weights
    recompute: float = 0.0
    train: float = 1.0
    publish: float = 0.02
    weights: str = INTERRUPT
    patience: float = float("inf")
    line: Line = sound  # between generators and scheduler; the trainer is beside it

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
    version: int  # of the weights its next token is made by
    left: int  # tokens still to come
    began: float
    tokens: int = 0
    head: int = -1  # the oldest version among its tokens


@frozen
class Chunk:
    """Due: so many more tokens of a sample."""

    name: Name
    number: int  # of its command
    tokens: int


@frozen
class Late:
    """Due: a sample has taken as long as it may."""

    name: Name
    number: int


@frozen
class New:
    """Due: the weights of a version."""

    number: int
    command: say.Publish


@frozen(slots=False)
class World:
    """All that is under way, and what was used up."""

    agenda: Agenda = BEGINNING
    flights: Mapping[Name, Flight] = MappingProxyType({})
    held: tuple[tuple[int, say.Dispatch], ...] = ()  # begun with the next version
    waits: tuple[New, ...] = ()  # to be published when nothing is under way
    newest: int = 0  # the version that generators can have
    sent: int = 0  # messages of generators
    busy: float = 0.0  # seconds of generators that were making a sample

"""The transcript of an episode as typed events, in order: what was said to the model, and every text it made.

A later layer encodes them. Events are only ever appended, and what was sampled keeps the ids it was sampled with, so that
the ids of a prefix are the prefix of the ids.
"""

from collections.abc import Callable, Sequence

from attrs import frozen

STOP, LENGTH, TOOL_CALL, ABORT = "stop", "length", "tool_call", "abort"
FINISH_REASONS = (STOP, LENGTH, TOOL_CALL, ABORT)  # why a model call ended; never how an episode did


@frozen
class System:
    """What the model is told once."""

    text: str


@frozen
class User:
    """What the world shows: the task, and what follows an action."""

    text: str


@frozen
class Sampled:
    """One model call: its text and number, the env step it belongs to, and what was made of it.

    `reward` is what the parser gave for it; `incomplete` says that it was refused for having been cut at its length.
    """

    text: str
    call: int
    turn: int
    finish_reason: str
    parse_error: bool = False
    incomplete: bool = False
    reward: float = 0.0


@frozen
class ToolResult:
    """What a tool answered. An auxiliary tool adds to the context alone, any other one is an env step."""

    name: str
    argument: str
    text: str
    auxiliary: bool


@frozen
class Feedback:
    """What the model is told where its text gave no action."""

    text: str


Event = System | User | Sampled | ToolResult | Feedback


def encoded(
    events: Sequence[Event], encode: Callable[[Event], Sequence[int]], sampled: Callable[[int], Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """The token ids of each event: `sampled(call)` where the model made it, `encode(event)` elsewhere.

    >>> events = (User("ab"), Sampled("c", call=0, turn=0, finish_reason="stop"))
    >>> encoded(events, lambda event: [ord(letter) for letter in event.text], {0: [7]}.__getitem__)
    ((97, 98), (7,))
    """
    return tuple(tuple(sampled(event.call) if isinstance(event, Sampled) else encode(event)) for event in events)


def model_text(events: Sequence[Event]) -> str:
    """All the model wrote, one completion a line.

    >>> model_text((User("a?"), Sampled("b", call=0, turn=0, finish_reason="stop"), Feedback("no")))
    'b'
    """
    return "\n".join(event.text for event in events if isinstance(event, Sampled))

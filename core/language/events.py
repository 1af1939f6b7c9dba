"""The conversation of an episode as typed events, in order: all context shown to the model, and all its outputs.

A later layer encodes them. Events are only appended, and sampled texts keep the ids with which they were sampled, so that
the ids of a prefix are a prefix of the ids.
"""

from collections.abc import Sequence

from attrs import frozen

STOP, LENGTH, TOOL_CALL, ABORT = "stop", "length", "tool_call", "abort"
FINISH_REASONS = (STOP, LENGTH, TOOL_CALL, ABORT)  # why a model call ended, not why an episode did


@frozen
class System:
    """The system prompt."""

    text: str


@frozen
class User:
    """Text of the environment: the task, or the observation after an action."""

    text: str


@frozen
class Assistant:
    """An earlier reply of the model that a prompt states: context, not sampled here."""

    text: str


@frozen
class Sampled:
    """One model call: its text and number, its env step, and the result of parsing it.

    `reward` is the parser's reward for it; `incomplete` means that it was refused because it was cut at its length limit.
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
    """The result of a tool. An auxiliary tool only adds context; a call of any other tool is an env step.

    `id` is that of the call, in chat templates that write it.
    """

    name: str
    argument: str
    text: str
    auxiliary: bool
    id: str = ""


@frozen
class Feedback:
    """The message to the model after a text without an action."""

    text: str


Event = System | User | Assistant | Sampled | ToolResult | Feedback


def model_text(events: Sequence[Event]) -> str:
    """Return all text of the model, one completion per line.

    >>> model_text((User("a?"), Sampled("b", call=0, turn=0, finish_reason="stop"), Feedback("no")))
    'b'
    """
    return "\n".join(event.text for event in events if isinstance(event, Sampled))

"""What a scheduler is told, and what it asks for.

A sample is named by three numbers: its group, its seat there, and the attempt at it. An attempt is never named again once it
is over, so that a message that comes late, or twice, is known for what it is. Besides these events a scheduler is told
`Started`, `Interrupted` and `Failed(command, error)`, and it may say `Stop`, all of `core.machine`.
"""

from typing import Any, ClassVar

from attrs import frozen

Name = tuple[int, int, int]  # group, seat, attempt


@frozen
class Submitted:
    """So many more prompts wait to be sampled from. They are numbered 0, 1, ... as they are begun."""

    TAG: ClassVar[str] = "submitted"
    prompts: int


@frozen
class TokenChunk:
    """A sample has so many tokens by now, the newest of them made by the weights of that version."""

    TAG: ClassVar[str] = "token_chunk"
    group: int
    seat: int
    attempt: int
    tokens: int
    version: int


@frozen
class Finished:
    """A sample is whole: all its tokens, the oldest and the newest version among them."""

    TAG: ClassVar[str] = "finished"
    group: int
    seat: int
    attempt: int
    tokens: int
    head: int
    tail: int


@frozen
class TimedOut:
    """A sample took too long."""

    TAG: ClassVar[str] = "timed_out"
    group: int
    seat: int
    attempt: int


@frozen
class Filtered:
    """A group is not to be learned from (all its rewards are equal, say)."""

    TAG: ClassVar[str] = "filtered"
    group: int


@frozen
class Recomputed:
    """The proximal log-probs that were asked for are there."""

    TAG: ClassVar[str] = "recomputed"
    version: int


@frozen
class Consumed:
    """The update of the weights of this version is made; the batch is used up."""

    TAG: ClassVar[str] = "consumed"
    version: int


@frozen
class Published:
    """From now on generators can have the weights of this version."""

    TAG: ClassVar[str] = "published"
    version: int


@frozen
class Joined:
    """A generator is there, with room for so many samples at a time."""

    TAG: ClassVar[str] = "joined"
    worker: int
    slots: int = 1


@frozen
class Lost:
    """A generator is gone, with all that it had under way."""

    TAG: ClassVar[str] = "lost"
    worker: int


@frozen
class Resumed:
    """The run goes on in a new process, with so many generators, numbered from 0, and nothing under way."""

    TAG: ClassVar[str] = "resumed"
    workers: int
    slots: int = 1


@frozen
class Due:
    """The time to do this again has come."""

    TAG: ClassVar[str] = "due"
    command: Any


@frozen
class Dispatch:
    """Sample from a prompt, from its beginning, with weights of this version or a later one. Told by `TokenChunk`, `Finished`.

    `version` is what the generator is to have at least; what it had is what it says.
    """

    TAG: ClassVar[str] = "dispatch"
    group: int
    seat: int
    attempt: int
    prompt: int
    worker: int
    version: int


@frozen
class Abort:
    """Give an attempt up: nothing of it is wanted any more. Tells nothing."""

    TAG: ClassVar[str] = "abort"
    group: int
    seat: int
    attempt: int
    worker: int


@frozen
class Recompute:
    """Set the proximal log-probs of the tokens of version - 1 of these samples with the weights of `version`.

    Told by `Recomputed`. Some of the samples may still be under way; then those tokens that are there are meant.
    """

    TAG: ClassVar[str] = "recompute"
    version: int
    samples: tuple[Name, ...]


@frozen
class Train:
    """Update the weights of this version with these samples, whole groups. Told by `Consumed`."""

    TAG: ClassVar[str] = "train"
    version: int
    samples: tuple[Name, ...]
    head: int  # the oldest version among their tokens


@frozen
class Publish:
    """Give generators the weights of this version. Told by `Published`."""

    TAG: ClassVar[str] = "publish"
    version: int


@frozen
class RetryAfter:
    """Say `Due(command)` after so many seconds."""

    TAG: ClassVar[str] = "retry_after"
    command: Any
    seconds: float


@frozen
class Report:
    """Tell people what was given up, and why. Tells nothing."""

    TAG: ClassVar[str] = "report"
    about: str
    number: int
    reason: str


EVENTS = (
    Submitted,
    TokenChunk,
    Finished,
    TimedOut,
    Filtered,
    Recomputed,
    Consumed,
    Published,
    Joined,
    Lost,
    Resumed,
    Due,
)
COMMANDS = (Dispatch, Abort, Recompute, Train, Publish, RetryAfter, Report)

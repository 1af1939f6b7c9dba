"""Events and commands of a scheduler.

A sample is named by three numbers: its group, its seat there, and the attempt at it. The name of an attempt is never reused
after it is over, so that a message that comes late, or twice, is recognised. Besides these events a scheduler receives
`Started`, `Interrupted` and `Failed(command, error)`, and it may issue `Stop`, all of `core.machine`.
"""

from typing import Any, ClassVar

from attrs import frozen

Name = tuple[int, int, int]  # group, seat, attempt


@frozen
class Submitted:
    """Event: more prompts wait to be sampled from. They are numbered 0, 1, ... in the order in which they are begun."""

    TAG: ClassVar[str] = "submitted"
    prompts: int


@frozen
class TokenChunk:
    """Event: the number of tokens of a sample so far; the newest were sampled with the weights of this version."""

    TAG: ClassVar[str] = "token_chunk"
    group: int
    seat: int
    attempt: int
    tokens: int
    version: int


@frozen
class Finished:
    """Event: a sample is finished, with its number of tokens, and the oldest and the newest version among them."""

    TAG: ClassVar[str] = "finished"
    group: int
    seat: int
    attempt: int
    tokens: int
    head: int
    tail: int


@frozen
class TimedOut:
    """Event: a sample took too long."""

    TAG: ClassVar[str] = "timed_out"
    group: int
    seat: int
    attempt: int


@frozen
class Filtered:
    """Event: a group must not be trained on (for example because all its rewards are equal)."""

    TAG: ClassVar[str] = "filtered"
    group: int


@frozen
class Recomputed:
    """Event: the requested proximal log-probs are there."""

    TAG: ClassVar[str] = "recomputed"
    version: int


@frozen
class Consumed:
    """Event: the update of the weights of this version is done; the batch is used up."""

    TAG: ClassVar[str] = "consumed"
    version: int


@frozen
class Published:
    """Event: the weights of this version are available to generators."""

    TAG: ClassVar[str] = "published"
    version: int


@frozen
class Joined:
    """Event: a generator has joined, with this number of slots for samples."""

    TAG: ClassVar[str] = "joined"
    worker: int
    slots: int = 1


@frozen
class Lost:
    """Event: a generator is lost, with all of its samples under way."""

    TAG: ClassVar[str] = "lost"
    worker: int


@frozen
class Resumed:
    """Event: the run is resumed in a new process, with these generators, numbered from 0, and nothing under way."""

    TAG: ClassVar[str] = "resumed"
    workers: int
    slots: int = 1


@frozen
class Due:
    """Event: the pause before repeating a command is over."""

    TAG: ClassVar[str] = "due"
    command: Any


@frozen
class Dispatch:
    """Command: sample from a prompt, with weights of this version or a later one. Answered by `TokenChunk`, `Finished`.

    `version` is the minimum for the generator; the actual versions are reported with the tokens.
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
    """Command: cancel an attempt. Has no answer."""

    TAG: ClassVar[str] = "abort"
    group: int
    seat: int
    attempt: int
    worker: int


@frozen
class Recompute:
    """Command: set the proximal log-probs of these samples' tokens of version - 1, with the weights of `version`.

    Answered by `Recomputed`. For samples that are still under way, it applies to the tokens there are.
    """

    TAG: ClassVar[str] = "recompute"
    version: int
    samples: tuple[Name, ...]


@frozen
class Train:
    """Command: update the weights of this version with these samples, full groups. Answered by `Consumed`."""

    TAG: ClassVar[str] = "train"
    version: int
    samples: tuple[Name, ...]
    head: int  # the oldest version among their tokens


@frozen
class Publish:
    """Command: publish the weights of this version to generators. Answered by `Published`."""

    TAG: ClassVar[str] = "publish"
    version: int


@frozen
class RetryAfter:
    """Command: send `Due(command)` after this number of seconds."""

    TAG: ClassVar[str] = "retry_after"
    command: Any
    seconds: float


@frozen
class Report:
    """Command: report to the user that a sample or group was discarded, and the reason. Has no answer."""

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

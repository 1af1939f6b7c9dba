"""What the scheduler of reasoning-cache rollouts knows, is told and asks for: values of numbers, strings and tuples."""

from typing import ClassVar

from attrs import frozen

from .reasoning_state import STATE_CLASSES, Ask, InferenceProblemState, Problem, Reply


@frozen(kw_only=True)
class Running:
    """An attempt in its place: on which model, and how often its calls were asked and have failed."""

    TAG: ClassVar[str] = "running"
    number: int  # of the attempt
    group: int
    state: InferenceProblemState
    llm: int = -1  # while it waits
    asks: int = 0  # ever: the number of the ask that is under way
    failures: int = 0  # of the call under way
    returns: int = 0
    waits: bool = False  # before its next try


@frozen(kw_only=True)
class Finished:
    """An attempt that has left; `failed` says why it has not come to its end, "" where it has."""

    TAG: ClassVar[str] = "finished"
    state: InferenceProblemState
    failed: str = ""


@frozen(kw_only=True)
class GroupResult:
    """All attempts of a group, in the order of their rollout_index."""

    TAG: ClassVar[str] = "group_result"
    number: int  # of the group
    attempts: tuple[Finished, ...]


@frozen(kw_only=True)
class Schedule:
    """Where all attempts stand."""

    TAG: ClassVar[str] = "schedule"
    problem_queue: tuple[
        tuple[Problem, int], ...
    ] = ()  # problems that have groups to open, and the next one's sample_id
    waiting: tuple[Running, ...] = ()
    running: tuple[Running, ...] = ()
    open_groups: tuple[GroupResult, ...] = ()  # with those attempts that have left
    result_queue: tuple[GroupResult, ...] = ()  # whole; the first is being published
    admitted: int = 0  # problems so far
    groups: int = 0  # opened so far: the number of the next
    published: int = 0  # so far
    fetching: bool = False  # problems have been asked for
    exhausted: bool = False  # no more will come


@frozen(kw_only=True)
class Fetch:
    """The command to give the problems from number `first` of their stream on, `most` at most. It may come again."""

    TAG: ClassVar[str] = "fetch"
    first: int
    most: int


@frozen(kw_only=True)
class Fetched:
    """The event that these came, from number `first` on. `last`: none will follow."""

    TAG: ClassVar[str] = "fetched"
    first: int
    problems: tuple[Problem, ...]
    last: bool = False


@frozen(kw_only=True)
class Call:
    """The command to call a model for an attempt. What comes of it is `Replied` or `CallFailed` with its numbers."""

    TAG: ClassVar[str] = "call"
    attempt: int
    asked: int
    llm: int
    ask: Ask


@frozen(kw_only=True)
class Replied:
    """The event that a model has replied."""

    TAG: ClassVar[str] = "replied"
    attempt: int
    asked: int
    reply: Reply


@frozen(kw_only=True)
class CallFailed:
    """The event that a call failed in a way that may pass. (A handler that raises ends the run.)"""

    TAG: ClassVar[str] = "call_failed"
    attempt: int
    asked: int
    error: str = ""


@frozen(kw_only=True)
class Wait:
    """The command to say `Waited` after some seconds."""

    TAG: ClassVar[str] = "wait"
    attempt: int
    asked: int
    seconds: float


@frozen(kw_only=True)
class Waited:
    """The event that the time before the next try is over."""

    TAG: ClassVar[str] = "waited"
    attempt: int
    asked: int


@frozen(kw_only=True)
class Publish:
    """The command to publish a group; the answer is `Published`. It may come again for one published before a crash."""

    TAG: ClassVar[str] = "publish"
    result: GroupResult


@frozen(kw_only=True)
class Published:
    """The event that the group of this number is published."""

    TAG: ClassVar[str] = "published"
    number: int


SCHEDULE_CLASSES = (*STATE_CLASSES, Schedule, Running, Finished, GroupResult)
EVENT_CLASSES = (
    *SCHEDULE_CLASSES,
    Fetch,
    Fetched,
    Call,
    Ask,
    CallFailed,
    Replied,
    Reply,
    Wait,
    Waited,
    Publish,
    Published,
)

"""State, events and commands of the scheduler of reasoning-cache rollouts: values of numbers, strings and tuples."""

from typing import ClassVar

from attrs import frozen

from .state import STATE_CLASSES, InferenceProblemState, ModelRequest, Problem, Reply


@frozen(kw_only=True)
class RunningAttempt:
    """An unfinished attempt: its model, and the counts of its calls and failures."""

    TAG: ClassVar[str] = "running"
    number: int  # of the attempt
    group: int
    state: InferenceProblemState
    llm: int = -1  # index of its model; -1 while it waits
    asks: int = 0  # calls so far: the number of the current call
    failures: int = 0  # of the current call
    returns: int = 0
    waits: bool = False  # for the retry of a failed call


@frozen(kw_only=True)
class FinishedAttempt:
    """A finished attempt; `failed` is the reason why it was abandoned, "" if it completed."""

    TAG: ClassVar[str] = "finished"
    state: InferenceProblemState
    failed: str = ""


@frozen(kw_only=True)
class GroupResult:
    """All attempts of a group, in the order of their rollout_index."""

    TAG: ClassVar[str] = "group_result"
    number: int  # of the group
    attempts: tuple[FinishedAttempt, ...]


@frozen(kw_only=True)
class CacheState:
    """The state of the scheduler: all attempts and queues."""

    TAG: ClassVar[str] = "schedule"
    problem_queue: tuple[
        tuple[Problem, int], ...
    ] = ()  # problems with groups still to open, and the next group's sample_id
    waiting: tuple[RunningAttempt, ...] = ()
    running: tuple[RunningAttempt, ...] = ()
    open_groups: tuple[GroupResult, ...] = ()  # with their finished attempts
    result_queue: tuple[GroupResult, ...] = ()  # finished groups; the first is being published
    admitted: int = 0  # problems so far
    groups: int = 0  # opened so far: the number of the next
    published: int = 0  # so far
    fetching: bool = False  # problems have been requested
    exhausted: bool = False  # there are no more problems


@frozen(kw_only=True)
class Fetch:
    """The command to fetch the problems from number `first` of their stream on, at most `most`. It may be repeated."""

    TAG: ClassVar[str] = "fetch"
    first: int
    most: int


@frozen(kw_only=True)
class Fetched:
    """The event that these problems arrived, from number `first` on. `last`: there are no more."""

    TAG: ClassVar[str] = "fetched"
    first: int
    problems: tuple[Problem, ...]
    last: bool = False


@frozen(kw_only=True)
class CallModel:
    """The command to call a model for an attempt. The response is `Replied` or `CallFailed` with its numbers."""

    TAG: ClassVar[str] = "call"
    attempt: int
    asked: int
    llm: int
    ask: ModelRequest


@frozen(kw_only=True)
class Replied:
    """The event that a model has replied."""

    TAG: ClassVar[str] = "replied"
    attempt: int
    asked: int
    reply: Reply


@frozen(kw_only=True)
class CallFailed:
    """The event that a call failed with a transient error. (A handler that raises ends the run.)"""

    TAG: ClassVar[str] = "call_failed"
    attempt: int
    asked: int
    error: str = ""


@frozen(kw_only=True)
class Wait:
    """The command to send `Waited` after some seconds."""

    TAG: ClassVar[str] = "wait"
    attempt: int
    asked: int
    seconds: float


@frozen(kw_only=True)
class Waited:
    """The event that the delay before the retry is over."""

    TAG: ClassVar[str] = "waited"
    attempt: int
    asked: int


@frozen(kw_only=True)
class PublishGroup:
    """The command to publish a group, answered by `GroupPublished`. It may be repeated for a group published before a crash."""

    TAG: ClassVar[str] = "publish"
    result: GroupResult


@frozen(kw_only=True)
class GroupPublished:
    """The event that the group of this number was published."""

    TAG: ClassVar[str] = "published"
    number: int


SCHEDULE_CLASSES = (*STATE_CLASSES, CacheState, RunningAttempt, FinishedAttempt, GroupResult)
EVENT_CLASSES = (
    *SCHEDULE_CLASSES,
    Fetch,
    Fetched,
    CallModel,
    ModelRequest,
    CallFailed,
    Replied,
    Reply,
    Wait,
    Waited,
    PublishGroup,
    GroupPublished,
)

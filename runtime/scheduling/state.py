"""The state of a scheduler: a value of numbers, strings and tuples, and the rules it lives under."""

from typing import Any, ClassVar, TypeVar

from attrs import frozen

from ...core.errors import ChoiceError, choose, message
from .numbered import EMPTY, NO_ONE, Line, Numbered, push, put

T = TypeVar("T")

IDLE, RECOMPUTE, TRAIN, PUBLISH = "idle", "recompute", "train", "publish"  # what the trainer does
PENDING, RUNNING, RESTING, THERE = "pending", "running", "resting", "there"  # a sample: again in line, ..., accepted
DROP, REQUEUE, PACE, REPAIR, KEEP = "drop", "requeue", "pace", "repair", "keep"
NOBODY = -1  # no worker, no version, no group


@frozen(kw_only=True)
class Rules:
    """What a scheduler keeps to. Raises: ChoiceError.

    `stale`: what becomes of samples that will be too old at the next update. "drop" leaves their groups out, "requeue" also
    begins their prompts anew, "pace" lets no sample become too old: an update waits for those that it would leave behind.
    `incomplete`: what becomes of a group when a member has failed for good. "drop" leaves the group out, "repair" begins
    another member, at most as often as the group has members.
    `proximal`: "recompute" asks for proximal log-probs before each update, "keep" does not.

    >>> Rules(batch=8, concurrency=4, staleness=-1, updates=1)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: Rules: staleness is -1, wanted 0 or more; 0 makes an update wait for its own samples
    """

    TAG: ClassVar[str] = "rules"
    batch: int  # samples in an update
    concurrency: int  # samples under way at a time, at most
    staleness: int  # how many updates older than the weights it changes a sample may be, at most
    updates: int  # the version to stop at
    group: int = 1  # samples from one prompt, which are learned from together or not at all
    retries: int = 3  # of a sample, and of each thing the trainer does, after its first failure
    backoff: float = 1.0  # seconds before the first retry, twice as many before each further one
    longest: float = 60.0  # seconds before a retry, at most
    stale: str = DROP
    incomplete: str = DROP
    proximal: str = KEEP
    room: int | tuple[()] = ()  # samples let in and not yet used up, at most, where fewer than staleness allows

    def __attrs_post_init__(self) -> None:
        least = {"batch": 1, "concurrency": 1, "group": 1, "updates": 0, "retries": 0, "backoff": 0, "longest": 0}
        _least("staleness", self.staleness, 0, "0 makes an update wait for its own samples")
        for name, wanted in least.items():
            _least(name, getattr(self, name), wanted, "an update could never be made")
        room = self.batch if isinstance(self.room, tuple) else self.room
        for name, value in (("batch", self.batch), ("room", room)):
            if value % self.group:
                remedy = "groups are learned from whole"
                raise ChoiceError(
                    message(f"Rules: {name}", got=value, wanted=f"a multiple of group, {self.group}", remedy=remedy)
                )
        _least("room", room, self.batch, "a batch could never fill")
        choose("Rules: stale", self.stale, {DROP: 0, REQUEUE: 0, PACE: 0})
        choose("Rules: incomplete", self.incomplete, {DROP: 0, REPAIR: 0})
        choose("Rules: proximal", self.proximal, {KEEP: 0, RECOMPUTE: 0})


def _least(name: str, value: float, wanted: float, remedy: str) -> None:
    if not value >= wanted:
        raise ChoiceError(message(f"Rules: {name}", got=value, wanted=f"{wanted} or more", remedy=remedy))


@frozen(slots=False)
class Seat:
    """A member of a group: the sample in it and how often it was tried."""

    TAG: ClassVar[str] = "seat"
    status: str = PENDING
    attempt: int = 0
    failures: int = 0
    worker: int = NOBODY
    tokens: int = 0
    head: int = (
        NOBODY  # the oldest version among its tokens; before there are any, that of the weights it was begun with
    )
    tail: int = NOBODY  # the newest


@frozen(slots=False)
class Group:
    """Samples from one prompt."""

    TAG: ClassVar[str] = "group"
    prompt: int
    seats: tuple[Seat, ...] = ()  # those that were let in
    head: int = NOBODY  # the oldest version among them
    there: int = 0  # how many of them are accepted
    repairs: int = 0


@frozen(slots=False)
class Worker:
    """A generator and what it has under way."""

    TAG: ClassVar[str] = "worker"
    slots: int
    busy: tuple[tuple[int, int], ...] = ()  # group, seat


@frozen(slots=False)
class Age:
    """The groups whose oldest token is of one version, those of the batch in training aside."""

    TAG: ClassVar[str] = "age"
    head: int
    groups: int = 0
    complete: int = 0  # how many of them could be learned from
    ready: Line[int] = NO_ONE  # these, and some that have left since


@frozen(slots=False)
class Schedule:
    """All a scheduler remembers. Numbers are of samples unless they say otherwise.

    submitted = waiting + running + accepted + rejected        accepted = consumed + filtered + queued + cached
    """

    TAG: ClassVar[str] = "schedule"
    version: int = 0  # of the newest weights that generators can have
    phase: str = IDLE
    batch: tuple[int, ...] = ()  # the groups in training
    failures: int = 0  # of what the trainer does now, in a row
    resting: bool = False  # whether it waits to be done again
    begun: bool = False
    stopped: bool = False

    submitted: int = 0
    waiting: int = 0  # not yet let in
    running: int = 0  # let in, and not yet whole: with a generator, waiting for one, or waiting to be tried again
    accepted: int = 0
    rejected: int = 0
    consumed: int = 0
    filtered: int = 0  # accepted, and left out after all
    queued: int = 0  # in whole groups, those in training included
    cached: int = 0  # accepted, in groups that are not whole yet
    ignored: int = 0  # messages about what is over, or not possible
    tokens_used: int = 0
    tokens_wasted: int = 0

    groups: Numbered[Group] = EMPTY
    next_group: int = 0
    filling: int = NOBODY  # the group of which not all members were let in
    prompts: int = 0  # begun
    fresh: int = 0  # prompts not begun
    again: Line[int] = NO_ONE  # prompts to begin anew, before those
    pending: Line[tuple[int, int, int]] = NO_ONE  # group, seat, attempt, and some that are over
    workers: Numbered[Worker] = EMPTY
    free: Line[int] = NO_ONE  # a worker for each free slot, and some that have left
    ages: tuple[Age, ...] = ()  # the oldest first


CLASSES = (Rules, Seat, Group, Worker, Age, Schedule, Line, Numbered)


def changed(value: T, **changes: Any) -> T:
    """The same frozen value with some fields changed; `attrs.evolve` for classes with a `__dict__`, ten times as fast.

    >>> changed(Worker(2), slots=3)
    Worker(slots=3, busy=())
    """
    new = object.__new__(type(value))
    object.__setattr__(new, "__dict__", value.__dict__ | changes)
    return new


def begin(rules: Rules, *, prompts: int, workers: int, slots: int = 1, version: int = 0) -> Schedule:
    """The state before the first event: so many prompts wait, so many generators are there, with `slots` each.

    A run that goes on from weights of a later version, without its scheduler's state, has used up version * batch samples:
    not counting them would let in as many at once. Raises: ChoiceError.

    >>> begin(Rules(batch=2, concurrency=4, staleness=1, updates=9), prompts=5, workers=1, version=3).submitted
    11
    """
    for name, value, wanted in (
        ("workers", workers, 1),
        ("slots", slots, 1),
        ("prompts", prompts, 0),
        ("version", version, 0),
    ):
        if value < wanted:
            remedy = "nothing could ever be sampled" if wanted else "count from 0"
            raise ChoiceError(message(f"begin: {name}", got=value, wanted=f"{wanted} or more", remedy=remedy))
    used = version * rules.batch
    state = Schedule(
        version=version,
        submitted=used + prompts * rules.group,
        waiting=prompts * rules.group,
        accepted=used,
        consumed=used,
        prompts=used // rules.group,
        fresh=prompts,
    )
    return with_workers(state, workers, slots)


def with_workers(state: Schedule, count: int, slots: int) -> Schedule:
    """The state with generators 0, 1, ... and no others, all idle."""
    workers: Numbered[Worker] = EMPTY
    free: Line[int] = NO_ONE
    for worker in range(count):
        workers = put(workers, worker, Worker(slots))
        for _ in range(slots):
            free = push(free, worker)
    return changed(state, workers=workers, free=free)

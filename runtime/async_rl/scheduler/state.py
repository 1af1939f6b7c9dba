"""The state of a scheduler, a value of numbers, strings and tuples, and its rules."""

from typing import Any, ClassVar, TypeVar

from attrs import frozen

from ....core.errors import ChoiceError, choose, message
from ...machine.persistent_map import EMPTY, NO_ONE, Fifo, Numbered, push, put_value

T = TypeVar("T")

IDLE, RECOMPUTE, TRAIN, PUBLISH = "idle", "recompute", "train", "publish"  # phases of the trainer
PENDING, RUNNING, RESTING, THERE = "pending", "running", "resting", "there"  # a sample: again in line, ..., accepted
DROP, REQUEUE, PACE, REPAIR, KEEP = "drop", "requeue", "pace", "repair", "keep"
NOBODY = -1  # no worker, no version, no group


@frozen(kw_only=True)
class Rules:
    """Settings of a scheduler. Raises: ChoiceError.

    `stale`: the treatment of samples that will be too old at the next update. "drop" removes their groups, "requeue" also
    begins their prompts again, "pace" lets no sample become too old: an update waits for those that it would leave behind.
    `incomplete`: the treatment of a group when a member has failed for good. "drop" removes the group, "repair" begins
    another member, at most as often as the group has members.
    `proximal`: "recompute" asks for proximal log-probs before each update, "keep" does not.

    >>> Rules(batch=8, concurrency=4, staleness=-1, updates=1)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: Rules: staleness is -1, wanted 0 or more; 0 makes an update wait for its own samples
    """

    TAG: ClassVar[str] = "rules"
    batch: int  # samples in an update
    concurrency: int  # largest number of samples under way
    staleness: int  # largest allowed age of a sample, in updates, when it is trained on
    updates: int  # the version to stop at
    group: int = 1  # samples from one prompt, which are trained on together or not at all
    retries: int = 3  # of a sample, and of each command of the trainer, after its first failure
    backoff: float = 1.0  # seconds before the first retry, twice as many before each further one
    longest: float = 60.0  # largest number of seconds before a retry
    stale: str = DROP
    incomplete: str = DROP
    proximal: str = KEEP
    room: int | tuple[()] = ()  # limit on samples let in and not used up, if lower than that of staleness

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
    """A member of a group: the sample in it and its number of attempts."""

    TAG: ClassVar[str] = "seat"
    status: str = PENDING
    attempt: int = 0
    failures: int = 0
    worker: int = NOBODY
    tokens: int = 0
    head: int = NOBODY  # the oldest version among its tokens; without tokens, the version when it was dispatched
    tail: int = NOBODY  # the newest


@frozen(slots=False)
class Group:
    """Samples from one prompt."""

    TAG: ClassVar[str] = "group"
    prompt: int
    seats: tuple[Seat, ...] = ()  # the members that were let in
    head: int = NOBODY  # the oldest version among them
    there: int = 0  # number of accepted members
    repairs: int = 0


@frozen(slots=False)
class Worker:
    """A generator and its samples under way."""

    TAG: ClassVar[str] = "worker"
    slots: int
    busy: tuple[tuple[int, int], ...] = ()  # group, seat


@frozen(slots=False)
class Age:
    """The groups whose oldest token is of one version, except those of the batch in training."""

    TAG: ClassVar[str] = "age"
    head: int
    groups: int = 0
    complete: int = 0  # number of complete groups, which can be trained on
    ready: Fifo[int] = NO_ONE  # these, and some that were removed since


Ages = tuple[Age, ...]  # the oldest first


@frozen(slots=False)
class Schedule:
    """State of a scheduler. Numbers are of samples unless stated otherwise.

    submitted = waiting + running + accepted + rejected        accepted = consumed + filtered + queued + cached
    """

    TAG: ClassVar[str] = "schedule"
    version: int = 0  # of the newest published weights
    phase: str = IDLE
    batch: tuple[int, ...] = ()  # the groups in training
    failures: int = 0  # of the trainer's current command, in a row
    resting: bool = False  # whether the command waits to be repeated
    begun: bool = False
    stopped: bool = False

    submitted: int = 0
    waiting: int = 0  # not yet let in
    running: int = 0  # let in, and not finished: with a generator, waiting for one, or waiting for a retry
    accepted: int = 0
    rejected: int = 0
    consumed: int = 0
    filtered: int = 0  # accepted, and removed later
    queued: int = 0  # in complete groups, including those in training
    cached: int = 0  # accepted, in groups that are not complete yet
    ignored: int = 0  # messages about attempts that are over, or impossible ones
    tokens_used: int = 0
    tokens_wasted: int = 0

    groups: Numbered[Group] = EMPTY
    next_group: int = 0
    filling: int = NOBODY  # the group with members that were not let in yet
    prompts: int = 0  # begun
    fresh: int = 0  # prompts not begun
    again: Fifo[int] = NO_ONE  # prompts to begin again, before fresh ones
    pending: Fifo[tuple[int, int, int]] = NO_ONE  # (group, seat, attempt), some of which are over
    workers: Numbered[Worker] = EMPTY
    free: Fifo[int] = NO_ONE  # a worker for each free slot, some of which are lost
    ages: Ages = ()


CLASSES = (Rules, Seat, Group, Worker, Age, Schedule, Fifo, Numbered)


def with_fields(value: T, **changes: Any) -> T:
    """Return the same frozen value with some fields changed: `attrs.evolve` for classes with a `__dict__`, ten times as fast.

    >>> with_fields(Worker(2), slots=3)
    Worker(slots=3, busy=())
    """
    new = object.__new__(type(value))
    object.__setattr__(new, "__dict__", value.__dict__ | changes)
    return new


def begin_schedule(rules: Rules, *, prompts: int, workers: int, slots: int = 1, version: int = 0) -> Schedule:
    """Return the state before the first event, with these numbers of waiting prompts and of generators, `slots` each.

    A run that resumes from weights of a later version, without its scheduler's state, has used up version * batch samples:
    not counting them would let in as many at once. Raises: ChoiceError.

    >>> begin_schedule(Rules(batch=2, concurrency=4, staleness=1, updates=9), prompts=5, workers=1, version=3).submitted
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
    """Return the state with exactly the generators 0 to count - 1, all idle."""
    workers: Numbered[Worker] = EMPTY
    free: Fifo[int] = NO_ONE
    for worker in range(count):
        workers = put_value(workers, worker, Worker(slots))
        for _ in range(slots):
            free = push(free, worker)
    return with_fields(state, workers=workers, free=free)


def age_of(ages: Ages, head: int) -> Age:
    """Return the entry of a version.

    >>> age_of((), 3)
    Age(head=3, groups=0, complete=0, ready=Fifo(first=0, next=0, items=Numbered(depth=0, root=())))
    """
    return next((age for age in ages if age.head == head), Age(head))


def put_age(ages: Ages, age: Age) -> Ages:
    """Return the ages with this entry replaced, or removed if it has no groups.

    >>> [age.head for age in put_age(put_age((), Age(3, 1)), Age(2, 1))]
    [2, 3]
    """
    before = tuple(one for one in ages if one.head < age.head)
    after = tuple(one for one in ages if one.head > age.head)
    return (*before, age, *after) if age.groups else (*before, *after)


def count_groups(ages: Ages, head: int, groups: int, complete: int = 0) -> Ages:
    """Return the ages with these numbers added to the groups and complete groups of a version; NOBODY means no version.

    >>> count_groups((), 4, 1), count_groups(count_groups((), 4, 1), 4, -1), count_groups((), NOBODY, 1)
    ((Age(head=4, groups=1, complete=0, ready=Fifo(first=0, next=0, items=Numbered(depth=0, root=()))),), (), ())
    """
    age = age_of(ages, head)
    counted = with_fields(age, groups=age.groups + groups, complete=age.complete + complete)
    return ages if head == NOBODY else put_age(ages, counted)

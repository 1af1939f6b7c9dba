"""Counts of groups by the age of their oldest token, and the choice of groups for the next batch."""

from ...machine.persistent_map import push
from .state import NOBODY, PACE, Age, Rules, changed

Ages = tuple[Age, ...]


def at(ages: Ages, head: int) -> Age:
    """Return the entry of a version.

    >>> at((), 3)
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


def moved(ages: Ages, old: int, new: int) -> Ages:
    """Return the ages after a group's oldest version changed from `old` to `new`; NOBODY means no version.

    >>> [(age.head, age.groups) for age in moved(moved((), NOBODY, 4), NOBODY, 5)], moved(moved((), NOBODY, 4), 4, NOBODY)
    ([(4, 1), (5, 1)], ())
    """
    if old != NOBODY:
        age = at(ages, old)
        ages = put_age(ages, changed(age, groups=age.groups - 1))
    if new != NOBODY:
        age = at(ages, new)
        ages = put_age(ages, changed(age, groups=age.groups + 1))
    return ages


def completed(ages: Ages, head: int, group: int) -> Ages:
    """Return the ages after a group of this oldest version became complete.

    >>> completed(moved((), NOBODY, 4), 4, 7)[0].complete
    1
    """
    age = at(ages, head)
    return put_age(ages, changed(age, complete=age.complete + 1, ready=push(age.ready, group)))


def left(ages: Ages, head: int, whole: bool) -> Ages:
    """Return the ages after a group was removed.

    >>> left(moved((), NOBODY, 4), 4, False)
    ()
    """
    age = at(ages, head)
    gone = changed(age, groups=age.groups - 1, complete=age.complete - whole)
    return put_age(ages, gone) if head != NOBODY else ages


def choice(rules: Rules, ages: Ages, version: int) -> tuple[tuple[int, int], ...]:
    """Return (oldest version, number of groups) pairs of the next batch, the oldest first; `()` where it has to wait.

    Under "pace" no group may become too old, now or later. With n the staleness and B the batch, a group of oldest version h
    can be trained on until version h + n, and k updates use up k B samples. So a batch at version v may be taken if, for
    every h, the remaining samples of groups as old as h or older fit the updates that are left to them:

        samples of groups with a head of at most h  <=  (h + n - v) B

    This holds as soon as all groups are complete, since at version u at most (n + 1) B samples live. Where it does not (the
    rules have changed), waiting would not help, and the oldest groups that are allowed are taken.

    >>> choice(Rules(batch=2, concurrency=9, staleness=1, updates=9), (Age(3, 2, 1), Age(4, 3, 3)), 4)
    ((3, 1), (4, 1))
    >>> choice(Rules(batch=2, concurrency=9, staleness=1, updates=9, stale="pace"), (Age(3, 2, 1), Age(4, 3, 3)), 4)
    ()
    """
    wanted, taken = rules.batch // rules.group, list[tuple[int, int]]()
    remain, fits, may_wait = 0, True, any(age.groups > age.complete for age in ages)
    for age in ages:
        take = min(age.complete, wanted)
        wanted -= take
        remain += age.groups - take
        fits = fits and remain * rules.group <= max(0, age.head + rules.staleness - version) * rules.batch
        if take:
            taken.append((age.head, take))
    return () if wanted or (rules.stale == PACE and may_wait and not fits) else tuple(taken)

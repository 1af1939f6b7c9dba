"""How people get starts wrong: what is prepared twice, freed once, forgotten, or given to the wrong group."""

from collections.abc import Callable
from typing import Any

from attrs import evolve

from purestep.runtime.asynchronous.preparing import Held, Ready, Starts

Subject = Callable[[int], Starts]


def _of(subject: Subject, kind: type) -> Subject:
    return lambda groups: kind(groups=subject(groups).groups)


class _ForEach(Starts):
    def asked(self, held: Held) -> tuple[Starts, bool]:
        after, _ = super().asked(held)
        return evolve(after, under_way={**after.under_way, held.prompt // self.groups: held.worker}), True


class _FreesOne(Starts):
    def come(self, ready: Ready) -> tuple[Starts, tuple[int, ...]]:
        after, freed = super().come(ready)
        kept = tuple(one for one in self.waiting if one.number in freed[1:])
        return evolve(after, waiting=(*after.waiting, *kept)), freed[:1]


class _Forgets(Starts):
    def lost(self, worker: int) -> tuple[Starts, tuple[Held, ...], tuple[int, ...]]:
        after, _, gone = super().lost(worker)
        left = {one: by for one, by in self.under_way.items() if by != worker}
        return evolve(after, under_way=left), (), gone


class _FirstStart(Starts):
    def come(self, ready: Ready) -> tuple[Starts, tuple[int, ...]]:
        return super().come(evolve(ready, starts=ready.starts[:1] * len(ready.starts)))


def for_each(subject: Subject) -> Any:
    """Prepares for each command."""
    return _of(subject, _ForEach)


def frees_one(subject: Subject) -> Any:
    """Frees the first command alone; the others go on waiting."""
    return _of(subject, _FreesOne)


def forgets(subject: Subject) -> Any:
    """Forgets what a lost generator was preparing."""
    return _of(subject, _Forgets)


def first_start(subject: Subject) -> Any:
    """Gives all groups of a preparation its first start."""
    return _of(subject, _FirstStart)

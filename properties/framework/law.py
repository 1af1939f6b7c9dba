"""What a law is: an equation over drawn inputs, what it must have seen, and an edit it is there to catch."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from attrs import Factory, evolve, field, frozen
from hypothesis.strategies import SearchStrategy

from ...core.errors import ChoiceError, PurestepError, StructureError, choose, message

Subject = Any
Inputs = Any


class Broken(PurestepError, AssertionError):
    """A law does not hold for the inputs at hand."""


class Vacuous(PurestepError, AssertionError):
    """A law held, but what it speaks about never came."""


class NotHere(PurestepError, RuntimeError):
    """Raised by a law's `prepare` where this machine cannot run the law; it is then skipped for the reason given."""


@frozen
class Seen:
    """The tally of one run: which events came, and how often. `seen(name, happened)` counts."""

    events: dict[str, int] = Factory(dict)
    measured: dict[str, float] = Factory(dict)

    def __call__(self, name: str, happened: Any = True) -> None:
        """Counts the event if it happened; a bool tensor counts by whether any entry is true."""
        self.events[name] = self.events.get(name, 0) + int(bool(happened))

    def measure(self, name: str, value: float) -> None:
        """Notes a number that the night profile drives upwards while it searches."""
        self.measured[name] = max(value, self.measured.get(name, value))

    def add(self, other: "Seen") -> None:
        """Adds another tally's events to this one."""
        for name, count in other.events.items():
            self.events[name] = self.events.get(name, 0) + count


@frozen
class Mutant:
    """A plausible edit of a correct subject: `edit` in words, `make(subject)` the edited subject."""

    edit: str
    make: Callable[[Subject], Subject]


def _same(subject: Subject) -> Subject:
    return subject


def _is_word(law: Any, attribute: Any, value: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", value):
        wanted = "lower-case words joined by _"
        raise StructureError(message("Law: name", got=repr(value), wanted=wanted, remedy="rename the law"))


@frozen(kw_only=True)
class Law:
    """One law.

    `inputs(subject)` draws, `check(prepared, inputs, seen)` raises `Broken` or whatever the subject raises. `prepare` runs
    once, before the first draw (it compiles, say). `needs` are the events without which holding means nothing. `mutant` is
    what the law is for: an edit that it must catch. `least` is the first profile in which the law runs, and `most` caps the
    inputs it tries, where each is dear.
    """

    name: str = field(validator=_is_word)
    claim: str
    source: str
    inputs: Callable[[Subject], SearchStrategy[Inputs]]
    check: Callable[[Subject, Inputs, Seen], None]
    mutant: Mutant
    needs: tuple[str, ...] = ()
    prepare: Callable[[Subject], Subject] = _same
    least: str = "quick"
    most: int = 2000


@frozen
class Suite:
    """Laws under one name. `suite + (law,)` adds, `suite - {"name"}` removes, `suite["name"]` finds."""

    name: str
    laws: tuple[Law, ...]

    def __attrs_post_init__(self) -> None:
        names = [law.name for law in self.laws]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ChoiceError(message(self.name, got=f"{twice} twice", wanted="each law once", remedy="rename one"))

    def __iter__(self) -> Iterator[Law]:
        return iter(self.laws)

    def __len__(self) -> int:
        return len(self.laws)

    def __getitem__(self, name: str) -> Law:
        return choose(f"{self.name}: law", name, {law.name: law for law in self.laws})

    def __add__(self, more: Iterable[Law]) -> "Suite":
        return evolve(self, laws=(*self.laws, *more))

    def __sub__(self, names: AbstractSet[str]) -> "Suite":
        for name in names:
            _ = self[name]
        return evolve(self, laws=tuple(law for law in self.laws if law.name not in names))


def always(strategy: SearchStrategy[Inputs]) -> Callable[[Subject], SearchStrategy[Inputs]]:
    """The `inputs` of a law that draws the same whatever the subject is."""
    return lambda subject: strategy


def lifted(
    law: Law,
    to_function: Callable[[Subject], Subject],
    arguments: Callable[[Subject, Inputs], Inputs],
    **changes: Any,
) -> Law:
    """A law about functions as a law about something that holds one.

    `to_function(subject)` is what the law judges; `arguments(subject, drawn)` makes what it is called with of what the
    law's own `inputs` draw. `changes` replace the rest (claim, mutant, ...).
    """

    def prepare(subject: Subject) -> Subject:
        return subject, law.prepare(to_function(subject))

    def check(prepared: Subject, drawn: Inputs, seen: Seen) -> None:
        subject, function = prepared
        law.check(function, arguments(subject, drawn), seen)

    return evolve(law, prepare=prepare, check=check, **changes)


def reasons(suite: Suite, skip: Mapping[str, str] | None) -> dict[str, str]:
    """The skips of a suite. Raises: ChoiceError for an unknown law or an empty reason."""
    for name, reason in (skip or {}).items():
        law = suite[name]
        if not reason.strip():
            raise ChoiceError(message(f"skip[{law.name!r}]", got="empty", wanted="a reason", remedy="say why"))
    return dict(skip or {})

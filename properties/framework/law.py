"""Laws: an equation over drawn inputs, the events that must occur, and an edit of the subject that it must catch."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from attrs import Factory, evolve, field, frozen
from hypothesis.strategies import SearchStrategy

from ...core.errors import ChoiceError, PurestepError, StructureError, choose, message

Subject = Any
Inputs = Any

SHARE = 0.1  # of a law's draws in which an event that it needs must occur


class Broken(PurestepError, AssertionError):
    """A law does not hold for the inputs at hand; `got` and `wanted` are the tensors that differ, if two were compared."""

    got: Any = None
    wanted: Any = None


class Unlike(Broken):
    """Two values of a law have other types, shapes or dtypes."""


class Vacuous(PurestepError, AssertionError):
    """A law held, but an event that it needs never occurred."""


class NotHere(PurestepError, RuntimeError):
    """This machine cannot run the law. Raised by a law's `prepare`; the law is then skipped with the message as reason."""


@frozen
class Seen:
    """Counts of the events in one run of a law. `seen(name, happened)` counts one."""

    events: dict[str, int] = Factory(dict)
    measured: dict[str, float] = Factory(dict)

    def __call__(self, name: str, happened: Any = True) -> None:
        """Count the event if it happened: a bool, or a bool tensor of one entry."""
        self.events[name] = self.events.get(name, 0) + int(bool(happened))

    def measure(self, name: str, value: float) -> None:
        """Record the largest value of a number that the night profile maximizes in its search."""
        self.measured[name] = max(value, self.measured.get(name, value))

    def add(self, other: "Seen") -> None:
        """Count a run in which an event occurred, however often, as one more."""
        for name, count in other.events.items():
            self.events[name] = self.events.get(name, 0) + (count > 0)


@frozen
class Mutant:
    """A plausible edit of a correct subject: `edit` describes it, `make(subject)` returns the edited subject."""

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

    `inputs(subject)` is the strategy of its inputs, `check(prepared, inputs, seen)` raises `Broken` or an exception of the
    subject. `prepare` runs once, before the first draw (to compile, for example). `needs` are the events that must occur for
    a pass to count, each in at least the `share` of the draws. `mutant` is an edit of the subject that the law must catch.
    `least` is the first profile in which the law runs, and `most` limits the number of inputs where each is expensive.
    `numeric`: the claim is about numbers, so that a subject that does not promise equal bits may round, and one that is not
    written for tensors is called in another way (see `calling.py`).
    """

    name: str = field(validator=_is_word)
    claim: str
    source: str
    inputs: Callable[[Subject], SearchStrategy[Inputs]]
    check: Callable[[Subject, Inputs, Seen], None]
    mutant: Mutant
    needs: tuple[str, ...] = ()
    prepare: Callable[[Subject], Subject] = _same
    share: float = SHARE
    least: str = "quick"
    most: int = 2000
    numeric: bool = False


@frozen
class Suite:
    """Laws under one name. `suite + (law,)` adds, `suite - {"name"}` removes, `suite["name"]` returns a law."""

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
    """Return the `inputs` of a law whose strategy does not depend on the subject."""
    return lambda subject: strategy


def instead(wrong: Subject) -> Callable[[Subject], Subject]:
    """Return the edit that replaces any subject by this one."""
    return lambda subject: wrong


def law_constructor(
    drawn: Callable[[], SearchStrategy[Inputs]], source: str, *, replaced: bool = False, **fields: Any
) -> Callable[..., Law]:
    """Return a constructor of laws that share inputs, source and `fields`: (name, claim, mutant, check, *needs) -> Law.

    `drawn()` is the strategy of their inputs; pass `st.nothing` if each law has its own. A mutant may be a pair (edit, make),
    or with `replaced` (edit, wrong subject). Keywords of the constructor, also `inputs` (a strategy), replace shared values.
    """

    def construct(
        name: str,
        claim: str,
        mutant: Mutant | tuple[str, Callable[[Subject], Subject]],
        check: Callable[..., None],
        *needs: str,
        inputs: SearchStrategy[Inputs] | None = None,
        **own: Any,
    ) -> Law:
        given = always(drawn() if inputs is None else inputs)
        if not isinstance(mutant, Mutant):
            mutant = Mutant(mutant[0], instead(mutant[1]) if replaced else mutant[1])
        shared = {"source": source, **fields, **own}
        return Law(name=name, claim=claim, inputs=given, check=check, mutant=mutant, needs=needs, **shared)

    return construct


def lifted(
    law: Law,
    to_function: Callable[[Subject], Subject],
    arguments: Callable[[Subject, Inputs], Inputs],
    **changes: Any,
) -> Law:
    """Return a law about functions as a law about objects that contain one.

    `to_function(subject)` returns the function that the law checks; `arguments(subject, drawn)` makes the inputs of its
    `check` from those that the law's own `inputs` draw. `changes` replace other fields (claim, mutant, ...).
    """

    def prepare(subject: Subject) -> Subject:
        return subject, law.prepare(to_function(subject))

    def check(prepared: Subject, drawn: Inputs, seen: Seen) -> None:
        subject, function = prepared
        law.check(function, arguments(subject, drawn), seen)

    return evolve(law, prepare=prepare, check=check, **changes)


def reasons(suite: Suite, skip: Mapping[str, str] | None) -> dict[str, str]:
    """Return the skips of a suite as a dict. Raises: ChoiceError for an unknown law or an empty reason."""
    for name, reason in (skip or {}).items():
        law = suite[name]
        if not reason.strip():
            raise ChoiceError(message(f"skip[{law.name!r}]", got="empty", wanted="a reason", remedy="say why"))
    return dict(skip or {})

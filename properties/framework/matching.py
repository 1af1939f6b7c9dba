"""Matching of an object with the suites that fit it, by its name, parameters, annotations, classes and docstring.

Nothing of the object is called: its signature is read, and annotations are evaluated as far as they can be.
"""

import inspect
import re
import typing
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from attrs import frozen

from ..adapters import ADAPTERS, Adapter
from .catalogue import NAMES, ROWS, CatalogueRow

CERTAIN = 45  # the least score with which a suite is chosen without --suite
OFFERED = 15  # and the least with which it is offered
BASE, NAME, METHODS, ROLES, WORDS = 60, 35, 40, 50, 10  # shares of a score
ALONE = 15  # more for the name, where a row has no other marks


@frozen
class Marks:
    """Readable marks of an object, the input of matching."""

    name: str
    parameters: tuple[str, ...]  # that a call takes, without self
    required: tuple[str, ...]
    bases: tuple[str, ...]  # qualified names of its class and that class's bases
    returned: tuple[str, ...]  # the same of the class that its annotation says it returns
    methods: frozenset[str]
    doc: str
    is_class: bool
    place: str = ""  # qualified name of a function
    takes_any_keyword: bool = False


@frozen
class Match:
    """A suite that may fit an object, with a score and the reasons for it."""

    row: CatalogueRow
    score: int
    reasons: tuple[str, ...]
    roles: dict[str, str]  # role -> parameter of the object
    calls: bool = False  # whether the suite is about what the object returns when it is called

    def line(self) -> str:
        """Return the match as a line for a list of offers."""
        return f"{self.row.suite} ({self.score}): {'; '.join(self.reasons)}"


def marks_of(value: Any) -> Marks:
    """Return the marks of an object, a function or a class; nothing of it is called.

    >>> def gae(rewards: list, values: list, gamma: float = 0.99) -> list:
    ...     "Generalized advantages."
    >>> found = marks_of(gae)
    >>> found.name, found.parameters, found.required
    ('gae', ('rewards', 'values', 'gamma'), ('rewards', 'values'))
    """
    is_class = inspect.isclass(value)
    plain = inspect.unwrap(value) if inspect.isroutine(value) else value
    while hasattr(plain, "func") and hasattr(plain, "keywords"):  # functools.partial
        plain = plain.func
    kind = value if is_class else type(value)
    function = inspect.isroutine(value) or kind.__name__ == "partial"
    signature = _signature(value)
    rows = [p for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    name = getattr(plain, "__name__", None) or kind.__name__
    return Marks(
        name=str(name),
        parameters=tuple(p.name for p in rows),
        required=tuple(p.name for p in rows if p.default is p.empty),
        bases=() if function else _qualified(kind),
        returned=tuple(_returned(plain)) if function else (),
        methods=frozenset()
        if function
        else frozenset(n for n in dir(kind) if not n.startswith("__") or n == "__call__"),
        doc=str(getattr(plain if function else kind, "__doc__", "") or "").strip().split("\n\n")[0],
        is_class=is_class,
        place=f"{getattr(plain, '__module__', '')}.{name}" if function else "",
        takes_any_keyword=any(p.kind is p.VAR_KEYWORD for p in signature),
    )


def _signature(value: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):  # not callable, or written in C
        return []


def _qualified(kind: type) -> tuple[str, ...]:
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__ if base is not object)


def _returned(function: Any) -> Iterator[str]:
    hint: Any = getattr(function, "__annotations__", {}).get("return")
    if isinstance(hint, str):
        with suppress(Exception):  # an annotation may name what cannot be imported here
            hint = typing.get_type_hints(function).get("return", hint)
    if isinstance(hint, str):
        yield hint
    for part in (typing.get_origin(hint) or hint, *typing.get_args(hint)):
        if inspect.isclass(part):
            yield from _qualified(part)


def is_kind(wanted: str, found: Sequence[str]) -> bool:
    """Return whether a class is among qualified names; the wanted name may leave out modules between package and class.

    >>> is_kind("torch.optim.Optimizer", ["torch.optim.adam.Adam", "torch.optim.optimizer.Optimizer"])
    True
    """
    package, _, name = wanted.rpartition(".")
    return any(one.endswith(f".{name}") and one.startswith(f"{package}.") for one in found)


def _nearest(wanted: Sequence[str], found: Sequence[str]) -> tuple[str, int]:
    """Return the first of the qualified names that is of a wanted class, and its place in the order of resolution."""
    for place, name in enumerate(found):
        base = next((one for one in wanted if is_kind(one, [name])), "")
        if base:
            return base, min(place, 10)
    return "", 0


def adapter_of(suite: str, marks: Marks) -> Adapter | None:
    """Return the adapter with which a suite takes an object, that of the nearest class first; None where there is none.

    >>> class Pong: ...
    >>> adapter_of("gym", marks_of(Pong)) is None
    True
    """
    known = {one.kind: one for one in ADAPTERS if one.suite == suite}
    places = ((marks.place,), marks.bases, marks.returned)
    return next((known[near] for names in places if (near := _nearest(list(known), names)[0])), None)


def parameter_roles(row: CatalogueRow, parameters: Sequence[str]) -> dict[str, str]:
    """Return which parameter of an object plays which role of a row's subject; each parameter plays one.

    >>> from .catalogue import rows
    >>> parameter_roles(rows()["kl"], ["logprobs", "ref_logprobs"])
    {'log_prob': 'logprobs', 'reference_log_prob': 'ref_logprobs'}
    """
    return roles_among([*row.needs, *row.may, *row.derived], parameters)


def roles_among(wanted: Sequence[str], parameters: Sequence[str]) -> dict[str, str]:
    """Return which parameter plays which of the wanted roles: by its own name first, then by any that the field gives it."""
    free, found = list(parameters), dict[str, str]()
    for exact in (True, False):
        for role in wanted:
            pattern = re.escape(role) if exact else NAMES.get(role, role)
            name = next((n for n in free if re.fullmatch(pattern, n.strip("_"), re.IGNORECASE)), None)
            if role not in found and name is not None:
                found[role] = name
                free.remove(name)
    return {role: found[role] for role in wanted if role in found}


def match(row: CatalogueRow, marks: Marks) -> Match:
    """Return how well one suite fits."""
    score, reasons, calls = 0, [], False
    base, far = _nearest(row.bases, marks.bases)
    made, away = _nearest(row.bases, marks.returned)
    adapter = adapter_of(row.suite, marks)
    if adapter is not None:
        score += BASE + METHODS
        reasons.append(f"an adapter takes {adapter.kind}")
    elif base or made:
        score += BASE - (far if base else away)  # the class itself fits better than a base of a base
        calls = bool(made) and not base
        reasons.append(f"returns {made}" if calls else f"is a kind of {base}")
    elif row.methods and all(re.search(rf"(?m)^({m})$", "\n".join(marks.methods)) for m in row.methods):
        score += METHODS
        reasons.append(f"has the methods {', '.join(row.methods)}")
    if row.names and re.search(row.names, marks.name):
        score += NAME if row.needs or row.bases or row.methods else NAME + ALONE
        reasons.append(f"its name is {marks.name}")
    roles = parameter_roles(row, marks.parameters) if row.needs and not marks.is_class else {}
    if roles:
        stood = {role for made in roles for role in (made, *row.instead.get(made, ()))}
        share = sum(role in stood for role in row.needs) / len(row.needs)
        told = sum(name in roles.values() for name in marks.required) / max(1, len(marks.required))
        score += round(ROLES * share * (0.5 + 0.5 * told))
        reasons.append(f"takes {', '.join(n if n == r else f'{n} ({r})' for r, n in roles.items())}")
    if row.words and re.search(row.words, marks.doc):
        score += WORDS
        reasons.append("its docstring names it")
    return Match(row, score, tuple(reasons), roles, calls)


def matches(value: Any, rows: Sequence[CatalogueRow] = ROWS) -> list[Match]:
    """Return the suites that may fit an object, best first.

    >>> from ...algorithms.advantages import gae
    >>> matches(gae)[0].row.suite
    'estimator'
    """
    marks = marks_of(value)
    found = sorted((match(row, marks) for row in rows), key=lambda one: -one.score)
    return [one for one in found if one.score >= OFFERED]

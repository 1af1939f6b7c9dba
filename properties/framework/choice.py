"""The suite for an object: found by its name, parameters, classes and docstring, or named; nothing but the object is called."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, fields, frozen, has

from ...core.errors import PurestepError, StructureError, choose, describe_error, message
from .catalogue import ROWS, CatalogueRow, import_named, rows, suite_of
from .matching import CERTAIN, Match, matches
from .verdict import NoVerdict

if TYPE_CHECKING:
    from .law import Law, Suite

CALL = "add --call to check the object that it returns"
WHOLE = 40  # more for a class whose calls take all that a suite gives


@frozen
class Chosen:
    """The subject and the suite to check it with, the reasons for the suite, and the other suites that may fit."""

    row: CatalogueRow
    subject: Any
    suite: "Suite"
    reasons: tuple[str, ...] = ()
    others: tuple[Match, ...] = ()
    declared: Mapping[str, Any] = field(factory=dict)
    own: tuple[str, ...] = ()  # keywords that the user declares
    reading: str = ""  # in words, where it is not the first

    def line(self) -> str:
        """Return the choice in one line."""
        others = ", ".join(f"{one.row.suite} ({one.score})" for one in self.others)
        why = f", because {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.suite.name}{why}" + (f"; --suite offers {others}" if others else "")


def choose_laws(
    value: Any,
    suite: str = "",
    *,
    call: bool = False,
    declared: Mapping[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Chosen:
    """Return the object to check and the laws for it; with `call`, the object is the result of `value()`.

    `declared` are keywords of the suite, `given` values or strategies of parameters that the suite does not know (with `call`,
    of the call). Without `call`, nothing is called. Raises: StructureError if no suite is named and none fits for certain, or
    if the object is not of the class that the suite needs; ChoiceError for an unknown suite.

    >>> from purestep.core.envs.cartpole import cartpole
    >>> choose_laws(cartpole, call=True).suite.name
    'env_laws'
    >>> choose_laws(cartpole, "env")
    Traceback (most recent call last):
    purestep.properties.framework.verdict.NoVerdict: verify: object is a function, wanted Env; add --call to check \
the object that it returns
    """
    from .binding import curried, is_curried, subject_for
    from .matching import adapter_of, marks_of

    table = rows()
    if suite:
        choose("verify: suite", suite, table)
    subject = _called(value, given or {}) if call else value
    found = matches(subject)
    if is_curried(subject):
        found = as_function(subject, found)
        if table[suite].signature.form == "f" if suite else found and found[0].roles:
            subject = curried(subject)
    if suite:
        row = table[suite]
        reasons = next((one.reasons for one in found if one.row.suite == suite), ())
    else:
        row, reasons = best_row(subject, found)
    if adapter_of(row.suite, marks_of(subject)) is None:
        _check_kind(row, subject)
    subject, forms = subject_for(row, subject, {} if call else given)
    others = tuple(one for one in found if one.row is not row)
    words = {**forms, **(declared or {})}
    return Chosen(row, subject, suite_for(row, words, subject), reasons, others, words, tuple(declared or ()))


def as_function(value: type, found: Sequence[Match]) -> list[Match]:
    """Return matches of a class with those of the function that its constructor and its call are together, best first."""
    from .binding import curried

    functions = [one for one in matches(curried(value)) if one.row.signature.form == "f"]
    whole = [evolve(one, score=one.score + WHOLE) if set(one.row.needs) <= _played(one) else one for one in functions]
    return sorted((*whole, *found), key=lambda one: -one.score)


def _played(one: Match) -> set[str]:
    return {role for made in one.roles for role in (made, *one.row.instead.get(made, ()))}


def suite_for(row: CatalogueRow, words: Mapping[str, Any], subject: Any) -> "Suite":
    """Return the suite with these keywords, for endings of one kind where the object knows one alone."""
    roles = set(getattr(subject, "roles", ()))
    merged = {"ended", "discount"} & roles & set(row.derived) and not {"terminated", "truncated"} <= roles
    return with_merged_endings(suite_of(row, words)) if merged else suite_of(row, words)


def with_merged_endings(suite: "Suite") -> "Suite":
    """Return the suite for objects that know one kind of ending: each truncation is drawn as a termination."""
    return evolve(suite, laws=tuple(_merged(law) for law in suite.laws))


def _merged(law: "Law") -> "Law":
    needs = tuple(need for need in law.needs if "truncation" not in need)
    return evolve(law, inputs=lambda subject: law.inputs(subject).map(merge_endings), needs=needs)


def merge_endings(drawn: Any) -> Any:
    """Return drawn inputs without truncations: an ending is a termination."""
    if isinstance(drawn, tuple) and not hasattr(drawn, "_fields"):
        return tuple(merge_endings(one) for one in drawn)
    if not has(type(drawn)):
        return drawn
    changes = {f.name: merge_endings(getattr(drawn, f.name)) for f in fields(type(drawn)) if f.init}
    if {"terminated", "truncated"} <= set(changes):
        changes["terminated"] = changes["terminated"] | changes["truncated"]
        changes["truncated"] = changes["truncated"] & ~changes["truncated"]
    return evolve(drawn, **changes)


def best_row(subject: Any, found: Sequence[Match]) -> tuple[CatalogueRow, tuple[str, ...]]:
    """Return the suite that fits for certain. Raises: StructureError, with those that may fit."""
    best = found[0] if found else None
    suites = f"--suite {' | '.join(row.suite for row in ROWS)}"
    if best and best.score >= CERTAIN and not best.calls:
        return best.row, best.reasons
    offers = "; ".join(one.line() for one in found[:3])
    wanted = f"an object that a suite fits for certain (may fit: {offers})" if offers else "an object that a suite fits"
    remedy = f"{CALL}, or say which laws: {suites}" if callable(subject) else f"say which laws: {suites}"
    raise NoVerdict(message("verify: object", got=_kind(subject), wanted=wanted, remedy=remedy))


def _check_kind(row: CatalogueRow, subject: Any) -> None:
    got, suites = _kind(subject), f"--suite {' | '.join(row.suite for row in ROWS)}"
    if row.kind[1]:
        if not isinstance(subject, import_named(row.kind)):
            remedy = CALL if callable(subject) else f"name another object, or other laws: {suites}"
            raise NoVerdict(message("verify: object", got=got, wanted=row.kind[1], remedy=remedy))
    elif row.signature.form and not callable(subject) and not isinstance(subject, str):
        remedy = "name another object or other laws"
        raise NoVerdict(message(f"verify: object for {row.suite}", got=got, wanted="a function", remedy=remedy))


def _called(value: Any, given: Mapping[str, Any]) -> Any:
    missing = _required(value)
    absent = [name for name in missing if name not in given]
    if not callable(value) or absent:
        remedy = f"add {' '.join(f'--with {name}=VALUE' for name in absent)}" if absent else "leave --call out"
        if not callable(value) or not missing:
            remedy = "leave --call out, or name a function that needs no arguments"
        wanted = "a function without arguments"
        raise NoVerdict(message("verify: --call", got=_kind(value), wanted=wanted, remedy=remedy), missing=absent)
    try:
        return value(**given)
    except PurestepError:
        raise
    except Exception as error:
        remedy = "mend the function, or name an object"
        raise StructureError(
            message("verify: --call", got=describe_error(error), wanted="an object", remedy=remedy)
        ) from error


def _required(value: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ["its arguments"]
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"

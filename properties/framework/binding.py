"""A function of other parameter names, called as a suite calls its subject."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen
from hypothesis.strategies import SearchStrategy

from ...core.errors import StructureError, choose, described, message
from ..adapters import Adapter
from .catalogue import CatalogueRow, named
from .matching import adapter_of, marks_of, roles_of


@frozen
class Bound:
    """A function with the roles of its parameters; `extras` are strategies of parameters that the suite does not draw."""

    function: Callable[..., Any]
    positional: tuple[str, ...]  # roles in the order in which the suite gives them
    roles: Mapping[str, str]  # role -> parameter
    fixed: Mapping[str, Any]
    extras: Mapping[str, SearchStrategy[Any]]
    drawn: dict[str, Any]  # of `extras`, in the current example

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def with_function(self, function: Callable[..., Any]) -> "Bound":
        """Return the same call of another function."""
        return evolve(self, function=function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function by its own names, without the roles that it does not take; return the first of several results."""
        given = {**dict(zip(self.positional, arguments, strict=False)), **named}
        words = {self.roles[role]: value for role, value in given.items() if role in self.roles}
        result = self.function(**words, **self.fixed, **self.drawn)
        several: Any = result
        return several[0] if type(result) is tuple and len(several) > 0 else result


def roles_in(row: CatalogueRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the positional and the keyword roles of a row's signature.

    >>> from .catalogue import rows
    >>> roles_in(rows()["loss"])
    (('log_prob', 'behaviour_log_prob', 'advantage'), ('clip',))
    """
    inside = re.sub(r"\[[^]]*\]", "", row.signature.partition("(")[2].rpartition(")")[0])
    names = [word.strip().partition("=")[0].strip() for word in inside.split(",")]
    star = names.index("*") if "*" in names else len(names)
    return tuple(names[:star]), tuple(n for n in names[star + 1 :] if n.isidentifier())


def subject_for(row: CatalogueRow, value: Any, given: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return a suite's subject made of an object, and the keywords that the object's form declares for the suite.

    `given` are values or strategies of further parameters. Raises: StructureError if nobody can draw one, with its name.
    """
    given, adapter = dict(given or {}), adapter_of(row.suite, marks_of(value))
    if adapter is not None:
        return _adapted(adapter, value, given)
    if row.signature.startswith("f(") and _takes_any(value):  # positions without names are the suite's own
        return value, {}
    if row.adapt[1]:
        adapted: tuple[Any, dict[str, Any]] = named(row.adapt)(value, given)
        return adapted
    marks = marks_of(value)
    positional, keywords = roles_in(row)
    if not row.needs or not row.signature.startswith("f(") or not marks.parameters:
        return value, {}
    if (
        not given
        and marks.parameters[: len(positional)] == positional
        and set(marks.required) <= {*positional, *keywords}
    ):
        return value, {}
    return bound(row, value, given), {}


def _adapted(adapter: Adapter, value: Any, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    module = importlib.import_module(f"..adapters.{adapter.make[0]}", __package__)
    make, declared = getattr(module, adapter.make[1]), adapter.declared
    takes = inspect.signature(make).parameters
    for name in given if not any(p.kind is p.VAR_KEYWORD for p in takes.values()) else ():
        choose(f"--with: an option of {adapter.kind}", name, dict.fromkeys(list(takes)[1:]))
    try:
        return make(value, **given), dict(getattr(module, declared)(value) if isinstance(declared, str) else declared)
    except Exception as error:
        remedy = "name an object of this kind, not its class, or adapt it in Python: docs/laws.md"
        where, wanted = f"verify: {marks_of(value).name}", f"what its adapter takes: {adapter.kind}"
        raise StructureError(message(where, got=described(error), wanted=wanted, remedy=remedy)) from error


def _takes_any(value: Any) -> bool:
    try:
        kinds = {parameter.kind for parameter in inspect.signature(value).parameters.values()}
    except (TypeError, ValueError):
        return False
    return inspect.isfunction(value) and inspect.Parameter.VAR_POSITIONAL in kinds


def bound(
    row: CatalogueRow,
    value: Any,
    given: Mapping[str, Any],
    *,
    needs: tuple[str, ...] | None = None,
    roles: Mapping[str, str] | None = None,
    positional: tuple[str, ...] | None = None,
) -> Bound:
    """Return a function bound to the roles of a row; `roles` says those that names do not, `positional` another order.

    Raises: StructureError for a parameter that nobody can draw.
    """
    marks, known = marks_of(value), dict(roles or {})
    positional = roles_in(row)[0] if positional is None else positional
    left = [name for name in marks.parameters if name not in given and name not in known.values()]
    roles = {**roles_of(row, left), **known}
    where = f"verify: {marks.name} as {row.suite}"
    unknown = [name for name in marks.required if name not in roles.values() and name not in given]
    if unknown:
        remedy = f"add --with {unknown[0]}=VALUE_OR_STRATEGY"
        raise StructureError(
            message(
                where,
                got=f"a function of {', '.join(unknown)}",
                wanted="parameters that the suite draws",
                remedy=remedy,
            )
        )
    missing = [role for role in (row.needs if needs is None else needs) if role not in roles]
    if missing:
        remedy = f"the suite calls {row.signature}: wrap it, or name another --suite"
        raise StructureError(
            message(where, got=f"a function without {', '.join(missing)}", wanted="one with them", remedy=remedy)
        )
    strategies = {name: x for name, x in given.items() if isinstance(x, SearchStrategy)}
    fixed = {name: x for name, x in given.items() if name not in strategies}
    return Bound(value, positional, roles, fixed, strategies, {})

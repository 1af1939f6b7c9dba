"""A function of other parameter names, called as a suite calls its subject."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve, field, frozen
from hypothesis.strategies import SearchStrategy

from ...core.errors import choose, describe_error, message
from ..adapters import Adapter
from .catalogue import CatalogueRow, import_named
from .matching import Marks, adapter_of, marks_of, parameter_roles, roles_among
from .verdict import NoVerdict


@frozen
class Bound:
    """A function with the roles of its parameters; `extras` are strategies of parameters that the suite does not draw."""

    function: Callable[..., Any]
    positional: tuple[str, ...]  # roles in the order in which the suite gives them
    roles: Mapping[str, str]  # role -> parameter
    fixed: Mapping[str, Any]
    extras: Mapping[str, SearchStrategy[Any]]
    drawn: dict[str, Any]  # of `extras`, in the current example
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(
        factory=dict
    )  # roles made of those that the suite gives
    inputs: Callable[[Any], Any] | None = None  # of inputs that the object tells apart no more, such as merged endings

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def with_function(self, function: Callable[..., Any]) -> "Bound":
        """Return the same call of another function."""
        return evolve(self, function=function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function by its own names, without the roles that it does not take; return the first of several results."""
        several = self.all_results(*arguments, **named)
        return several[0] if type(several) is tuple and len(several) > 0 else several

    def all_results(self, *arguments: Any, **named: Any) -> Any:
        """Call the function, and return all that it returns."""
        given = {**dict(zip(self.positional, arguments, strict=False)), **named}
        given.update({role: make(given) for role, make in self.derived.items() if role in self.roles})
        words = {self.roles[role]: value for role, value in given.items() if role in self.roles}
        return self.function(**words, **self.fixed, **self.drawn)


def subject_for(row: CatalogueRow, value: Any, given: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return a suite's subject made of an object, and the keywords that the object's form declares for the suite.

    `given` are values or strategies of further parameters. Raises: NoVerdict if nobody can draw one, with its name.
    """
    given, adapter = dict(given or {}), adapter_of(row.suite, marks_of(value))
    if adapter is not None:
        return _adapted(adapter, value, given)
    if row.signature.form == "f" and _takes_any(value):  # positions without names are the suite's own
        return value, {}
    if inspect.isclass(value) and not row.adapt[1]:
        return constructor(row, value, given), {}
    if row.adapt[1]:
        adapted: tuple[Any, dict[str, Any]] = import_named(row.adapt)(value, given)
        return adapted
    marks = marks_of(value)
    positional, keywords = row.signature.roles()
    if not row.needs or row.signature.form != "f" or not marks.parameters:
        return value, {}
    if not given and is_called_as(marks, positional, keywords):
        return value, {}
    return bound(row, value, given), {}


def is_called_as(marks: Marks, positional: Sequence[str], keywords: Sequence[str]) -> bool:
    """Return whether a function takes these arguments as the suite gives them: positional first, and each keyword by its name.

    >>> def gae(rewards, values, gamma=0.99, lam=0.95): ...
    >>> is_called_as(marks_of(gae), ("rewards", "values"), ("gamma", "lambda_"))
    False
    """
    in_order = marks.parameters[: len(positional)] == tuple(positional)
    named = marks.takes_any_keyword or set(keywords) <= {*marks.parameters}
    return in_order and named and {*marks.required} <= {*positional, *keywords}


def curried(value: type) -> Callable[..., Any]:
    """Return a class that is called after its construction as one function of both calls' parameters.

    >>> class Scale:
    ...     def __init__(self, factor=2.0):
    ...         self.factor = factor
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> curried(Scale)(x=3.0, factor=4.0)
    12.0
    """
    method = value.__call__ if _calls(value) == "__call__" else value.forward  # type: ignore[attr-defined]
    made = _plain_parameters(value.__init__)  # type: ignore[misc]
    called = _plain_parameters(method)
    names = {parameter.name for parameter in made}

    def function(**words: Any) -> Any:
        return value(**{k: v for k, v in words.items() if k in names})(
            **{k: v for k, v in words.items() if k not in names}
        )

    function.__name__, function.__doc__, function.__module__ = value.__name__, value.__doc__, value.__module__
    both = [p.replace(kind=p.KEYWORD_ONLY) for p in (*called, *made)]
    function.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
    return function


def _plain_parameters(function: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def _calls(value: type) -> str:
    own = [name for base in value.__mro__ if not base.__module__.startswith("torch.") for name in vars(base)]
    return "__call__" if "__call__" in own else "forward" if "forward" in own else ""


def is_curried(value: Any) -> bool:
    """Return whether a class is made to be called: it has `__call__` or `forward`, of other parameters."""
    if not inspect.isclass(value) or not _calls(value):
        return False
    try:
        made, called = _plain_parameters(value.__init__), _plain_parameters(getattr(value, _calls(value)))
    except (TypeError, ValueError):
        return False
    return bool(called) and not {p.name for p in made} & {p.name for p in called}


def constructor(row: CatalogueRow, value: Any, given: Mapping[str, Any]) -> Any:
    """Return a class as the suite constructs its subject: by its own names, with the values given for further parameters.

    Raises: NoVerdict for a parameter that has no value.

    >>> from .catalogue import rows
    >>> class Buffer:
    ...     def __init__(self, max_size): ...
    >>> constructor(rows()["replay"], Buffer, {}) is Buffer
    True
    """
    marks = marks_of(value)
    signature, positional = row.signature, row.signature.roles()[0]
    wanted = [role for role in positional if role.isidentifier()] if signature.form == "make" else []
    if signature.form == "make" and positional[:1] and positional[0].startswith("*"):
        return partial(value, **given) if given else value
    left = [name for name in marks.parameters if name not in given]
    roles = roles_among(wanted, left)
    if len(wanted) == 1 and not roles and left:
        roles = {wanted[0]: left[0]}
    missing = [name for name in marks.required if name not in roles.values() and name not in given]
    if missing:
        remedy = f"add {' '.join(f'--with {name}=VALUE' for name in missing)}"
        got, wants = f"a class whose constructor takes {', '.join(missing)}", "arguments that the suite gives"
        raise NoVerdict(
            message(f"verify: {marks.name} as {row.suite}", got=got, wanted=wants, remedy=remedy),
            missing=missing,
            row=row.suite,
        )
    in_order = list(roles.values()) == left[: len(roles)] and list(roles) == wanted[: len(roles)]
    if not given and in_order and len(roles) == len(wanted):
        return value
    return Bound(value, tuple(wanted), roles, dict(given), {}, {})


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
        raise NoVerdict(message(where, got=describe_error(error), wanted=wanted, remedy=remedy)) from error


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
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
) -> Bound:
    """Return a function bound to the roles of a row; `roles` says those that names do not, `positional` another order.

    `derived` makes further roles of those that the suite gives, beside the row's own.

    Raises: NoVerdict for a parameter that nobody can draw.
    """
    marks, known = marks_of(value), dict(roles or {})
    positional = row.signature.roles()[0] if positional is None else positional
    left = [name for name in marks.parameters if name not in given and name not in known.values()]
    roles = {**parameter_roles(row, left), **known}
    where = f"verify: {marks.name} as {row.suite}"
    unknown = [name for name in marks.required if name not in roles.values() and name not in given]
    if unknown:
        remedy = f"add {' '.join(f'--with {name}=VALUE_OR_STRATEGY' for name in unknown)}"
        got, wanted = f"a function of {', '.join(unknown)}", "parameters that the suite draws"
        raise NoVerdict(message(where, got=got, wanted=wanted, remedy=remedy), missing=unknown, row=row.suite)
    known_by = {role for made in roles for role in (made, *row.instead.get(made, ()))}
    missing = [role for role in (row.needs if needs is None else needs) if role not in known_by]
    if missing:
        remedy = f"the suite calls {row.signature}: wrap it, or name another --suite"
        raise NoVerdict(
            message(where, got=f"a function without {', '.join(missing)}", wanted="one with them", remedy=remedy),
            row=row.suite,
        )
    strategies = {name: x for name, x in given.items() if isinstance(x, SearchStrategy)}
    fixed = {name: x for name, x in given.items() if name not in strategies}
    derived = {**{role: make for role, make in row.derived.items() if role not in positional}, **(derived or {})}
    return Bound(value, positional, roles, fixed, strategies, {}, derived)

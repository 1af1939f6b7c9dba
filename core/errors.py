"""Errors: one line each, saying what was got, what was wanted and what to do."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

import attrs

T = TypeVar("T")


class PurestepError(Exception):
    """The root of every error purestep raises on purpose."""


class ShapeError(PurestepError, ValueError):
    """A tensor has the wrong shape."""


class DtypeError(PurestepError, TypeError):
    """A tensor has the wrong dtype."""


class StructureError(PurestepError, TypeError):
    """A value is not the record or tree that was wanted."""


class FrozenError(PurestepError, attrs.exceptions.FrozenInstanceError):
    """A record was written to."""

    __init__ = AttributeError.__init__  # attrs' own constructor takes no text


class ChoiceError(PurestepError, ValueError):
    """A name or number is not among those allowed."""


class NonFiniteError(PurestepError, ArithmeticError):
    """A reward, loss or parameter became NaN or infinite."""


class CheckpointError(PurestepError, RuntimeError):
    """A checkpoint is damaged, of another schema or of another architecture."""


class TrustError(PurestepError, RuntimeError):
    """A run's folder names code that the command line does not name."""


class RecompileError(PurestepError, RuntimeError):
    """A program was compiled again after its warm-up."""


def message(where: str, *, got: object, wanted: object, remedy: str) -> str:
    """Formats the one line every error carries.

    >>> message("gae: values", got="[5]", wanted="[4]", remedy="pass the last value as next_values")
    'gae: values is [5], wanted [4]; pass the last value as next_values'
    """
    return f"{where} is {got}, wanted {wanted}; {remedy}"


def choose(where: str, name: str, table: Mapping[str, T]) -> T:
    """Returns table[name].

    Raises: ChoiceError, with the names that exist and the nearest of them.

    >>> choose("reset", "pooled", {"select": 1, "pooled": 2})
    2
    """
    if name in table:
        return table[name]
    near = difflib.get_close_matches(str(name), table, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else "choose one of these"
    raise ChoiceError(message(where, got=repr(name), wanted=f"one of {sorted(table)}", remedy=remedy))

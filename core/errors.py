"""Errors: one line each, saying what was got, what was wanted and what to do."""

import difflib
import math
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


class WorldError(PurestepError, RuntimeError):
    """An environment, or a reward or tool of it, raised where no episode could be marked, or in every episode of a batch."""


class RecompileError(PurestepError, RuntimeError):
    """A program was compiled again after its warm-up."""


class CompileError(PurestepError, RuntimeError):
    """A function does not compile as one graph."""


def described(error: BaseException, *, limit: int = 300) -> str:
    """The class and text of an error in one line, cut at `limit` characters.

    >>> described(ValueError("no\\nnumber"))
    'ValueError: no number'
    """
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def message(where: str, *, got: object, wanted: object, remedy: str) -> str:
    """Formats the one line every error carries.

    >>> message("gae: values", got="[5]", wanted="[4]", remedy="pass the last value as next_values")
    'gae: values is [5], wanted [4]; pass the last value as next_values'
    """
    return f"{where} is {got}, wanted {wanted}; {remedy}"


def at_least(where: str, count: int, least: int) -> None:
    """Raises ChoiceError unless `count` is a whole number, `least` or more.

    >>> at_least("trainer: envs", 0, 1)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: trainer: envs is 0, wanted a whole number, 1 or more; change it
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        wanted = f"a whole number, {least} or more"
        raise ChoiceError(message(where, got=repr(count), wanted=wanted, remedy="change it"))


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


def check_within(where: str, number: float, low: float, high: float = math.inf) -> None:
    """Raises ChoiceError unless low <= number <= high.

    >>> check_within("--gamma", 99, 0.0, 1.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --gamma is 99, wanted a number from 0.0 to 1.0; change it
    """
    if not low <= number <= high:
        raise ChoiceError(message(where, got=number, wanted=f"a number from {low} to {high}", remedy="change it"))

"""Errors: one line each, with the value got, the value wanted and the remedy."""

import difflib
import math
from collections.abc import Mapping
from typing import TypeVar

import attrs

T = TypeVar("T")


class PurestepError(Exception):
    """Base class of all errors that purestep raises intentionally."""


class ShapeError(PurestepError, ValueError):
    """Wrong shape of a tensor."""


class DtypeError(PurestepError, TypeError):
    """Wrong dtype of a tensor."""


class StructureError(PurestepError, TypeError):
    """A value other than the expected record or tree."""


class FrozenError(PurestepError, attrs.exceptions.FrozenInstanceError):
    """A write to a record."""

    __init__ = AttributeError.__init__  # attrs' own constructor takes no text


class ChoiceError(PurestepError, ValueError):
    """A name or number that is not allowed."""


class NonFiniteError(PurestepError, ArithmeticError):
    """NaN or infinity in a reward, loss or parameter."""


class CheckpointError(PurestepError, RuntimeError):
    """A damaged checkpoint, or one of another schema or architecture."""


class TrustError(PurestepError, RuntimeError):
    """Code named in a run's folder, but not on the command line."""


class WorldError(PurestepError, RuntimeError):
    """An exception of an environment, reward or tool, outside an episode to mark as failed or in all episodes of a batch."""


class RecompileError(PurestepError, RuntimeError):
    """Recompilation of a program after its warm-up."""


class CompileError(PurestepError, RuntimeError):
    """A function that does not compile as one graph."""


class ExportError(PurestepError, RuntimeError):
    """A policy that cannot be exported, or a file whose actions are not the policy's."""


def describe_error(error: BaseException, *, limit: int = 300) -> str:
    """Return the class and text of an error in one line, truncated to `limit` characters.

    >>> describe_error(ValueError("no\\nnumber"))
    'ValueError: no number'
    """
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def message(where: str, *, got: object, wanted: object, remedy: str) -> str:
    """Return the one-line text of an error.

    >>> message("gae: values", got="[5]", wanted="[4]", remedy="pass the last value as next_values")
    'gae: values is [5], wanted [4]; pass the last value as next_values'
    """
    return f"{where} is {got}, wanted {wanted}; {remedy}"


def at_least(where: str, count: int, least: int) -> None:
    """Raise ChoiceError unless `count` is a whole number, `least` or more.

    >>> at_least("trainer: envs", 0, 1)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: trainer: envs is 0, wanted a whole number, 1 or more; change it
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        wanted = f"a whole number, {least} or more"
        raise ChoiceError(message(where, got=repr(count), wanted=wanted, remedy="change it"))


def choose(where: str, name: str, table: Mapping[str, T]) -> T:
    """Return table[name].

    Raises: ChoiceError, with the existing names and the nearest of them.

    >>> choose("reset", "pooled", {"select": 1, "pooled": 2})
    2
    """
    if name in table:
        return table[name]
    near = difflib.get_close_matches(str(name), table, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else "choose one of these"
    raise ChoiceError(message(where, got=repr(name), wanted=f"one of {sorted(table)}", remedy=remedy))


def check_within(where: str, number: float, low: float, high: float = math.inf) -> None:
    """Raise ChoiceError unless low <= number <= high.

    >>> check_within("--gamma", 99, 0.0, 1.0)
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --gamma is 99, wanted a number from 0.0 to 1.0; change it
    """
    if not low <= number <= high:
        raise ChoiceError(message(where, got=number, wanted=f"a number from {low} to {high}", remedy="change it"))

"""Identities of functions as people get them wrong."""

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

Identity = Callable[[Callable[..., Any]], bytes]


def _code(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function).__code__


def _cells(function: Callable[..., Any]) -> list[Any]:
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


def code_alone(identity: Identity) -> Identity:
    """Hashes bytecode and its constants, not what the function closes over."""
    del identity

    def bytecode(function: Callable[..., Any]) -> bytes:
        code = _code(function)
        return hashlib.sha256(code.co_code + repr(code.co_consts).encode()).digest()

    return bytecode


def by_place(identity: Identity) -> Identity:
    """Uses the default repr of what is closed over, which holds an address."""

    def placed(function: Callable[..., Any]) -> bytes:
        return identity(function) + repr([object.__repr__(one) for one in _cells(function)] + [id(function)]).encode()

    return placed


def shallow(identity: Identity) -> Identity:
    """Describes functions at the first level, and of what they hold only the types."""

    def first_level(function: Callable[..., Any]) -> bytes:
        held = [one for one in _cells(function) if isinstance(one, tuple | dict)]
        return code_alone(identity)(function) + b"held" if held else identity(function)

    return first_level


def without_defaults(identity: Identity) -> Identity:
    """Leaves out the values that arguments have by default."""

    def bare(function: Callable[..., Any]) -> bytes:
        if not isinstance(function, types.FunctionType):
            return identity(function)
        return identity(types.FunctionType(function.__code__, function.__globals__, "", None, function.__closure__))

    return bare


MUTANTS: dict[str, Callable[[Any], Any]] = {"leaves defaults out": without_defaults}

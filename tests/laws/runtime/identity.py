"""Laws of a function's identity: equal for a function that is made twice, different for functions with different results.

The subject is an `identity(function) -> bytes` as in `runtime.identity`.
"""

import functools
import hashlib
import types
from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from hypothesis import strategies as st

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always

# --- mutants ---
# Common errors in identities of functions.


Identity = Callable[[Callable[..., Any]], bytes]


def _code(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function).__code__


def _cells(function: Callable[..., Any]) -> list[Any]:
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


def code_alone(identity: Identity) -> Identity:
    """Hash bytecode and its constants, but not the closure."""
    del identity

    def bytecode(function: Callable[..., Any]) -> bytes:
        code = _code(function)
        return hashlib.sha256(code.co_code + repr(code.co_consts).encode()).digest()

    return bytecode


def by_place(identity: Identity) -> Identity:
    """Include the default repr of closed-over objects, which contains an address."""

    def placed(function: Callable[..., Any]) -> bytes:
        return identity(function) + repr([object.__repr__(one) for one in _cells(function)] + [id(function)]).encode()

    return placed


def shallow(identity: Identity) -> Identity:
    """Describe functions at the first level, and only the types of the objects in containers."""

    def first_level(function: Callable[..., Any]) -> bytes:
        held = [one for one in _cells(function) if isinstance(one, tuple | dict)]
        return code_alone(identity)(function) + b"held" if held else identity(function)

    return first_level


def without_defaults(identity: Identity) -> Identity:
    """Leave out the default values of arguments."""

    def bare(function: Callable[..., Any]) -> bytes:
        if not isinstance(function, types.FunctionType):
            return identity(function)
        return identity(types.FunctionType(function.__code__, function.__globals__, "", None, function.__closure__))

    return bare


MUTANTS: dict[str, Callable[[Any], Any]] = {"leaves defaults out": without_defaults}


# --- laws ---


SOURCE = "runtime.identity: what decides whether a compiled form is that of a function"

KINDS = (
    "constant",
    "code",
    "closure",
    "tensor",
    "default",
    "named default",
    "global",
    "callee",
    "record",
    "method",
    "partial",
)


@frozen
class Scale:
    """A value with a number and a rule."""

    factor: float

    def times(self, x: float) -> float:
        """The product."""
        return self.factor * x


def made(kind: str, number: float) -> Callable[[Any], Any]:
    """A new function of one argument in which the number stands in some place, or decides the code.

    >>> made("closure", 2.0)(3.0), made("record", 2.0)(3.0)
    (6.0, 6.0)
    """
    space: dict[str, Any] = {"functools": functools, "torch": torch, "Scale": Scale, "number": number}
    texts = {
        "constant": f"made = lambda x: x * {number!r}",
        "code": f"made = lambda x: {'x' + ' + x' * int(abs(number) % 7)}",
        "closure": "made = (lambda n: lambda x: x * n)(number)",
        "tensor": "made = (lambda n: lambda x: x * n)(torch.tensor([1.0, number], dtype=torch.float64))",
        "default": "made = (lambda n: lambda x, by=n: x * by)(number)",
        "named default": "made = (lambda n: lambda x, *, by=n: x * by)(number)",
        "global": "made = lambda x: x * number",
        "callee": f"inner = lambda x: x * {number!r}\nmade = lambda x: inner(x)",
        "record": "made = (lambda scale: lambda x: scale.times(x))(Scale(number))",
        "method": "made = Scale(number).times",
        "partial": "made = functools.partial(lambda n, x: x * n, number)",
    }
    exec(texts[kind], space)
    function: Callable[[Any], Any] = space["made"]
    return function


def identity_laws() -> Suite:
    """The laws of a function's identity."""
    return Suite("identity_laws", (_same_again(), _other(), _of_nested()))


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-20, 20).map(float)


def _same_again() -> Law:
    def check(identity: Identity, drawn: tuple[str, float], seen: Seen) -> None:
        kind, number = drawn
        seen("a function that closes over a tensor", kind == "tensor")
        one, two = made(kind, number), made(kind, number)  # both at once, so that they lie in two places
        require(identity(one) == identity(two), f"{kind} {number}: another identity")

    return Law(
        name="one_function_has_one_identity",
        claim="A function that is made again, of the same code and values, has the same identity.",
        source=SOURCE,
        inputs=always(st.tuples(st.sampled_from(KINDS), numbers)),
        check=check,
        mutant=Mutant("takes where a value lies for what it is", by_place),
        needs=("a function that closes over a tensor",),
        most=300,
    )


def _other() -> Law:
    def check(identity: Identity, drawn: tuple[float, float], seen: Seen) -> None:
        one, two = drawn
        for kind in KINDS:
            same = _same(kind, one, two)
            seen(kind, not same)
            if not same:
                require(identity(made(kind, one)) != identity(made(kind, two)), f"{kind} {one}: the identity of {two}")

    return Law(
        name="another_value_is_another_identity",
        claim="A function with another number, wherever it stands, or with other code has another identity.",
        source=SOURCE,
        inputs=always(st.tuples(numbers, numbers)),
        check=check,
        mutant=Mutant("looks at the code alone", code_alone),
        needs=KINDS,
        most=200,
    )


def _same(kind: str, one: float, two: float) -> bool:
    """Return whether two numbers make the same function of a kind."""
    return one.hex() == two.hex() or (kind == "code" and int(abs(one) % 7) == int(abs(two) % 7))


def _of_nested() -> Law:
    def check(identity: Identity, drawn: tuple[str, int, float, float], seen: Seen) -> None:
        kind, depth, one, two = drawn
        first, second = (nested(made(kind, number), depth) for number in (one, two))
        same = _same(kind, one, two)
        seen("a difference below another function", depth > 0 and not same)
        require((identity(first) == identity(second)) == same, f"{kind} {one} and {two} at depth {depth}")

    return Law(
        name="identities_reach_into_what_is_called",
        claim="A difference counts however many functions, tuples and dicts it lies behind.",
        source=SOURCE,
        inputs=always(st.tuples(st.sampled_from(KINDS), st.integers(0, 4), numbers, numbers)),
        check=check,
        mutant=Mutant("looks at what a function closes over by name and type", shallow),
        needs=("a difference below another function",),
        most=300,
    )


def nested(function: Callable[..., Any], depth: int) -> Callable[..., Any]:
    """The function inside so many others, which hold it in a tuple or a dict."""
    for level in range(depth):
        function = _held({"inner": function} if level % 2 else (function,), "inner" if level % 2 else 0)
    return function


def _held(holder: Any, key: Any) -> Callable[..., Any]:
    return lambda x: holder[key](x)

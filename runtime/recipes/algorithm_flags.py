"""The settings of an algorithm, read from the text of its signature, so that flags and help need neither it nor torch.

The line of a parameter says it all: its name, its kind (`algorithms/kinds.py`), its default, and in a comment its help.
"""

import ast
import math
import tokenize
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs import frozen

from ...algorithms.kinds import KINDS, Kind
from ...core.errors import ChoiceError, message
from ..runs.arguments import check_numbers, check_whole, flag


@frozen
class Setting:
    """A setting of an algorithm."""

    name: str
    kind: Kind | tuple[str, ...]  # or the texts to choose from
    default: Any
    help: str

    def is_input(self) -> bool:
        """Return whether another value needs no other program, so that it may change on resume and differ in a sweep."""
        return isinstance(self.kind, Kind) and self.kind.is_input

    def type(self) -> Any:
        """Return the type of its flag."""
        return self.kind.type if isinstance(self.kind, Kind) else Literal[self.kind]


def source_of(module: str) -> str:
    """Return the text of a module, which is not imported, though the packages around it are. Raises: ModuleNotFoundError.

    >>> "def ppo(" in source_of("purestep.algorithms.ppo")
    True
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named {module}", name=module)
    return Path(spec.origin).read_text(encoding="utf-8")


@cache
def settings_of(target: str) -> tuple[Setting, ...]:
    """Return the settings of the function MODULE:NAME: its keyword-only parameters.

    Raises: ChoiceError for one without a default, or of a kind that no flag has.

    >>> gamma, *_ = settings_of("purestep.algorithms.ppo:ppo")
    >>> gamma.name, gamma.default, gamma.is_input(), gamma.help
    ('gamma', 0.99, True, 'what a reward is worth one step later')
    """
    module, _, name = target.partition(":")
    text = source_of(module)
    tokens = tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    parameters = next(node for node in functions if node.name == name).args
    return tuple(
        Setting(
            one.arg,
            _kind(f"{target}: {one.arg}", one.annotation),
            _value(f"{target}: {one.arg}", default),
            comments.get((default or one).end_lineno or 0, ""),
        )
        for one, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    )


def _kind(where: str, annotation: ast.expr | None) -> Kind | tuple[str, ...]:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        choices = ast.literal_eval(annotation.slice)
        return choices if isinstance(choices, tuple) else (choices,)
    text = ast.unparse(annotation) if annotation else "without an annotation"
    if text not in KINDS:
        wanted, remedy = f"{', '.join(KINDS)} or a Literal", "give it a kind of algorithms/hyperparameters.py"
        raise ChoiceError(message(where, got=text, wanted=wanted, remedy=remedy))
    return KINDS[text]


def _value(where: str, default: ast.expr | None) -> Any:
    if default is None:
        wanted = "one, which its flag shows"
        raise ChoiceError(message(where, got="without a default", wanted=wanted, remedy="give it one"))
    return math.inf if ast.unparse(default) == "math.inf" else ast.literal_eval(default)


@cache
def settings_class(target: str) -> type:
    """Return the class of the function's settings, with its defaults; its docstring is their help.

    >>> settings_class("purestep.algorithms.a2c:a2c")(gamma=0.9)
    A2CSettings(gamma=0.9, gae_lambda=1.0, value_coefficient=1.0, entropy_coefficient=0.01)
    """
    settings = settings_of(target)
    return _class(target, "Settings", {one.name: (one.type(), one.default, one.help) for one in settings})


@cache
def changes_class(target: str) -> type:
    """Return the class of the settings that may change on resume, all None: those that are inputs of the program.

    >>> changes_class("purestep.algorithms.a2c:a2c")().gae_lambda is None
    True
    """
    inputs = [one for one in settings_of(target) if one.is_input()]
    return _class(target, "Changes", {one.name: (one.type() | None, None, one.help) for one in inputs})


def _class(target: str, ending: str, rows: dict[str, tuple[Any, Any, str]]) -> type:
    name = target.partition(":")[2]
    fields = {each: attrs.field(type=kind, default=default) for each, (kind, default, _) in rows.items()}
    made = attrs.make_class(name.title().replace("_", "") + ending, fields, frozen=True)
    lines = "\n".join(f"    {each}: {help}" for each, (*_, help) in rows.items())
    made.FUNCTION = target  # type: ignore[attr-defined]
    made.__doc__ = f"The {ending.lower()} of {name}.\n\nAttributes:\n{lines}\n"
    return made


def target_of(settings: Any) -> str:
    """Return the MODULE:NAME of the function whose settings these are.

    >>> target_of(settings_class("purestep.algorithms.a2c:a2c")())
    'purestep.algorithms.a2c:a2c'
    """
    return str(type(settings).FUNCTION)


def algorithm_of(settings: Any) -> Callable[..., Any]:
    """Return the function whose settings these are; its module is imported, and so is torch.

    >>> algorithm_of(settings_class("purestep.algorithms.a2c:a2c")()).__name__
    'a2c'
    """
    module, _, name = target_of(settings).partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def check_algorithm(given: Any) -> None:
    """Refuse settings that the algorithm cannot work with, by the names of their flags. Raises: ChoiceError.

    >>> check_algorithm(settings_class("purestep.algorithms.a2c:a2c")(gamma=2.0))
    Traceback (most recent call last):
    purestep.core.errors.ChoiceError: --gamma is 2.0, wanted a number from 0.0 to 1.0; change it
    """
    for one in settings_of(target_of(given)):
        if isinstance(one.kind, Kind) and one.kind.type is int:
            check_whole(flag(one.name), getattr(given, one.name), int(one.kind.low))
        elif isinstance(one.kind, Kind):
            check_numbers(given, one.kind.low, one.kind.high, one.name)

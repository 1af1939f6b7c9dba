"""Every public name says what it is, every public function shows it, and what it shows is true."""

import doctest
import importlib
import inspect
import io
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LAYERS = ("core", "algorithms", "runtime", "properties")
PURE = ("core", "algorithms")
FILES = [path.relative_to(ROOT) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
LAWS = [path.relative_to(ROOT) for path in sorted((ROOT / "tests" / "laws").rglob("*.py"))]


def module_of(path: Path) -> types.ModuleType | None:
    """The module; None where it stands on a library of an extra that is not installed."""
    words = path.with_suffix("").parts
    package = () if words[0] == "tests" else ("purestep",)
    name = ".".join((*package, *(words[:-1] if words[-1] == "__init__" else words)))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "purestep").partition(".")[0] in ("purestep", "tests"):
            raise
        return None


def modules(paths: Sequence[Path]) -> list[types.ModuleType]:
    """Those of the files whose libraries are installed: nearly all, and all of `core` and `algorithms`."""
    found = [module for path in paths if (module := module_of(path)) is not None]
    absent = len(paths) - len(found)
    assert absent < 20 if any(path.parts[0] not in PURE for path in paths) else absent == 0
    return found


def public(module: types.ModuleType) -> dict[str, Any]:
    """The functions and classes defined in the module under a public name."""
    return {
        name: value
        for name, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and not name.startswith("_")
        and value.__module__ == module.__name__
    }


def lines(value: Any) -> str:
    return (value.__doc__ or "").strip()


@pytest.mark.parametrize(
    "package",
    [
        *(pytest.param(name, marks=pytest.mark.slow if name in ("properties", "runtime") else []) for name in LAYERS),
        "tests",
    ],
)
def test_examples_are_true(package: str) -> None:
    runner = doctest.DocTestRunner(verbose=False)
    report = io.StringIO()
    for module in modules([path for path in (*FILES, *LAWS) if path.parts[0] == package]):
        for example in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
            if example.examples:  # each run looks at the file of every module
                runner.run(example, out=report.write)
    assert runner.tries > (20 if package in LAYERS else 0)
    assert not runner.failures, report.getvalue()


def undocumented(module: types.ModuleType) -> list[str]:
    """The public names of a module, with the public methods of its classes, that have no docstring."""
    missing = [name for name, value in public(module).items() if len(lines(value)) < 2]
    for name, value in public(module).items():
        if inspect.isclass(value):
            own = [(word, method) for word, method in vars(value).items() if inspect.isfunction(method)]
            missing += [f"{name}.{word}" for word, method in own if not word.startswith("_") and not lines(method)]
    return missing if len(lines(module)) > 1 else ["the module itself", *missing]


def test_every_public_name_has_a_docstring() -> None:
    shipped = modules([path for path in FILES if path.parts[0] != "properties"])
    assert [(module.__name__, missing) for module in shipped if (missing := undocumented(module))] == []


def test_every_pure_function_shows_an_example() -> None:
    functions = [
        (module.__name__, name, value)
        for module in modules([path for path in FILES if path.parts[0] in PURE])
        for name, value in public(module).items()
        if inspect.isfunction(value)
    ]
    assert [(module, name) for module, name, value in functions if ">>>" not in lines(value)] == []


def test_there_is_something_to_find() -> None:
    """A finder that finds nothing would pass everything."""
    from purestep.core import keys

    assert {"split", "uniform", "categorical"} <= set(public(keys))
    assert "Tensor" not in public(keys)
    assert len(doctest.DocTestFinder(exclude_empty=True).find(keys)) > 5

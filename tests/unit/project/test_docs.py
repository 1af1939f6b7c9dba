"""Every public name says what it is, every public function shows it, and what it shows is true."""

import doctest
import importlib
import inspect
import io
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
LAYERS = ("core", "algorithms", "runtime", "properties")
PURE = ("core", "algorithms")
FILES = [path.relative_to(ROOT) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
LAWS = [path.relative_to(ROOT) for path in sorted((ROOT / "tests" / "laws").rglob("*.py"))]


def module_of(path: Path) -> types.ModuleType:
    """The module; a skip where it stands on a library of an extra that is not installed."""
    words = path.with_suffix("").parts
    package = () if words[0] == "tests" else ("purestep",)
    name = ".".join((*package, *(words[:-1] if words[-1] == "__init__" else words)))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "purestep").partition(".")[0] in ("purestep", "tests"):
            raise
        pytest.skip(f"{name} needs {error.name}")


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


@pytest.mark.parametrize("path", [*FILES, *LAWS], ids=str)
def test_examples_are_true(path: Path) -> None:
    module = module_of(path)
    runner = doctest.DocTestRunner(verbose=False)
    report = io.StringIO()
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
        runner.run(example, out=report.write)
    assert not runner.failures, report.getvalue()


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[0] != "properties"], ids=str)
def test_every_public_name_has_a_docstring(path: Path) -> None:
    module = module_of(path)
    assert len(lines(module)) > 1, f"{path} has no docstring"
    missing = [name for name, value in public(module).items() if len(lines(value)) < 2]
    for name, value in public(module).items():
        if inspect.isclass(value):
            own = [(word, method) for word, method in vars(value).items() if inspect.isfunction(method)]
            missing += [f"{name}.{word}" for word, method in own if not word.startswith("_") and not lines(method)]
    assert not missing, f"{path}: without a docstring: {missing}"


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[0] in PURE], ids=str)
def test_every_pure_function_shows_an_example(path: Path) -> None:
    functions = [(name, value) for name, value in public(module_of(path)).items() if inspect.isfunction(value)]
    missing = [name for name, value in functions if ">>>" not in lines(value)]
    assert not missing, f"{path}: without an example: {missing}"


def test_there_is_something_to_find() -> None:
    """A finder that finds nothing would pass everything."""
    from purestep.core import keys

    assert {"split", "uniform", "categorical"} <= set(public(keys))
    assert "Tensor" not in public(keys)
    assert len(doctest.DocTestFinder(exclude_empty=True).find(keys)) > 5

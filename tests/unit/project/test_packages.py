"""Imports: packages of the runtime import those before them and none behind them, and no files import one another."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ORDER = (
    *("core", "algorithms", "runtime.files", "runtime.inductor", "runtime", "runtime.machine"),
    *("runtime.text.trainer", "runtime.distributed", "runtime.logic"),
    *("runtime.async_rl.scheduler", "runtime.async_rl.simulation"),
    *("runtime.effects", "runtime.runs", "runtime.text", "runtime.async_rl", "runtime.recipes", "runtime.cli"),
)


def package(parts: tuple[str, ...]) -> str:
    """The package of a module: the longest name of `ORDER` that it lies in."""
    name = ".".join(parts)
    return max((found for found in ORDER if f"{name}.".startswith(f"{found}.")), key=len)


def imported(path: Path, source: str) -> Iterator[tuple[str, ...]]:
    """The modules of ours that a file imports."""
    here = path.parent.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*here[: len(here) - node.level + 1], *(node.module.split(".") if node.module else ()))
            for name in node.names:
                place = ROOT.joinpath(*base, name.name)
                found = (*base, name.name) if place.is_dir() or place.with_suffix(".py").exists() else base
                if found:
                    yield found


def backwards(path: Path, source: str) -> set[tuple[str, str]]:
    """The imports of a file from packages behind its own."""
    own = package(path.with_suffix("").parts)
    named = {package(found) for found in imported(path, source)}
    return {(path.as_posix(), name) for name in named if ORDER.index(name) > ORDER.index(own)}


def test_packages_import_those_before_them() -> None:
    files = [
        path.relative_to(ROOT) for name in ("core", "algorithms", "runtime") for path in (ROOT / name).rglob("*.py")
    ]
    assert set().union(*(backwards(path, (ROOT / path).read_text()) for path in files)) == set()


class Running(ast.NodeTransformer):
    """A module without imports that are made for types alone."""

    def visit_If(self, node: ast.If) -> ast.AST:
        return ast.Pass() if ast.unparse(node.test) == "TYPE_CHECKING" else node


def of_files(sources: dict[Path, str]) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """The files that each file imports when it runs, also inside functions."""
    return {
        path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts: {
            *imported(path, ast.unparse(Running().visit(ast.parse(source))))
        }
        for path, source in sources.items()
    }


def test_no_files_import_one_another() -> None:
    paths = [path for name in ("core", "algorithms", "runtime", "properties") for path in (ROOT / name).rglob("*.py")]
    found = of_files({path.relative_to(ROOT): path.read_text() for path in paths})
    assert sum(map(len, found.values())) > 1000
    TopologicalSorter(found).prepare()


def test_files_that_import_one_another_are_seen() -> None:
    late = "def load():\n    from . import errors"
    TopologicalSorter(of_files({Path("core/tree.py"): late, Path("core/errors.py"): ""})).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter(
            of_files({Path("core/tree.py"): late, Path("core/errors.py"): "from .tree import leaves"})
        ).prepare()


@pytest.mark.parametrize(
    ("path", "source", "wanted"),
    [
        ("runtime/text/x.py", "from ..recipes.zorplex import Zorplex", {"runtime.recipes"}),
        ("runtime/effects/x.py", "from ..runs import arguments", {"runtime.runs"}),
        ("runtime/x.py", "from .cli.run import train_command", {"runtime.cli"}),
        ("runtime/recipes/x.py", "from ..text.components import Parts", set[str]()),
    ],
)
def test_an_import_from_behind_is_seen(path: str, source: str, wanted: set[str]) -> None:
    assert {name for _, name in backwards(Path(path), source)} == wanted

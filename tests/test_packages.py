"""The packages of the runtime: each imports those before it and none behind it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = (
    *("core", "algorithms", "runtime.files", "runtime.inductor", "runtime"),
    *("runtime.scheduling", "runtime.ranks", "runtime.logic", "runtime.effects"),
    *(
        "runtime.runs",
        "runtime.language",
        "runtime.asynchronous",
        "runtime.recipes",
        "runtime.cli",
    ),
)
CLI = {
    *("cli", "commands", "chat_command", "host_commands", "replay_command", "words"),
}


def package(parts: tuple[str, ...]) -> str:
    """The package of a module, of which only the runtime has several."""
    if parts[0] != "runtime" or len(parts) == 1:
        return parts[0]
    if parts[1] in CLI:
        return "runtime.cli"
    return f"runtime.{parts[1]}" if (ROOT / "runtime" / parts[1]).is_dir() else "runtime"


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


@pytest.mark.parametrize(
    ("path", "source", "wanted"),
    [
        ("runtime/language/x.py", "from ..recipes.zorplex import Zorplex", {"runtime.recipes"}),
        ("runtime/effects/x.py", "from ..runs import arguments", {"runtime.runs"}),
        ("runtime/x.py", "from .commands import train_command", {"runtime.cli"}),
        ("runtime/recipes/x.py", "from ..language.parts import Parts", set[str]()),
    ],
)
def test_an_import_from_behind_is_seen(path: str, source: str, wanted: set[str]) -> None:
    assert {name for _, name in backwards(Path(path), source)} == wanted

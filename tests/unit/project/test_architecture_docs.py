"""The page docs/architecture.md names what there is, and its picture shows the imports of the source."""

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = PAGE.partition("## Packages and files")[2].partition("## Walks")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("| `")]
WALKS = {part.partition("\n")[0]: part for part in PAGE.partition("## Walks")[2].split("\n### ")[1:]}
STEP = re.compile(r"^(\d+)\. `([\w/]+\.py): ([\w., ]+)` ", re.MULTILINE)
PATH = re.compile(r"`([\w/]+(?:\.py|/))(?::[^`]*)?`")


def module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


DRAWING: Any = module("docs/draw_architecture.py")
ORDER: tuple[str, ...] = module("tests/unit/project/test_packages.py").ORDER


def folders() -> list[str]:
    tops = ("core", "algorithms", "runtime", "properties")
    found = [path.parent.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("__init__.py")]
    return [f"{path.as_posix()}/" for path in found]


def words(cell: str) -> set[str]:
    """The files that a cell names, without folder and suffix."""
    return set(re.findall(r"`([a-z0-9_]+)`", cell))


def modules_in(folder: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"}


def definitions(path: str) -> set[str]:
    """The functions and classes of a file, those inside others too, and the methods as Class.method."""
    found = set[str]()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


def steps(walk: str) -> list[tuple[str, list[str]]]:
    return [(path, names.split(", ")) for _, path, names in STEP.findall(WALKS[walk])]


# --- the page ---


def test_the_paths_on_the_page_are_there() -> None:
    named = PATH.findall(PAGE)
    assert len(named) > 60
    assert [path for path in named if not (ROOT / path).exists()] == []
    links = [place for place in re.findall(r"\]\(([^)#]+)", PAGE) if not place.startswith("http")]
    assert "architecture.png" in links
    assert [place for place in links if not (ROOT / "docs" / place).exists()] == []


def test_the_page_names_every_package() -> None:
    assert set(folders()) - set(PATH.findall(PAGE)) == set()
    assert set(PATH.findall(TABLE)) >= set(folders())


@pytest.mark.parametrize("folder", [one for one in folders() if one.startswith("runtime/")])
def test_the_table_names_every_file_of_the_runtime(folder: str) -> None:
    (files,) = [row[2] for row in ROWS if PATH.findall(row[0]) == [folder]]
    assert words(files) == modules_in(folder), f"name the files of {folder} in docs/architecture.md, and no others"


def test_the_other_files_of_the_table_are_there() -> None:
    for cells in ROWS:
        first = PATH.findall(cells[0])
        if not first[0].startswith(("runtime/", "properties/")):
            assert words(cells[2]) <= set().union(*map(modules_in, first)), cells[0]


def test_the_table_is_in_the_tested_order() -> None:
    named = [path.rstrip("/").removesuffix(".py").replace("/", ".") for row in ROWS for path in PATH.findall(row[0])]
    assert [name for name in named if name in ORDER] == list(ORDER)


# --- the walks ---


def test_there_are_five_walks_one_of_them_in_two_ways() -> None:
    classic = ["From a setting's line to a trainer", "From an observation to new parameters"]
    ways = [f"From a sampled token to the gradient, {way}" for way in ("in turns", "asynchronously")]
    assert list(WALKS) == [*classic, *ways, "From an update to a generator", "From an object to its verdict"]


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_at_most_twelve_files_and_what_they_define(walk: str) -> None:
    numbers = re.findall(r"^(\d+)\. ", WALKS[walk], re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    found = steps(walk)
    assert len(found) == len(numbers), "each step names its file and functions as `path.py: function`"
    assert 8 <= len(found) <= 12
    assert [(path, name) for path, names in found for name in names if name not in definitions(path)] == []


@pytest.mark.parametrize("walk", WALKS)
def test_no_file_of_a_walk_is_needed_before_it_is_named(walk: str) -> None:
    order = [path for path, _ in steps(walk)]
    assert len(set(order)) == len(order)
    assert ahead(order) == []


def ahead(order: list[str]) -> list[tuple[str, str]]:
    """The imports of files from files that are named after them."""
    found = []
    for place, path in enumerate(order):
        imported = {"/".join(name) + ".py" for name in DRAWING.imported(Path(path), (ROOT / path).read_text())}
        found += [(path, later) for later in order[place + 1 :] if later in imported]
    return found


def test_a_file_that_is_needed_before_it_is_named_is_seen() -> None:
    assert ahead(["runtime/train.py", "core/env.py", "runtime/rollout.py"]) == [
        ("runtime/train.py", "core/env.py"),
        ("runtime/train.py", "runtime/rollout.py"),
    ]


# --- the picture ---


@pytest.fixture(scope="module")
def counts() -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = DRAWING.imports()
    return found


@pytest.mark.slow
def test_the_picture_has_the_tested_packages_and_no_import_points_back(counts: Counter[tuple[str, str]]) -> None:
    names = DRAWING.packages()
    assert names == (*ORDER, "properties")
    assert len(counts) > 50
    assert [pair for pair in counts if names.index(pair[0]) <= names.index(pair[1])] == []


SOURCES = {
    "runtime/text/run.py": "from ...core import keys, tree\nfrom ...core.tree import clone\nfrom . import report\n",
    "runtime/text/trainer.py": "def f():\n    from ..machine.drive import drive, stopping\n    from ..compile import program\n",
    "core/tree.py": "import torch\nfrom .errors import message\n",
}


def test_the_picture_counts_files_modules_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRAWING, "sources", lambda: [(Path(path), text) for path, text in SOURCES.items()])
    text, trainer, machine = "runtime.text", "runtime.text.trainer", "runtime.machine"
    assert DRAWING.imports() == {(text, "core"): 2, (trainer, machine): 1, (trainer, "runtime"): 1}
    assert DRAWING.lines() == {text: 3, trainer: 3, "core": 2}


def test_the_picture_is_of_every_source_file() -> None:
    tops = ("core", "algorithms", "runtime", "properties")
    every = {path.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*.py")}
    assert {path for path, _ in DRAWING.sources()} == every


def test_the_picture_was_drawn_from_these_imports(tmp_path: Path, counts: Counter[tuple[str, str]]) -> None:
    DRAWING.draw(tmp_path / "new.png", counts)
    with Image.open(tmp_path / "new.png") as new, Image.open(DRAWING.PICTURE) as kept:
        assert kept.size == new.size
        assert kept.size[0] == 1000
        assert kept.info[DRAWING.NOTE] == new.info[DRAWING.NOTE], "run: python docs/draw_architecture.py"
        assert new.info[DRAWING.NOTE].split(", ") == sorted(" ".join(pair) for pair in counts)

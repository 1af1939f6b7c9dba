"""Lines and files of Python by package, how often the runtime does one thing, and names, at each commit that is named.

A package is a folder of the repository's root, of runtime or of runtime/effects; its figures are those of the files below it
that no deeper package has. Needs the history of the repository. Prints a table and writes benchmarks/results/house.json.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from statistics import median, quantiles

from . import evidence

TWICE = {  # what one module of the runtime should do: a pattern of the modules that do it
    "modules that start a run in a folder": r"\bfolder\.starting\(",
    "modules that restore a run": r"    _?check_loop\(",
    "command lines of `purestep train`": r"prog=f?\"purestep train",
    "training loops of language models": r"def _warm\(self",
    "modules that write a run's evaluation": r"def write_after\(",
}
BELOW = r"from \.+recipes\b"  # imports of recipes, where neither a recipe nor a command has them
COMMANDS = ("cli", "commands", "chat_command", "host_commands", "replay_command", "words")
SHIPPED = ("core/", "algorithms/", "runtime/", "properties/")
OPENERS = r"(What|Who|Whom|Whose|Whether|How|Those)\b"  # of docstrings
PRIVATE = (  # words that name no file, class or public function: section 5 of the plan
    r"desk|hands?|crew|spots?|alike|keeping|later|folding|filing|lap|naming|greeting|inlet|outlet|dealing|putting|leading|"
    r"telling|closing|standing|told|heard|said|made|lessons?|spelling|speaker|voice|team|shelf|place|anchored|parts"
)
EXCEPTIONS = "test_packages.py"
DEEPER = {("runtime",): 2, ("runtime", "effects"): 3}  # packages that are divided further
ALL, SHIPS = "all", "all that is shipped"


def package(path: str) -> str:
    """Return the package to which a file's lines are counted.

    >>> package("core/env.py"), package("runtime/cli/main.py"), package("runtime/effects/engine/ray.py"), package("conftest.py")
    ('core', 'runtime/cli', 'runtime/effects/engine', '.')
    """
    folders = tuple(path.split("/")[:-1])
    depth = max((DEEPER[start] for start in DEEPER if folders[: len(start)] == start), default=1)
    return "/".join(folders[:depth]) or "."


def counted(commit: str) -> dict[str, dict[str, int]]:
    """Return files and lines of each package at a commit. Raises: CalledProcessError where there is no such commit."""
    files, lines = Counter[str](), Counter[str]()
    for path, text in _sources(commit).items():
        for name in (package(path), *([SHIPS] if path.startswith(SHIPPED) else []), ALL):
            files[name] += 1
            lines[name] += text.count("\n")
    return {name: {"files": files[name], "lines": lines[name]} for name in sorted(files)}


def repeated(commit: str) -> dict[str, int]:
    """Return how many modules of the runtime do the same thing, and how often packages look the wrong way."""
    sources = {name: text for name, text in _sources(commit).items() if name.startswith("runtime/")}
    found = {what: sum(bool(re.search(pattern, text)) for text in sources.values()) for what, pattern in TWICE.items()}
    found["files outside recipes and commands that import recipes"] = sum(
        bool(re.search(BELOW, text))
        for name, text in sources.items()
        if not name.startswith("runtime/recipes/") and not _is_command(name)
    )
    packages = "".join(text for name, text in _sources(commit).items() if name.endswith(EXCEPTIONS))
    listed = re.search(r"EXCEPTIONS = \{(.*?)\n\}", packages, re.DOTALL)
    number = listed.group(1).count('("') if listed else 0
    found["exceptions to the order of packages"] = number if packages else -1  # -1: no such test yet
    return found


def named(commit: str) -> dict[str, int | float | list[str]]:
    """Return the figures of names, docstrings and sizes of the shipped packages at a commit, and their fullest folder."""
    sources = {name: text for name, text in _sources(commit).items() if name.startswith(SHIPPED)}
    trees = {name: ast.parse(text) for name, text in sources.items()}
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    functions = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    )
    stems = Counter((path.partition("/")[0], path.rpartition("/")[2]) for path in trees)
    documented = [
        text
        for name, tree in trees.items()
        if not name.startswith("properties/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
    ]
    sizes = sorted(text.count("\n") for text in sources.values() if text)
    folders = Counter(name.rpartition("/")[0] for name in _sources(commit))
    return {
        "lines of a file, median": median(sizes),
        "lines of a file, 90 %": quantiles(sizes, n=10)[-1],
        "lines of a file, largest": sizes[-1],
        "class names defined more than once": sorted(name for name, number in classes.items() if number > 1),
        "public function names defined more than once": sorted(
            name for name, number in functions.items() if number > 1
        ),
        "file names that stand twice in a layer": sorted(
            f"{layer}: {name}" for (layer, name), number in stems.items() if number > 1 and name != "__init__.py"
        ),
        "docstrings of core, algorithms, runtime": len(documented),
        "of these open with a clause": sum(bool(re.match(OPENERS, text)) for text in documented),
        "names with private words": sorted(
            f"{path}: {name}"
            for path, tree in trees.items()
            for name in _names(path, tree)
            if any(re.fullmatch(PRIVATE, word) for word in _words(name))
        ),
        "files of the fullest folder": max(folders.values()),
    }


def _names(path: str, tree: ast.Module) -> list[str]:
    """Return the name of a file, of its classes, and of the public functions and methods that no function encloses."""
    inside = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    defined = [node for body in inside for node in body]
    classes = [node.name for node in defined if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in defined if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [path.rpartition("/")[2], *classes, *(name for name in functions if not name.startswith("_"))]


def _words(name: str) -> set[str]:
    """Return the words of a name, in lower case.

    >>> sorted(_words("WeightsError")), sorted(_words("in_place.py"))
    (['error', 'weights'], ['in', 'place', 'py'])
    """
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def _is_command(name: str) -> bool:
    stem = name.removeprefix("runtime/").removesuffix(".py")
    return stem in COMMANDS or stem.startswith("cli/") or stem.endswith("_commands") or stem.endswith("_command")


def _sources(commit: str) -> dict[str, str]:
    packed = subprocess.run(["git", "archive", commit], cwd=evidence.ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {
            member.name: file.read().decode()
            for member in archive
            if member.isreg() and member.name.endswith(".py") and (file := archive.extractfile(member))
        }


def main() -> int:
    """Print a row for each package and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__)
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="by any name that git knows (default: HEAD)")
    began = time.perf_counter()
    names = [evidence.git("rev-parse", "--short", commit) for commit in parser.parse_args().commits]
    found = {name: counted(name) for name in names}
    print(f"{'lines (files)':32}" + "".join(f"{name:>20}" for name in names))
    for each in sorted({key for tables in found.values() for key in tables}):
        cells = [tables.get(each, {"files": 0, "lines": 0}) for tables in found.values()]
        print(f"{each:32}" + "".join(f"{cell['lines']:>13,} ({cell['files']:>4})" for cell in cells))
    doubles = {name: repeated(name) for name in names}
    for what in doubles[names[0]]:
        print(f"{what:58}" + "".join(f"{table[what]:>12}" for table in doubles.values()))
    names_of = {name: named(name) for name in names}
    for what in names_of[names[0]]:
        cells = [len(value) if isinstance(value := table[what], list) else value for table in names_of.values()]
        print(f"{what:58}" + "".join(f"{cell:>12g}" for cell in cells))
    figures = {"commits": found, "the same thing": doubles, "names": names_of}
    evidence.write("house", seconds=time.perf_counter() - began, figures=figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

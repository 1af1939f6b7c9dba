"""Lines and files of Python by package, at each commit that is named.

A package is a folder of the repository's root, of runtime or of runtime/effects; its figures are those of the files below it
that no deeper package has. Needs the history of the repository. Prints a table and writes benchmarks/results/house.json.
"""

import argparse
import io
import subprocess
import sys
import tarfile
import time
from collections import Counter

from . import evidence

DEEPER = {("runtime",): 2, ("runtime", "effects"): 3}  # packages that are divided further
ALL = "all"


def package(path: str) -> str:
    """Return the package to which a file's lines are counted.

    >>> package("core/env.py"), package("runtime/cli.py"), package("runtime/effects/engine/ray.py"), package("conftest.py")
    ('core', 'runtime', 'runtime/effects/engine', '.')
    """
    folders = tuple(path.split("/")[:-1])
    depth = max((DEEPER[start] for start in DEEPER if folders[: len(start)] == start), default=1)
    return "/".join(folders[:depth]) or "."


def counted(commit: str) -> dict[str, dict[str, int]]:
    """Return files and lines of each package at a commit. Raises: CalledProcessError where there is no such commit."""
    files, lines = Counter[str](), Counter[str]()
    packed = subprocess.run(["git", "archive", commit], cwd=evidence.ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.isreg() and member.name.endswith(".py") and (file := archive.extractfile(member)):
                size = file.read().count(b"\n")
                for name in (package(member.name), ALL):
                    files[name] += 1
                    lines[name] += size
    return {name: {"files": files[name], "lines": lines[name]} for name in sorted(files)}


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
    path = evidence.write("house", seconds=time.perf_counter() - began, figures={"commits": found})
    print(f"written: {path.relative_to(evidence.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

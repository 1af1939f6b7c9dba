"""Lines and branches that the tests run, by package, at each commit that is named: the quick tests, or with `--slow` all.

Each commit is cloned into a temporary folder with an environment of its own, `coverage` beside it, and its tests are run on two
workers; processes that tests start count too, unless they are killed. Needs the history of the repository. Prints a row for
each commit and package and writes results/coverage.json (with `--slow` coverage_slow.json), where other commits' rows stay.
Tests that coverage itself disturbs, as those of what an import needs, may fail.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from . import evidence

PACKAGES = ("core", "algorithms", "runtime", "properties")
COVERAGE = "coverage==7.17.5"
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")
SETTINGS = (
    "[run]\nbranch = true\nparallel = true\npatch = _exit\ndata_file = {home}/data/found\nsource = {source}\n"
    "[report]\nignore_errors = true\n"  # files that tests wrote and removed
)
STARTED = "import coverage\n\ncoverage.process_startup()\n"


def called(*words: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(list(map(str, words)), cwd=folder, env=own, capture_output=True, text=True, check=False)


def measured(commit: str, home: Path, *, slow: bool) -> dict[str, Any]:
    """Return the coverage of each package at a commit, and the outcome of its tests. Raises: SystemExit without either."""
    clone = home / "clone"
    for words in (("clone", "--quiet", evidence.ROOT, clone), ("-C", clone, "checkout", "--quiet", commit)):
        done = called("git", *words, folder=home)
        if done.returncode:
            sys.exit(f"{commit}: {done.stderr.strip()}")
    python = clone / ".venv" / "bin" / "python"
    for words in (("make", ".venv/.installed"), (python, "-m", "pip", "install", "--quiet", COVERAGE)):
        done = called(*words, folder=clone)
        if done.returncode:
            sys.exit(f"{commit}: {done.stderr.strip()[-300:]}")
    (home / "data").mkdir()
    (home / "start").mkdir()
    (home / "start" / "sitecustomize.py").write_text(STARTED)
    settings = home / "settings"
    settings.write_text(SETTINGS.format(home=home, source=clone))
    traced = {"PYTHONPATH": str(home / "start"), "COVERAGE_PROCESS_START": str(settings)}
    start = time.perf_counter()
    marked = ("-m", "slow or not slow") if slow else ()
    tests = called(python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *marked, folder=clone, **traced)
    seconds, said = time.perf_counter() - start, (tests.stdout.strip().splitlines() or [""])[-1]
    table = home / "table.json"
    for words in (("combine", "--quiet"), ("json", "--quiet", "-o", table)):
        done = called(python, "-m", "coverage", *words, f"--rcfile={settings}", folder=clone)
        if done.returncode:
            sys.exit(f"{commit}: {said}: {(done.stdout + done.stderr).strip()[-300:]}")
    sums = {name: Counter[str]() for name in PACKAGES}
    for path, file in json.loads(table.read_text())["files"].items():
        parts = Path(path).relative_to(clone).parts if Path(path).is_absolute() else Path(path).parts
        parts = parts[2:] if parts[0] == ".links" else parts
        if parts[0] in sums:
            sums[parts[0]].update({name: file["summary"][name] for name in COUNTS})
    outcome = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", said)}
    return {"tests": outcome, "seconds": round(seconds, 1), "packages": {name: shares(sums[name]) for name in PACKAGES}}


def shares(counts: Counter[str]) -> dict[str, float]:
    """Return the counts of a package with the shares that were run, in per cent.

    >>> shares(Counter(num_statements=4, covered_lines=3, num_branches=8, covered_branches=4))["branches, %"]
    50.0
    """
    lines, branches = (
        round(100 * counts[run] / max(counts[all_], 1), 2)
        for run, all_ in (("covered_lines", "num_statements"), ("covered_branches", "num_branches"))
    )
    return {**{name: counts[name] for name in COUNTS}, "lines, %": lines, "branches, %": branches}


def main() -> None:
    """Print each commit's figures as they are found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("commits", nargs="+", help="before and after, as 6ff8643 HEAD")
    parser.add_argument(
        "--slow", action="store_true", help="run the slow tests too, and write results/coverage_slow.json"
    )
    given, start = parser.parse_args(), time.perf_counter()
    file = "coverage_slow" if given.slow else "coverage"
    path = evidence.RESULTS / f"{file}.json"
    found: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    for commit in given.commits:
        name = evidence.git("rev-parse", "--short", commit)
        with tempfile.TemporaryDirectory() as home:
            found[name] = measured(name, Path(home), slow=given.slow)
        evidence.write(file, seconds=time.perf_counter() - start, figures=found)
        print(name, found[name]["tests"], f"{found[name]['seconds']} s")
        for package, counts in found[name]["packages"].items():
            print(
                f"  {package:12} lines {counts['lines, %']:6.2f} %  branches {counts['branches, %']:6.2f} %", flush=True
            )


if __name__ == "__main__":
    main()

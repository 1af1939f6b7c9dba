"""The one list of claims that every engine has to keep, tried on all three, with the other tests of engines.

Continuous integration has neither Monarch nor Ray; here both have to be installed: pip install '.[dev,monarch,ray]'. The tests
are those of the repository, fast and slow. Writes benchmarks/results/engine_contracts.json: the claims, what became of them on
each engine, and how many tests of each file passed or were skipped, and why; exit code 1 where an engine has not kept a claim,
a test failed, or a test of an engine was skipped since the engine is not there.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from purestep.runtime.effects.cluster import ENGINES

from .. import evidence

TESTS = evidence.ROOT / "tests"
CLAIM = "test_the_contract["
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
EXTRA = ("is an extra", "is not installed")  # so ends why a test is skipped where its engine is not there
HOSTLESS = {
    ("a_host_may_join", engine, SKIPPED) for engine in ("processes", "ray")
}  # Ray's nodes have a test of their own
Case = tuple[str, str, str, str]  # file, test, what became of it, why


def run(files: Sequence[Path]) -> list[Case]:
    """Runs the tests of these files, fast and slow. Raises: RuntimeError where pytest did not get to its end."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "cases.xml"
        words = ["-m", "slow or not slow", "-n", "2", "--dist", "loadfile", f"--junitxml={out}"]
        told = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *map(str, files)], cwd=evidence.ROOT, check=False
        )
        if told.returncode not in (0, 1):
            raise RuntimeError(f"pytest ended with exit code {told.returncode}")
        return cases(out.read_text())


def cases(text: str) -> list[Case]:
    """What a file in JUnit's form says of each test.

    >>> skip = '<testcase classname="tests.test_a" name="b"><skipped message="Ray is an extra"/></testcase>'
    >>> cases(f'<s><testcase classname="tests.test_a" name="a"/>{skip}</s>')
    [('test_a', 'a', 'passed', ''), ('test_a', 'b', 'skipped', 'Ray is an extra')]
    """
    found = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        became, why = PASSED, ""
        for below in case:
            if below.tag in ("failure", "error", "skipped"):
                became = SKIPPED if below.tag == "skipped" else FAILED
                why = below.get("message", "")
        found.append((case.get("classname", "").rpartition(".")[2], case.get("name", ""), became, why))
    return found


def claims(found: Sequence[Case]) -> dict[str, dict[str, str]]:
    """What became of each claim on each engine."""
    told: dict[str, dict[str, str]] = {}
    for engine in ENGINES:
        for file, name, became, _ in found:
            if file == f"test_engine_{engine}" and name.startswith(CLAIM):
                told.setdefault(name.removeprefix(CLAIM).removesuffix("]"), {})[engine] = became
    return told


def faults(found: Sequence[Case]) -> list[str]:
    """Where a claim is not kept, a test failed, or an engine was not there.

    >>> passed = [(f"test_engine_{engine}", "test_the_contract[calls]", "passed", "") for engine in ENGINES]
    >>> faults(passed), faults(passed[:2]), faults([])
    ([], ['calls: ray: not tried'], ['no claim was tried'])
    """
    tried = claims(found)
    broken = [
        f"{claim}: {engine}: {row.get(engine, 'not tried')}"
        for claim, row in tried.items()
        for engine in ENGINES
        if row.get(engine) != PASSED and (claim, engine, row.get(engine)) not in HOSTLESS
    ]
    failed = [f"{file}: {name} {FAILED}: {why[:200]}" for file, name, became, why in found if became == FAILED]
    absent = sorted({f"{file}: {why}" for file, _, became, why in found if became == SKIPPED and why.endswith(EXTRA)})
    return [*([] if tried else ["no claim was tried"]), *broken, *failed, *absent]


def counted(found: Sequence[Case]) -> dict[str, Mapping[str, Any]]:
    """Of each file, how many tests passed, failed and were skipped, and why the last."""
    rows: dict[str, Mapping[str, Any]] = {}
    for file in sorted({case[0] for case in found}):
        own = [case for case in found if case[0] == file]
        reasons = sorted({why for _, _, became, why in own if became == SKIPPED})
        rows[file] = {**Counter(case[2] for case in own), **({"skipped since": reasons} if reasons else {})}
    return rows


def main() -> int:
    """Runs the tests and writes what became of them; 0 where every engine keeps every claim."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines.engine_contracts", description=__doc__)
    parser.parse_args()
    began = time.perf_counter()
    files = sorted({*TESTS.rglob("test_engine_*.py"), *TESTS.rglob("test_*_monarch.py")})
    found = run(files)
    wrong, tried = faults(found), claims(found)
    figures = {"kept": not wrong, "faults": wrong, "claims": tried, "tests": counted(found)}
    evidence.write("engine_contracts", seconds=time.perf_counter() - began, figures=figures)
    for name, row in figures["tests"].items():
        print(f"{name:36}{'  '.join(f'{word} {number}' for word, number in row.items() if word != 'skipped since')}")
    print("\n".join(wrong) or f"{len(tried)} claims, kept by each of {', '.join(ENGINES)}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""The asynchronous tests, fast and slow, ten times in a row beside processes that burn every core.

Writes benchmarks/results/flakes.json: for each round its seconds, the load, how many tests passed, failed and were skipped;
and each test that failed, with its message. Exit code 1 where one did.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import evidence
from .machines.engine_contracts import FAILED, TESTS, run

BURN = "while True: pass"


@contextmanager
def burning(cores: int) -> Iterator[None]:
    """Keep so many cores busy until the block ends."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def main() -> int:
    """Runs the rounds and writes the outcome; 0 where no test failed in any of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flakes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    files = sorted({*TESTS.rglob("test_async*.py"), *(TESTS / "unit" / "async_rl").glob("test_*.py")})
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    with burning(os.cpu_count() or 1):
        for number in range(1, rounds + 1):
            start = time.perf_counter()
            found = run(files)
            counts = Counter(case[2] for case in found)
            rows.append({"seconds": round(time.perf_counter() - start), "load": os.getloadavg()[0], **counts})
            failures += [
                f"round {number}: {file}::{name}: {why[:200]}" for file, name, end, why in found if end == FAILED
            ]
            print(f"round {number} of {rounds}: {rows[-1]}", flush=True)
    figures = {"files": [file.name for file in files], "burners": os.cpu_count(), "rounds": rows, "failures": failures}
    evidence.write("flakes", seconds=time.perf_counter() - began, figures=figures)
    print("\n".join(failures) or f"no test failed in {rounds} rounds")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())

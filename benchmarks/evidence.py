"""One JSON file for each measurement, in benchmarks/results: what ran, on which commit, how long, and what came out."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def write(name: str, *, seconds: float, figures: Mapping[str, object]) -> Path:
    """Write benchmarks/results/NAME.json, without the machine's own path of the repository; print and return its path.

    `modified` says whether tracked files other than results differ from the commit. `figures` is anything that JSON can hold.
    """
    row = {"name": name, **origin(name, seconds), "figures": dict(figures)}
    text = json.dumps(row, indent=1, allow_nan=False).replace(f"{ROOT}/", "") + "\n"
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(text)
    print(f"written: {without_machine(str(path))}", flush=True)
    return path


def origin(name: str, seconds: float) -> dict[str, object]:
    """Where figures come from: commit, command and seconds. Part of a file that is written in parts has them of its own."""
    copied = os.environ.get("PURESTEP_COMMIT", "")  # of a copy without its history, as on another machine
    changes = copied or git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return {
        "commit": copied or git("rev-parse", "HEAD"),
        "modified": "unknown" if copied else bool(changes),
        "command": command(name, sys.argv[1:]),
        "seconds": round(seconds, 1),
    }


def command(name: str, arguments: Sequence[str]) -> str:
    """How this process was started, without the machine's own paths.

    `name` stands in for the module where the process is no `python -m ...`.

    >>> command("speed", ["--envs", "4"])
    'python -m benchmarks.speed --envs 4'
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name if spec is not None and spec.name.startswith("benchmarks.") else f"benchmarks.{name}"
    return " ".join(["python", "-m", module, *map(without_machine, arguments)])


def without_machine(argument: str) -> str:
    """An absolute path becomes relative to the repository, or its last name when it lies outside; all else stays."""
    flag, equals, value = argument.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return argument
    inside = path.is_relative_to(ROOT)
    return flag + equals + (path.relative_to(ROOT).as_posix() if inside else path.name)


def git(*arguments: str) -> str:
    """What git prints. Raises: CalledProcessError outside a repository."""
    run = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return run.stdout.strip()

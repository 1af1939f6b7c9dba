"""What a newcomer sees: the README's two commands in a fresh clone, with nothing installed and no cache; then all of CI.

Clones the commit into a temporary folder and times `make train`, an env of one's own before and after edits, `make test` and,
unless told otherwise, `.ci/run` there. Writes results/newcomer.json, and the learning curve that `make train` drew beside it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from . import evidence

TARGET, TEST_MINUTES, CI_MINUTES = 475.0, 5, 30
PASSED = re.compile(r"(\d+) passed")
TIMES = re.compile(r"(install|compile|train) (?:\(.*?\) )?([\d.]+) s")
OWN = "examples/stranger_env.py"
EDITS = {
    "new": ("def learn(", "LANDER = lander()\n\n\ndef learn("),
    "a comment": ("burns = ", "# without fuel it drifts\n        burns = "),
    "a rule": ("(action == 1)", "(action != 0)"),
}
RETURN = re.compile(r"evaluation: (\d+) episodes: return (-?[\d.]+) ± ([\d.]+)")


def environment(caches: Path) -> dict[str, str]:
    """This process's variables, without an active environment, with caches that are empty at first."""
    ours = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    own = {"XDG_CACHE_HOME": caches / "home", "TORCHINDUCTOR_CACHE_DIR": caches / "compiler"}
    return {**ours, **{name: str(path) for name, path in own.items()}}


def timed(words: list[str], where: Path, variables: Mapping[str, str]) -> tuple[str, float]:
    """What the command prints, also shown here, and its seconds. Raises: SystemExit when it fails."""
    print("$", *words, flush=True)
    start, lines = time.perf_counter(), list[str]()
    process = subprocess.Popen(
        words, cwd=where, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        print(line, end="", flush=True)
    if process.wait():
        sys.exit(f"{' '.join(words)}: ended with {process.returncode}")
    return "".join(lines), round(time.perf_counter() - start, 1)


def trained(where: Path, variables: Mapping[str, str]) -> dict[str, object]:
    """`make train`: its parts in seconds, as it says them, and what the policy reached."""
    text, seconds = timed(["make", "train"], where, variables)
    found = RETURN.search(text)
    pictures = sorted(where.glob("runs/*/*.png"))
    if not found or not pictures:
        sys.exit("make train: no evaluation or no picture in what it printed")
    shutil.copy(pictures[0], evidence.RESULTS / "newcomer.png")
    episodes, mean, error = int(found[1]), float(found[2]), float(found[3])
    reached = mean >= TARGET and episodes == 100
    return {"seconds": seconds, **parts(text), "episodes": episodes, "return": mean, "error": error, "reached": reached}


def edited(where: Path, variables: Mapping[str, str]) -> dict[str, object]:
    """Seconds of training one's own env, compilation among them: as it is, and after each of the edits."""
    rows: dict[str, object] = {}
    for name, (old, new) in EDITS.items():
        path = where / OWN
        before = path.read_text()
        if old not in before:
            sys.exit(f"{OWN}: no {old!r} to edit")
        path.write_text(before.replace(old, new, 1))
        words = [".venv/bin/purestep", "train", "ppo", "--env", f"{OWN}:LANDER", "--steps", "20000"]
        text, seconds = timed([*words, "--run", "runs/own", "--overwrite"], where, variables)
        rows[name] = {"seconds": seconds, "compile_seconds": parts(text)["compile_seconds"]}
    return rows


def parts(text: str) -> dict[str, float]:
    """Seconds of the parts of a training, as it says them last."""
    return {f"{name}_seconds": float(value) for name, value in TIMES.findall(text.splitlines()[-1])}


def tested(words: list[str], where: Path, variables: Mapping[str, str], minutes: int) -> dict[str, object]:
    """A run of tests: how many passed, in how many seconds of those allowed."""
    text, seconds = timed(words, where, variables)
    passed = [int(number) for number in PASSED.findall(text)]
    return {"seconds": seconds, "allowed": 60 * minutes, "passed": passed, "reached": seconds < 60 * minutes}


def main() -> int:
    """Prints all that the commands print; 1 if one of them does not keep its promise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.newcomer", description=__doc__)
    parser.add_argument("--skip-ci", action="store_true", help="only the README's two commands")
    given, start = parser.parse_args(), time.perf_counter()
    load = [round(value, 2) for value in os.getloadavg()]
    with tempfile.TemporaryDirectory() as folder:
        clone, variables = Path(folder) / "purestep", environment(Path(folder) / "caches")
        timed(["git", "clone", "--quiet", str(evidence.ROOT), str(clone)], Path(folder), variables)
        figures = {
            "make train": trained(clone, variables),
            "own env": edited(clone, variables),
            "make test": tested(["make", "test"], clone, variables, TEST_MINUTES),
        }
        if not given.skip_ci:
            shutil.rmtree(clone / ".venv")
            fresh = environment(Path(folder) / "others")
            figures[".ci/run"] = tested([".ci/run"], clone, fresh, CI_MINUTES)
    for name, row in figures.items():
        print(name, *(f"{key}={value}" for key, value in row.items()), sep="  ")
    about = {"cores": os.cpu_count(), "load_before": load}
    evidence.write("newcomer", seconds=time.perf_counter() - start, figures={"machine": about, **figures})
    return int(not all(row.get("reached", True) for row in figures.values()))


if __name__ == "__main__":
    sys.exit(main())

"""Install released packages, each in an environment of its own, run suites on them, and write docs/found.md.

python -m benchmarks.wild [--peers .peers] [--only skrl]
"""

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

from .. import evidence
from .trials import TRIALS

EXAMPLES = Path(__file__).parent / "examples"
FOUND = evidence.ROOT / "docs" / "found.md"
TORCH = "torch==2.13.0"  # first, so that no later requirement brings another build
NEEDED = ("attrs", "hypothesis", "numpy", "tensordict")
PEERS: dict[str, tuple[str, ...]] = {  # environment: packages, the first ones on trial
    "sb3": ("gymnasium[classic-control]", "minigrid", "stable-baselines3", "sb3-contrib", "pettingzoo[butterfly]"),
    "torchrl": ("torchrl",),
    "skrl": ("skrl", "rsl-rl-lib"),
    "tianshou": ("tianshou",),
    "trl": ("trl",),
    "verl": ("verl",),
    "verifiers": ("reasoning-gym", "verifiers"),
    "rejax": ("gymnax", "rejax", "gymnasium"),
    "rlax": ("rlax", "optax"),
    "d3rlpy": ("d3rlpy",),
}
HOME = {
    package.partition("[")[0]: name
    for name, packages in PEERS.items()
    for package in packages
    if "gymnasium" not in package
}
HOME |= {"gymnasium": "sb3", "torch": "torchrl"}


def python(peers: Path, name: str) -> Path:
    """Return the interpreter of an environment."""
    return peers / name / "bin" / "python"


def installed(peers: Path, name: str) -> str:
    """Install an environment, unless it is there; return "" or why not."""
    done = peers / name / ".done"
    if done.exists():
        return ""
    venv.create(peers / name, with_pip=True)
    for packages in ((TORCH,), (*PEERS[name], *NEEDED)):
        run = subprocess.run(
            [python(peers, name), "-m", "pip", "install", "--quiet", *packages],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            return " ".join(run.stderr.split())[-200:]
    done.touch()
    return ""


def version(peers: Path, package: str) -> str:
    """Return the version of an installed package."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [python(peers, HOME[package]), "-c", code], capture_output=True, text=True, check=False
    ).stdout.strip()


def trial(peers: Path, package: str) -> dict[str, Any]:
    """Return what the suites found in a package."""
    path = os.pathsep.join((str(evidence.ROOT / ".links"), str(evidence.ROOT)))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "SDL_VIDEODRIVER": "dummy",
    }
    start = time.perf_counter()
    run = subprocess.run(
        [python(peers, HOME[package]), "-W", "ignore", "-m", "benchmarks.wild.trials", package],
        capture_output=True, text=True, check=False, env=environment, cwd=evidence.ROOT,
    )  # fmt: skip
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    error = run.stderr.strip().splitlines()[-1:] if run.returncode else []
    found = {"version": version(peers, package), "functions": len(rows), "laws": sum(row["laws"] for row in rows)}
    return {**found, "seconds": round(time.perf_counter() - start, 1), "error": error, "rows": rows}


def example(peers: Path, path: Path) -> dict[str, Any]:
    """Return an example's fields, its script, and what it printed. Raises: RuntimeError if it does not show the fault."""
    text = path.read_text()
    head, _, script = text.removeprefix('"""\n').partition('"""\n')
    pairs = dict(line.split(": ", 1) for line in head.strip().replace("\n  ", " ").splitlines())
    run = subprocess.run(
        [python(peers, HOME[pairs["package"]]), "-W", "ignore", path],
        capture_output=True,
        text=True,
        check=False,
        cwd=peers,
        env={**os.environ, "PYGAME_HIDE_SUPPORT_PROMPT": "1"},
    )
    if run.returncode:
        raise RuntimeError(f"{path.name} does not show what it says: {run.stderr.splitlines()[-1:]}")
    package = pairs["package"]
    return {
        **pairs,
        "version": version(peers, package),
        "name": path.stem,
        "script": script.strip(),
        "output": run.stdout.strip(),
    }


def page(trials: dict[str, dict[str, Any]], skipped: dict[str, str], examples: list[dict[str, Any]]) -> str:
    """Return docs/found.md."""
    defects = [one for one in examples if one["judgement"] == "defect"]
    faulty, read = len({one["package"] for one in defects}), sum(one["suite"] == "none" for one in defects)
    lines = [
        "# Found in released packages", "",
        "Suites of `purestep.properties` on the newest releases of other packages. `python -m benchmarks.wild` installs them,",
        "runs the suites, runs each example below without purestep, and writes this page. A function that a suite alarms at is",
        "called a defect only where an example shows it and the other side's argument does not explain it.", "",
        f"{len(defects)} defects in {faulty} packages, {read} of them found by reading code beside the trials;",
        f"{len(examples) - len(defects)} documented choices and conventions; {len(trials)} packages tried.", "",
        "| package | version | functions | laws run | seconds | functions with an alarm |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, row in trials.items():
        alarms = ", ".join(one["function"] for one in row["rows"] if one["failed"]) or "none"
        lines.append(
            f"| {name} | {row['version']} | {row['functions']} | {row['laws']} | {row['seconds']} | {alarms} |"
        )
    lines += ["", *[f"Not tried: {name} ({reason})." for name, reason in skipped.items()]]
    lines += [f"Broken off: {name} ({row['error'][0]})." for name, row in trials.items() if row["error"]]
    for one in examples:
        lines += ["", f"## {one['package']} {one['version']}: {one['function']}", ""]
        law = (
            f"Found by reading: {one['law']}." if one["suite"] == "none" else f"Law `{one['law']}` of `{one['suite']}`."
        )
        lines += [f"{one['judgement'].capitalize()}. {law}"]
        lines += ["", f"The other side: {one['other side']}", "", f"Why: {one['why']}"]
        lines += ["", "```python", one["script"], "```", "", "```text", one["output"], "```"]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run all, and write the page and the figures; return 1 if an example does not show its fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wild", description=__doc__)
    parser.add_argument("--peers", type=Path, default=evidence.ROOT / ".peers", help="folder of the environments")
    parser.add_argument("--only", choices=TRIALS, action="append", help="these packages alone, beside all examples")
    options = parser.parse_args(arguments)
    peers, start = options.peers.absolute(), time.perf_counter()
    skipped = {name: reason for name in PEERS if (reason := installed(peers, name))}
    trials = {}
    skipped |= {name: "left out by --only" for name in TRIALS if options.only and name not in options.only}
    for package in TRIALS:
        if package not in skipped and HOME[package] not in skipped:
            trials[package] = trial(peers, package)
            print(
                package, json.dumps({key: value for key, value in trials[package].items() if key != "rows"}), flush=True
            )
    try:
        examples = [example(peers, path) for path in sorted(EXAMPLES.glob("*.py"))]
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    order = ("defect", "documented choice", "convention")
    examples.sort(key=lambda one: (order.index(one["judgement"]), one["name"]))
    counts = {name: sum(one["judgement"] == name for one in examples) for name in order}
    evidence.write(
        "wild", seconds=time.perf_counter() - start, figures={"found": counts, "skipped": skipped, "packages": trials}
    )
    FOUND.write_text(page(trials, skipped, examples))
    print(f"{counts['defect']} defects, {sum(row['laws'] for row in trials.values())} laws on {len(trials)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())

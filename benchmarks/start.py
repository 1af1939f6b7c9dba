"""Time until a command prints: each `--help`, `import purestep` beside `import torch`, the first line of a command.

Every figure is the median of several processes, one after the other, beside a floor that was measured in the same rounds: an
interpreter that does nothing, tyro (which reads the command line) alone, or torch alone. Writes results/start.json; exit code 1
where a figure is above its limit.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence

from . import evidence

HELP_SECONDS, IMPORT_SECONDS, LINE_SECONDS = 0.4, 0.3, 1.0  # limits: of CPU; of CPU beyond torch's; of the clock
PURESTEP = (sys.executable, "-m", "purestep.runtime.cli.main")
NOTHING, TYRO, TORCH = "python -c pass", "import tyro", "import torch"
PACKAGE, NAMES = "import torch, purestep", "import torch, and every name of purestep but program"
EVERY = "import torch, purestep\nfor name in purestep.__all__:\n    if name != 'program': getattr(purestep, name)"
ROW = re.compile(r"^  (\w+) ", re.MULTILINE)
RUN = ["--steps", "512", "--hidden", "8", "--backend", "none", "--episodes", "4"]

Cost = tuple[float, float, float]  # seconds of CPU, seconds of the clock, peak MB


def cost(words: Sequence[str]) -> Cost:
    """Measure the cost of a process from its start to its end. Raises: SystemExit where it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)}: ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024


def in_rounds(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Cost]]:
    """The costs of each command in each round; in a round all take turns, so that a busy machine is busy for all of them."""
    for words in commands.values():  # files are read and bytecode is written
        cost(words)
    taken = [{name: cost(words) for name, words in commands.items()} for _ in range(rounds)]
    return {name: [row[name] for row in taken] for name in commands}


def middle(costs: Iterable[Cost]) -> dict[str, float]:
    """The medians of several costs."""
    cpu, wall, peak = (statistics.median(column) for column in zip(*costs, strict=True))
    return {"cpu_seconds": round(cpu, 3), "wall_seconds": round(wall, 3), "peak_mb": round(peak, 1)}


def beyond(costs: Iterable[Cost], floor: Iterable[Cost]) -> float:
    """The median of what a command takes of CPU beyond its floor in the same round."""
    return round(statistics.median(one[0] - other[0] for one, other in zip(costs, floor, strict=True)), 3)


def helps() -> dict[str, list[str]]:
    """A command line for each page of help, under the name by which one asks for it."""

    def named_by(*words: str) -> list[str]:
        run = subprocess.run([*PURESTEP, *words, "--help"], capture_output=True, text=True, check=True)
        return ROW.findall(run.stdout)

    pages = [(), *((name,) for name in sorted(named_by())), *(("train", name) for name in named_by("train"))]
    return {" ".join(("purestep", *words, "--help")): [*PURESTEP, *words, "--help"] for words in pages}


def first_line(words: Sequence[str], folder: str) -> tuple[str, float]:
    """The first line that a command prints to standard error, and after how many seconds of the clock; the command goes on."""
    start = time.perf_counter()
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        seconds = time.perf_counter() - start
        process.stderr.read()
    if process.returncode:
        sys.exit(f"{' '.join(words)}: ended with {process.returncode}")
    return line.strip(), seconds


def lines(rounds: int) -> dict[str, dict[str, object]]:
    """The first lines of training, evaluating and resuming a small run of PPO, and an interpreter's own as their floor."""
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "floor": [sys.executable, "-c", "import sys; print('a line', file=sys.stderr)"],
            "purestep train ppo": [*PURESTEP, "train", "ppo", *RUN, "--run", "run", "--overwrite"],
            "purestep evaluate": [*PURESTEP, "evaluate", "run", "--episodes", "4"],
            "purestep resume": [*PURESTEP, "resume", "run", "--episodes", "4"],
        }
        taken = [{name: first_line(words, folder) for name, words in commands.items()} for _ in range(rounds)]
    return {
        name: {"line": taken[0][name][0], "wall_seconds": round(statistics.median(row[name][1] for row in taken), 3)}
        for name in commands
    }


def main() -> int:
    """Prints each figure beside its floor; 1 if one is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=7, help="processes of each command (of the first lines: at most 3)"
    )
    rounds, start = parser.parse_args().rounds, time.perf_counter()
    before = load()
    print(f"load {before} on {os.cpu_count()} cores")

    pages = helps()
    floors = {NOTHING: [sys.executable, "-c", "pass"], TYRO: [sys.executable, "-c", TYRO]}
    costs = in_rounds({**floors, **pages}, rounds)
    shown = {name: middle(row) for name, row in costs.items()}
    for name in pages:
        shown[name]["cpu_beyond_python"] = beyond(costs[name], costs[NOTHING])
        shown[name]["cpu_beyond_tyro"] = beyond(costs[name], costs[TYRO])
    for name, row in shown.items():
        print(f"{name:34}", *(f"{key} {value:.3f}" for key, value in row.items()), sep="  ")

    programs = {TORCH: TORCH, PACKAGE: PACKAGE, NAMES: EVERY}
    paired = in_rounds({name: [sys.executable, "-c", program] for name, program in programs.items()}, rounds)
    imports = {name: middle(row) for name, row in paired.items()}
    for name in (PACKAGE, NAMES):
        imports[name]["cpu_beyond_torch"] = beyond(paired[name], paired[TORCH])
    for name, row in imports.items():
        print(f"{name:54}", *(f"{key} {value:.3f}" for key, value in row.items()), sep="  ")

    first = lines(min(rounds, 3))
    for name, said in first.items():
        print(f"{name:20}  first line after {said['wall_seconds']:.3f} s: {said['line']}")

    reached = {
        "help": all(shown[name]["cpu_seconds"] <= HELP_SECONDS for name in pages),
        "import": all(imports[name]["cpu_beyond_torch"] <= IMPORT_SECONDS for name in (PACKAGE, NAMES)),
        "first line": all(float(str(said["wall_seconds"])) <= LINE_SECONDS for said in first.values()),
    }
    after = load()
    print(f"load {after}; within its limit: {reached}")
    figures = {
        "machine": {"cores": os.cpu_count(), "load_before": before, "load_after": after},
        "limits": {
            "help_cpu_seconds": HELP_SECONDS,
            "import_cpu_seconds_beyond_torch": IMPORT_SECONDS,
            "first_line_wall_seconds": LINE_SECONDS,
        },
        "rounds": rounds,
        "help": shown,
        "import": imports,
        "first line": first,
        "reached": reached,
    }
    evidence.write("start", seconds=time.perf_counter() - start, figures=figures)
    return int(not all(reached.values()))


def load() -> list[float]:
    """The machine's load over the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


if __name__ == "__main__":
    sys.exit(main())

"""Somebody else's task, in one file: every command with both tasks of examples/, by processes as a user starts them.

In turns, with two generators, on two ranks, from a vLLM server where one is installed, killed by SIGKILL and resumed,
evaluated and talked to. In turns and on two ranks, what was killed and resumed has the bits of a run that nobody stopped;
with generators, whose order is not repeated, `purestep replay` goes through the events instead. Prints a table and writes
results/own_tasks.json; 1 unless every command ends with 0, what was resumed has the same bits, each file has at most 80
formatted lines, and accuracy after the runs in turns is above the interval before.
"""

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from purestep.runtime.effects.openai_server.vllm_process import running
from purestep.runtime.effects.reporting.metrics import Row, read_metrics
from purestep.runtime.text.columns import LABEL
from tests.support.programs import free_port

from . import evidence
from .machines.ranks_recipe import world

EXAMPLES = evidence.ROOT / "examples"
MOST_LINES = 80  # of a task's file, formatted
SIZE = "--width 64 --layers 2 --heads 2 --groups 16 --samples 8 --held-out 128 --max-new-tokens 4"
FEW = "--warm-steps 40 --steps 4 --groups 2 --held-out 16"  # of runs that show no more than that they go
GENERATORS = "--mode async --no-compare --generators 2 --generator-slots 32"
KILL_AT = 3  # checkpoints
LONGEST = 600.0  # seconds of a command
Figures = Callable[[], Mapping[str, Any]]


@frozen
class Task:
    """A task and the flags with which it is learnt."""

    name: str
    file: str
    words: str  # of every command that trains
    learn: str  # of the run that shows what is learnt

    @property
    def reference(self) -> str:
        """FILE.py:NAME."""
        return f"{EXAMPLES / self.file}:{self.name}"

    def train(self, run: Path, words: str) -> list[str]:
        """The command that trains it."""
        return ["train", self.reference, "--run", str(run), *SIZE.split(), *self.words.split(), *words.split()]


TASKS = (
    Task("SAFE", "text_task.py", "--max-turns 4 --capacity 64", "--warm-steps 100 --steps 40"),
    Task("MARKET", "text_market.py", "--max-turns 20 --capacity 240", "--warm-steps 200 --steps 15"),
)


@define
class Rows:
    """What came of each command."""

    task: str
    rows: list[dict[str, Any]] = field(factory=list)

    def add(self, what: str, code: int | None, seconds: float, **figures: Any) -> None:
        """Keeps and prints a row."""
        self.rows.append({"task": self.task, "what": what, "exit": code, "seconds": round(seconds, 1), **figures})
        print(line(self.rows[-1]), flush=True)


def line(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    code = "-" if row["exit"] is None else row["exit"]
    rest = {name: value for name, value in row.items() if name not in ("task", "what", "exit", "seconds")}
    said = ", ".join(f"{name} {value}" for name, value in rest.items())
    return f"{row['task']:8}{row['what']:34}{code:>5}{row['seconds']:>8.1f} s  {said}"


def program(words: Sequence[str], ranks: int = 1) -> list[str]:
    """A command line of `purestep` in a process of its own, or in several by torchrun."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "--"]
    return [sys.executable, "-m", *(launcher if ranks > 1 else []), "purestep.runtime.cli.main", *words]


def done(rows: Rows, what: str, words: Sequence[str], log: Path, figures: Figures = dict, *, ranks: int = 1) -> None:
    """Runs a command to its end and keeps a row, with figures that are read afterwards."""
    start, usual = time.perf_counter(), {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("ab") as file:
        ended = subprocess.run(program(words, ranks), stdout=file, stderr=file, env=usual, timeout=LONGEST)
    seconds, code = time.perf_counter() - start, ended.returncode
    rows.add(what, code, seconds, **({"said": last(log)} if code else figures()))


def killed(rows: Rows, what: str, words: Sequence[str], home: Path, log: Path, *, ranks: int = 1) -> None:
    """Runs a command on so many ranks and kills all of it when there is a certain checkpoint."""
    start = time.perf_counter()
    with world(ranks, log, "purestep.runtime.cli.main", *words) as processes:
        processes.killed_at(home / "checkpoints" / f"step_{KILL_AT:06d}")
        code = processes.each[0].returncode
    rows.add(what, code, time.perf_counter() - start)


def last(log: Path, begins: str = "") -> str:
    """The last line of a log that begins so."""
    lines = [one.strip() for one in log.read_text(errors="replace").splitlines() if one.strip()]
    return next((one for one in reversed(lines) if one.startswith(begins)), "")[:200]


def learnt(run: Path, phase: str = "") -> dict[str, Any]:
    """Accuracy on held-out tasks before and after reinforcement, as it samples and greedy, with 95 % intervals."""
    before = json.loads((run / "before.json").read_text())
    after = json.loads((run / phase / "evaluation.json").read_text())["after"]
    both = {"before": before, "after": after}
    return {f"{when}, {how}": interval(held[how]) for how in ("sampled", "greedy") for when, held in both.items()}


def interval(held: Mapping[str, Any]) -> str:
    """Accuracy and its interval.

    >>> interval({"accuracy": 0.5, "accuracy_low": 0.25, "accuracy_high": 0.75})
    '0.500 [0.250, 0.750]'
    """
    return f"{held['accuracy']:.3f} [{held['accuracy_low']:.3f}, {held['accuracy_high']:.3f}]"


def labels(metrics: Path) -> dict[str, float]:
    """The shares of labels in the last row of a run's metrics."""
    row = read_metrics(metrics)[-1]
    return {name: round(share, 3) for name, share in row.items() if name.startswith(LABEL)}


def same(run: Path, whole: Path) -> dict[str, bool]:
    """Whether the weights of two runs, and the figures of each of their steps, have the same bits."""
    one, other = ((place / "model" / "model.safetensors").read_bytes() for place in (run, whole))
    rows, others = (read_metrics(place / "metrics.jsonl") for place in (run, whole))
    clocks = re.compile("second")
    told = [
        [{name: repr(row[name]) for name in row if not clocks.search(name)} for row in each] for each in (rows, others)
    ]
    return {"same weights": one == other, "same metrics": told[0] == told[1]}


def served(rows: Rows, task: Task, home: Path, python: Path) -> None:
    """Trains from a vLLM server of this machine, where there is one."""
    if not python.exists():
        rows.add("server", None, 0.0, skipped=f"no vLLM at {python}: see benchmarks/machines/server_zorplex.py")
        return
    run, log, port = home / "served", home / "served.log", int(free_port())
    start = time.perf_counter()
    words = task.train(run, f"{FEW} --steps 2 --server http://127.0.0.1:{port}/v1")
    with world(1, log, "purestep.runtime.cli.main", *words) as process:
        link = run / "served" / "served"
        while not link.exists() and process.each[0].poll() is None:
            time.sleep(0.1)
        window = int(task.words.split()[-1])
        with running(python, link, name="current", log=home / "vllm.log", port=port, window=window):
            code = process.each[0].wait(LONGEST)
    rows.add("server", code, time.perf_counter() - start, **({"said": last(log)} if code else apart(run)))


def apart(run: Path) -> dict[str, float]:
    """The largest |trainer - server| log-prob of a run's samples."""
    return {"log-probs apart": max(row.get("log_prob_difference", 0.0) for row in reinforced(run / "metrics.jsonl"))}


def reinforced(metrics: Path) -> list[Row]:
    """The rows of the steps of reinforcement."""
    return [row for row in read_metrics(metrics) if math.isfinite(row["episode_return"])]


def tried(task: Task, home: Path, python: Path) -> list[dict[str, Any]]:
    """Every command with one task."""
    rows = Rows(task.name)
    log, trust = home / "log", "--trust"
    full, beside, ranks, whole, cut = (home / name for name in ("full", "async", "ranks", "whole", "cut"))
    done(
        rows, "in turns", task.train(full, task.learn), log, lambda: {**learnt(full), **labels(full / "metrics.jsonl")}
    )
    done(
        rows,
        "evaluate",
        ["evaluate", str(full), trust, "--tasks", "64"],
        log,
        lambda: {"said": last(log, "evaluation")},
    )
    done(rows, "chat", ["chat", str(full), trust, "--task", "1"], log, lambda: {"said": last(log)})
    done(rows, "plot", ["plot", str(full)], log)
    generators = task.train(beside, f"{task.learn} {GENERATORS}")
    killed(rows, "async, killed", generators, beside / "async", log)
    resume = ["resume", str(beside), trust]
    done(
        rows,
        "async, resumed",
        resume,
        log,
        lambda: {**learnt(beside, "async"), **labels(beside / "async/metrics.jsonl")},
    )
    done(rows, "replay", ["replay", str(beside)], log, lambda: {"said": last(log)})
    done(rows, "in turns, a few steps", task.train(whole, FEW), log)
    killed(rows, "the same, killed", task.train(cut, FEW), cut, log)
    done(rows, "the same, resumed", ["resume", str(cut), trust], log, lambda: same(cut, whole))
    done(rows, "2 ranks, by torchrun", task.train(ranks, FEW), log, ranks=2)
    torn = home / "torn"
    killed(rows, "2 ranks, killed", task.train(torn, FEW), torn, log, ranks=2)
    done(rows, "2 ranks, resumed", ["resume", str(torn), trust], log, lambda: same(torn, ranks), ranks=2)
    served(rows, task, home, python)
    return rows.rows


def formatted(file: Path) -> int:
    """The lines of a file, which has to be formatted. Raises: CalledProcessError."""
    subprocess.run([sys.executable, "-m", "ruff", "format", "--check", "--quiet", str(file)], check=True)
    return len(file.read_text().splitlines())


def wrong(row: Mapping[str, Any]) -> bool:
    """Whether a row is not as it should be."""
    expected = -signal.SIGKILL if row["what"].endswith("killed") else 0
    better = row["what"] != "in turns" or bound(row["after, sampled"], 0) > bound(row["before, sampled"], 1)
    return row["exit"] not in (expected, None) or any(value is False for value in row.values()) or not better


def bound(text: str, which: int) -> float:
    """The lower or upper bound of `interval`'s text.

    >>> bound("0.500 [0.250, 0.750]", 1)
    0.75
    """
    return float(re.findall(r"[\d.]+", text)[1 + which])


def main() -> int:
    """Prints the table; 0 where all is as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    usual = Path(os.environ.get("VLLM_PYTHON", evidence.ROOT / ".peers" / "vllm" / "bin" / "python"))
    parser.add_argument("--python", type=Path, default=usual, help="of vLLM's environment (else $VLLM_PYTHON)")
    asked, start = parser.parse_args(), time.perf_counter()
    lines = {task.file: formatted(EXAMPLES / task.file) for task in TASKS}
    print(", ".join(f"{file}: {count} lines" for file, count in lines.items()))
    rows = list[dict[str, Any]]()
    for task in TASKS:
        with tempfile.TemporaryDirectory() as home:
            rows += tried(task, Path(home), asked.python)
    figures = {"formatted_lines": lines, "commands": rows}
    evidence.write("own_tasks", seconds=time.perf_counter() - start, figures=figures)
    faults = [line(row) for row in rows if wrong(row)]
    print("\n".join(["all is as it should be"] if not faults else ["not as it should be:", *faults]))
    return int(bool(faults) or max(lines.values()) > MOST_LINES)


if __name__ == "__main__":
    sys.exit(main())

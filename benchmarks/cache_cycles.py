"""`purestep train cache` as it comes: accuracy on held-out problems after T = 1..12 cycles, untrained and trained.

Trains as a user would, with seeds 1 2 3, each with held-out problems of its own (draw = seed), in folders of their own, one
after the other. "Untrained" is the same model before reinforcement, behind its warm start. Says what the figures say, by
paired differences over the seeds and their 95 % intervals: whether trained is above untrained, whether accuracy rises beyond
the cycles of training, whether it falls again. Writes results/cache_cycles.json and a picture; with generators, by the
options `--mode async --no-compare`, cache_cycles_async.json and its picture; with other seeds or options
cache_cycles_small.json, and no picture. Ends with 1 where a seed took too long.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from purestep.core.language.evaluation import Axis, Curve
from purestep.runtime.effects.reporting.curves_picture import curves_picture
from purestep.runtime.effects.reporting.metrics import read_metrics

from . import evidence
from .parts.intervals import mean_of

NAME, SEEDS, MINUTES = "cache_cycles", [1, 2, 3], 10.0
ASYNC = ["--mode", "async", "--no-compare"]
PARTS = {"mean": "accuracy", "low": "accuracy_low", "high": "accuracy_high"}
WHEN = {"untrained": "before", "trained": "after"}  # names here, and in a run's evaluation


def trained(run: Path, seed: int, words: Sequence[str]) -> dict[str, Any]:
    """The command, timed as a whole, and what its evaluation says."""
    told = ["train", "cache", "--seed", str(seed), "--draw", str(seed), "--run", str(run), *words]
    begin, spent = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, "-m", "purestep.runtime.cli.main", *told], check=True, capture_output=True, text=True
    )
    seconds, after = time.perf_counter() - begin, os.times()
    print(done.stdout, end="", flush=True)
    home = phase(run)
    found = {
        "before": json.loads((run / "before.json").read_text()),
        "after": json.loads((home / "evaluation.json").read_text())["after"],
    }
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(
            after.children_user + after.children_system - spent.children_user - spent.children_system, 1
        ),
        "parts": next(line for line in done.stdout.splitlines() if line.startswith("time: ")),
        "groups published": sum(
            1 for line in (home / "rollouts.jsonl").read_text().splitlines() if json.loads(line)["last"]
        ),
        **{name: found[when] for name, when in WHEN.items()},
    }


def phase(run: Path) -> Path:
    """Return the folder that holds a run's metrics and evaluation: of a run with generators, that of its phase."""
    return run / "async" if (run / "async").is_dir() else run


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95 % interval over seeds (Student); of one value no interval is known.

    >>> interval([0.25, 0.5, 0.75])
    {'mean': 0.5, 'low': -0.1211, 'high': 1.1211}
    """
    return {"mean": 0.0, "low": -1.0, "high": 1.0, **mean_of(values).described(4)}


def verdict(difference: dict[str, float]) -> str:
    """What an interval of a difference says.

    >>> verdict({"mean": 0.25, "low": 0.125, "high": 0.375}), verdict({"mean": 0.25, "low": -0.125, "high": 0.5})
    ('yes', 'not decided')
    """
    if difference["low"] > 0:
        return "yes"
    return "no" if difference["high"] < 0 else "not decided"


def compared(rows: Sequence[dict[str, Any]], trained_on: int) -> dict[str, Any]:
    """What the seeds say together: accuracy by T of both, and the questions with their differences and answers."""
    curves = {
        name: [interval([row[name]["accuracy"][t] for row in rows]) for t in range(len(rows[0][name]["accuracy"]))]
        for name in WHEN
    }
    last = len(curves["trained"])
    best = max(range(last), key=lambda t: curves["trained"][t]["mean"]) + 1

    def change(name: str, early: int, late: int) -> dict[str, float]:
        return interval([row[name]["accuracy"][late - 1] - row[name]["accuracy"][early - 1] for row in rows])

    above = {
        t: interval([row["trained"]["accuracy"][t - 1] - row["untrained"]["accuracy"][t - 1] for row in rows])
        for t in dict.fromkeys((trained_on, best, last))
    }
    questions = {
        **{f"is trained above untrained at T = {t}": difference for t, difference in above.items()},
        f"does trained rise from T = {trained_on} to T = {last}": change("trained", trained_on, last),
        f"does trained rise from T = {trained_on} to its best, T = {best}": change("trained", trained_on, best),
        f"does trained fall from its best to T = {last}": change("trained", last, best),
        f"does untrained rise from T = {trained_on} to T = {last}": change("untrained", trained_on, last),
    }
    return {
        "accuracy by T": curves,
        "best T": best,
        "answers": {asked: {**told, "answer": verdict(told)} for asked, told in questions.items()},
    }


def table(found: dict[str, Any]) -> str:
    """Accuracy by T, side by side."""
    curves = found["accuracy by T"]
    head = "   T  " + "  ".join(f"{name:24}" for name in curves)
    rows = [
        f"{t + 1:4}  " + "  ".join(f"{told['mean']:.3f} [{told['low']:+.3f}, {told['high']:+.3f}]" for told in each)
        for t, each in enumerate(zip(*curves.values(), strict=True))
    ]
    answers = [
        f"{asked}? {told['answer']}: {told['mean']:+.3f} [{told['low']:+.3f}, {told['high']:+.3f}]"
        for asked, told in found["answers"].items()
    ]
    return "\n".join([head, *rows, *answers])


def picture(runs: Sequence[Path], rows: Sequence[dict[str, Any]], out: Path, trained_on: int) -> Path:
    """Accuracy over cycles with intervals over seeds, and the rewards of training."""
    curves = {
        name: [Curve(**{part: tuple(row[name][key]) for part, key in PARTS.items()}) for row in rows] for name in WHEN
    }
    axis = Axis(
        title="reasoning cache",
        heading="accuracy on held-out problems",
        x="cycles T",
        mark=trained_on,
        marked="cycles in training",
    )
    return curves_picture([read_metrics(phase(run) / "metrics.jsonl") for run in runs], curves, out, axis=axis)


def main() -> int:
    """Runs the seeds one after the other; 0 when each was quick enough."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{NAME}", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="(default: 1 2 3)")
    given, words = parser.parse_known_args()
    begin, load = time.perf_counter(), [round(x, 2) for x in os.getloadavg()]
    whole = given.seeds == SEEDS and words in ([], ASYNC)
    name = NAME if whole and not words else f"{NAME}_async" if whole else f"{NAME}_small"
    rows = dict[str, Any]()
    with tempfile.TemporaryDirectory() as place:
        runs = [Path(place) / f"seed-{seed}" for seed in given.seeds]
        for seed, run in zip(given.seeds, runs, strict=True):
            rows[str(seed)] = trained(run, seed, words)
            print(f"seed {seed}: {rows[str(seed)]['seconds']} s", flush=True)
        trained_on = json.loads((runs[0] / "arguments.json").read_text())["num_reasoning_steps"]
        found = compared(list(rows.values()), trained_on)
        quick = [row["seconds"] <= 60 * MINUTES for row in rows.values()]
        figures = {
            "trained on T": trained_on,
            "problems of a seed": next(iter(rows.values()))["trained"]["problems"],
            "minutes of a seed, at most": MINUTES,
            "quick enough": sum(quick),
            "cores": os.cpu_count(),
            "load_before": load,
            **found,
            "seeds": rows,
        }
        path = evidence.write(name, seconds=time.perf_counter() - begin, figures=figures)
        if whole:
            print(f"picture: {picture(runs, list(rows.values()), path.with_suffix('.png'), trained_on).name}")
    print(table(found))
    return 0 if all(quick) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The same prompts, model and reward functions in TRL's GRPOTrainer and in `purestep.train_text`: seconds a step, and rewards.

The reward functions are those that TRL documents and ships, unchanged: accuracy_reward, think_format_reward and
get_soft_overlong_punishment. Each side is one process on the CPU with one thread, with the same settings; the sides take turns.
Both start from a small model that was shown the form of answers and not the skill (`parts/thinking`). Prints and writes
results/trl_text.json; 1 unless a step of ours takes no longer, and both learn.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import evidence
from .parts.sides import Report, Side, run
from .parts.thinking import TOKENS, write
from .parts.timing import ratio, scaled

SIDES = {"purestep": Side("trl", "purestep_text"), "trl": Side("trl", "trl_text")}
GROUPS, SAMPLES, RATE = 8, 8, 3e-4
LAST = 5  # steps at either end that a mean is over
RISE = 0.1  # of the mean reward


def main() -> int:
    """Measures and writes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trl_text", description=__doc__)
    parser.add_argument("--steps", type=int, default=30, help="of each run (default: 30)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often the sides take turns, a seed each (default: 3)"
    )
    parser.add_argument("--warm-steps", type=int, default=400, help="of the model that begins (default: 400)")
    parser.add_argument("--dry", action="store_true", help="print and write no file")
    asked = parser.parse_args()
    start, load = time.perf_counter(), [round(each, 2) for each in os.getloadavg()]
    os.environ["PYTHONPATH"] = str(evidence.ROOT / ".links")
    found: dict[str, list[Report]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        model, prompts = write(Path(folder), number=1000, warm_steps=asked.warm_steps)
        common = {"model": model, "prompts": prompts, "steps": asked.steps, "groups": GROUPS, "samples": SAMPLES}
        common |= {"tokens": TOKENS, "rate": RATE, "threads": 1}
        for number in range(asked.rounds):
            for name in list(SIDES)[:: 1 if number % 2 == 0 else -1]:
                found[name].append(run(SIDES[name], {**common, "seed": number}))
                print(f"round {number}, {name}: {shown(found[name][-1])}", flush=True)
    figures: dict[str, Any] = {"load before": load, "threads": 1, "prompts of a step": GROUPS, "samples": SAMPLES}
    for kind in ("seconds", "cpu seconds"):
        each = {name: [sum(one[kind]) / len(one[kind]) for one in reports] for name, reports in found.items()}
        figures[f"{kind} a step"] = {name: scaled(values, 1.0) for name, values in each.items()}
        figures[f"{kind}: TRL's / ours"] = ratio(each["trl"], each["purestep"])
    figures["first and last steps"] = {name: [ends(one) for one in reports] for name, reports in found.items()}
    figures["curves"] = {
        name: [{key: [round(x, 4) for x in one[key]] for key in ("reward", "accuracy", "length")} for one in reports]
        for name, reports in found.items()
    }
    figures["our evaluations"] = [one["evaluation"] for one in found["purestep"]]
    learnt = all(
        one["reward"][1] - one["reward"][0] >= RISE for rows in figures["first and last steps"].values() for one in rows
    )
    quick = figures["cpu seconds: TRL's / ours"]["median"] >= 1.0
    figures["both learn"], figures["ours is not slower"] = learnt, quick
    print(json.dumps({name: value for name, value in figures.items() if name != "curves"}, indent=1))
    if not asked.dry:
        evidence.write("trl_text", seconds=time.perf_counter() - start, figures=figures)
    return int(not (learnt and quick))


def ends(report: Report) -> dict[str, list[float]]:
    """Means over the first and over the last steps of a run.

    >>> ends({"reward": [0.0] * 5 + [1.0] * 5, "accuracy": [0.5] * 10, "length": [3.0] * 10})["reward"]
    [0.0, 1.0]
    """
    return {
        name: [round(sum(some) / len(some), 4) for some in (report[name][:LAST], report[name][-LAST:])]
        for name in ("reward", "accuracy", "length")
    }


def shown(report: Report) -> str:
    """A report in one line."""
    mean = sum(report["seconds"]) / len(report["seconds"])
    cpu = sum(report["cpu seconds"]) / len(report["cpu seconds"])
    return f"{mean:.2f} s a step, {cpu:.2f} s of CPU, {ends(report)}"


if __name__ == "__main__":
    sys.exit(main())

"""`purestep train zorplex` with no arguments but the seed: seconds, and accuracy on held-out tasks before and after.

Trains as a user would, in a folder of its own, one seed after the other; then opens the saved folder with transformers, in a
process of its own, and compares its logits with those of the run's checkpoint. Writes results/zorplex_learns.json, the last
seed's table and its curves. Ends with 1 where a seed took too long, began too well, or stayed below the target: by its greedy
accuracy, since sampled accuracy also rises where reinforcement only sharpens what the warm start taught. Other words are passed
on: `--kl 0` shows the same without the divergence from the warm start.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from purestep.core.transcript.log_probs import token_log_probs
from purestep.runtime.runs import run as runs
from purestep.runtime.text.components import attempts_at
from purestep.runtime.text.evaluation import held_out
from purestep.runtime.text.training_loop import policy_of

from . import evidence

MINUTES, LEAST, MOST = 5.0, 0.90, 0.45  # of a seed; greedy accuracy after, and before reinforcement
SAME = 1e-4  # how far logits may be off for rounding
WHEN = ("before", "after")
TASKS = 8  # held-out ones whose prompts are compared
PICTURE = "zorplex_learns_curve.png"
OTHERS = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
AutoTokenizer.from_pretrained(sys.argv[1])
with torch.no_grad():
    print(json.dumps([model(torch.tensor([ids])).logits[0].tolist() for ids in json.loads(sys.stdin.read())]))
"""


def trained(run: Path, seed: int, words: list[str]) -> dict[str, Any]:
    """The command, timed as a whole, and what its evaluation says."""
    command = [
        sys.executable,
        "-m",
        "purestep.runtime.cli.main",
        "train",
        "zorplex",
        "--seed",
        str(seed),
        "--run",
        str(run),
    ]
    begin = time.perf_counter()
    done = subprocess.run([*command, *words], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    print(done.stdout, end="", flush=True)
    told = json.loads((run / "evaluation.json").read_text())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    differences = [row["log_prob_difference"] for row in rows if isinstance(row["log_prob_difference"], float)]
    return {
        "seconds": round(seconds, 1),
        "parts": next(line for line in done.stdout.splitlines() if line.startswith("time: ")),
        "steps": sum(isinstance(row["accuracy"], float) for row in rows),
        "largest |trainer - sampler| log-prob": max(differences),
        "before": told["before"],
        "after": told["after"],
        "largest |logits of the folder - own|": apart(run),
    }


def apart(run: Path) -> float:
    """How far the logits of the saved folder, opened by transformers alone, are from those of the checkpoint."""
    found = runs.restore_run(run, where=runs.newest_checkpoint(run))
    parts, held = found.components.opened, found.state
    params = parts.whole(policy_of(held))
    prompts = [list(attempt.ids) for attempt in attempts_at(parts, held_out(TASKS, 0))]
    told = subprocess.run(
        [sys.executable, "-c", OTHERS, str(run / "model")],
        input=json.dumps(prompts),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    ).stdout
    distance = 0.0
    for ids, theirs in zip(prompts, json.loads(told.splitlines()[-1]), strict=True):
        tokens = torch.tensor([ids])
        with torch.no_grad():
            ours = parts.model.head(params, parts.model.apply(params, tokens, (), ()))
        wanted = token_log_probs(torch.tensor([theirs]), tokens)
        distance = max(
            distance,
            float((ours[0] - torch.tensor(theirs)).abs().max()),
            float((token_log_probs(ours, tokens) - wanted).abs().max()),
        )
    return distance


def reached(row: dict[str, Any]) -> bool:
    """Whether a seed did what is asked of it."""
    before, after = row["before"]["greedy"]["accuracy"], row["after"]["greedy"]["accuracy"]
    quick, same = row["seconds"] <= 60 * MINUTES, row["largest |logits of the folder - own|"] < SAME
    return bool(quick and same and before <= MOST and after >= LEAST)


def shown(row: dict[str, Any]) -> str:
    """An accuracy and its interval.

    >>> shown({"accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6})
    '.500 [.400, .600]'
    """
    one, low, high = (f"{row[name]:.3f}".lstrip("0") for name in ("accuracy", "accuracy_low", "accuracy_high"))
    return f"{one} [{low}, {high}]"


def main() -> int:
    """Runs the seeds one after the other; 0 when each reached what is asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zorplex_learns", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    given, words = parser.parse_known_args()
    begin = time.perf_counter()
    load = [round(x, 2) for x in os.getloadavg()]
    rows, run = dict[str, Any](), Path()
    with tempfile.TemporaryDirectory() as place:
        for seed in given.seeds:
            run = Path(place) / f"seed-{seed}"
            rows[str(seed)] = trained(run, seed, words)
            for kind in ("greedy", "sampled"):
                print(f"seed {seed}, {kind}: {' -> '.join(shown(rows[str(seed)][when][kind]) for when in WHEN)}")
            verdict = "as asked" if reached(rows[str(seed)]) else "NOT as asked"
            print(f"seed {seed}: {rows[str(seed)]['seconds']} s, {verdict}", flush=True)
        figures = {
            "wanted": {
                "minutes": MINUTES,
                "greedy accuracy before, at most": MOST,
                "greedy accuracy after, at least": LEAST,
            },
            "reached": sum(map(reached, rows.values())),
            "cores": os.cpu_count(),
            "load_before": load,
            "seeds": rows,
        }
        path = evidence.write("zorplex_learns", seconds=time.perf_counter() - begin, figures=figures)
        shutil.copyfile(run / "learning_curve.png", path.with_name(PICTURE))
    return 0 if figures["reached"] == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

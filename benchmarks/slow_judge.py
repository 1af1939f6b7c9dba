"""A judge that sleeps .5 s a call: training in turns beside asynchronous training, which samples while it waits for rewards.

Both train the same tiny model on the same prompts for as many steps. Seconds are those of the steps, without the start of
processes and without evaluations. Writes benchmarks/results/slow_judge.json.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import purestep
from purestep.runtime.effects.hugging_face.causal_lm import from_config, tiny_llama
from purestep.runtime.effects.hugging_face.folder import save_model
from purestep.runtime.effects.hugging_face.tokenizer import train_tokenizer

from . import evidence

SLEEP = 0.5  # seconds of a call of the judge
JUDGE = f"""
import pathlib, time

def slow(completions, **columns):
    with pathlib.Path(__file__).with_name("calls").open("a") as file:
        file.write(f"{{len(completions)}}\\n")
    time.sleep({SLEEP})
    return [-float(len(text)) for text in completions]
"""
SETTINGS = ["--groups", "4", "--samples", "4", "--held-out", "2", "--max-new-tokens", "32", "--learning-rate", "1e-4"]
MODES = {
    "turns": (),
    "async": ("--mode", "async", "--no-compare", "--generators", "1"),
}


def given(home: Path) -> None:
    """Write a model, prompts and the judge."""
    rows = [{"prompt": f"{first} + {second}?"} for first in range(20) for second in range(20)]
    (home / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "judge.py").write_text(JUDGE)
    tokenizer = train_tokenizer([row["prompt"] for row in rows], vocabulary=270)
    config = tiny_llama(len(tokenizer), width=64, layers=2, heads=2, kv_heads=1, inner=128, window=64)
    save_model(home / "model", from_config(config).init(purestep.keys.key(0)), config, tokenizer)


def trained(home: Path, mode: str, steps: int, workers: int) -> dict[str, Any]:
    """Train in a process of its own; return the seconds from the first step to the last, and the judge's calls."""
    run, calls = home / mode, home / "calls"
    calls.unlink(missing_ok=True)
    words = ["train", "text", "--model", home / "model", "--prompts", home / "sums.jsonl", "--run", run]
    words += ["--reward", f"{home / 'judge.py'}:slow", "--reward-workers", workers, "--steps", steps]
    begin = time.perf_counter()
    command = [sys.executable, "-m", "purestep", *map(str, words), *SETTINGS, *MODES[mode]]
    subprocess.run(command, check=True, capture_output=True, cwd=evidence.ROOT)
    whole = time.perf_counter() - begin
    rows = [json.loads(line) for line in (run / ("async" if mode == "async" else "") / "metrics.jsonl").open()]
    spent = sum(
        row["rollout_seconds"] + row["update_seconds"] for row in rows[1:]
    )  # the first has the start of workers
    judged = [int(line) for line in calls.read_text().split()]
    return {
        "seconds of steps": round(spent, 2),
        "seconds of the program": round(whole, 2),
        "calls of the judge": len(judged),
        "samples of a call": round(sum(judged) / len(judged), 2),
    }


def main() -> int:
    """Train both ways; 0 where asynchronous training takes at most as long as training in turns and a half more."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_judge", description=__doc__)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    begin = time.perf_counter()
    with TemporaryDirectory() as folder:
        given(Path(folder))
        found = {mode: trained(Path(folder), mode, options.steps, options.workers) for mode in MODES}
    ratio = round(found["async"]["seconds of steps"] / found["turns"]["seconds of steps"], 2)
    for mode, row in found.items():
        print(f"{mode:6} " + ", ".join(f"{value} {name}" for name, value in row.items()))
    print(f"async / turns: {ratio}")
    figures = {"sleep of a call": SLEEP, "steps": options.steps, **found, "async / turns": ratio}
    evidence.write("slow_judge", seconds=time.perf_counter() - begin, figures=figures)
    return int(ratio > 1.5)


if __name__ == "__main__":
    sys.exit(main())

"""Our side of `benchmarks.trl_text`: `purestep.train_text` with TRL's own reward functions; prints one line of JSON.

    python benchmarks/peers/purestep_text.py --model FOLDER --prompts FILE ...     # by the python of the environment "trl"

The functions are objects of this process, called in one of its threads, so that each side is one process. A step is timed as
the run makes it: sampling, rewards, update, metrics and kept conversations, without checkpoints and evaluations.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # read when these are imported

import torch
from trl.rewards import accuracy_reward, get_soft_overlong_punishment, think_format_reward

import purestep
from purestep.runtime.text.training_loop import TextTrainingLoop


def main() -> None:
    """Trains and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    for name in ("steps", "groups", "samples", "tokens", "seed", "threads"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--rate", type=float, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    seconds, cpu, step = list[float](), list[float](), TextTrainingLoop.train

    def timed(loop: TextTrainingLoop, command: Any) -> Any:
        start = time.perf_counter(), time.process_time()
        made = step(loop, command)
        seconds.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
        return made

    TextTrainingLoop.train = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        purestep.train_text(
            model=asked.model,
            prompts=asked.prompts,
            reward=[accuracy_reward, think_format_reward, get_soft_overlong_punishment(asked.tokens, 16)],
            run=run,
            steps=asked.steps,
            groups=asked.groups,
            samples=asked.samples,
            max_new_tokens=asked.tokens,
            learning_rate=asked.rate,
            seed=asked.seed,
            threads=asked.threads,
            notice=lambda line: print(line, file=sys.stderr),
        )
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        found = json.loads((run / "evaluation.json").read_text())
    told = {
        "seconds": seconds[1:],
        "cpu seconds": cpu[1:],
        "reward": [row["episode_return"] for row in rows],
        "accuracy": [row["reward_accuracy_reward"] for row in rows],
        "length": [row["tokens"] for row in rows],
        "evaluation": {
            f"{kind} {when}": {name: found[when][kind][name] for name in ("reward", "reward_accuracy_reward")}
            for when in ("before", "after")
            for kind in ("sampled", "greedy")
        },
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()

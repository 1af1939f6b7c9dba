"""One thread against `--threads auto` where a minibatch is large: PPO on CartPole as `purestep train ppo` runs it.

Both sides take turns, after a run of each that compiles its program. Seconds are those of training, as the command prints them.
Prints a row for each setting; writes results/threads.json.
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from . import evidence

SIDES = ("1", "auto")
SETTINGS = {  # worlds, steps of each from one update to the next, sizes of the hidden layers, steps in all
    "4 x 128, 2x64": (4, 128, (64, 64), 250_000),
    "64 x 128, 2x64": (64, 128, (64, 64), 1_000_000),
    "1,024 x 32, 2x64": (1024, 32, (64, 64), 2_000_000),
    "1,024 x 32, 2x256": (1024, 32, (256, 256), 500_000),
}
TRAINED = re.compile(r"train ([0-9.]+) s, ")
CHOSEN = re.compile(r"--threads auto: ([0-9]+)")


def trained(setting: tuple[int, int, tuple[int, ...], int], threads: str, home: str) -> tuple[float, int]:
    """Seconds of a run's training, and the number of its threads. Raises: CalledProcessError where it fails."""
    envs, horizon, hidden, steps = setting
    words = ["train", "ppo", "--env", "cartpole", "--envs", envs, "--horizon", horizon, "--hidden", *hidden]
    words += ["--steps", steps, "--threads", threads, "--episodes", 1, "--run", f"{home}/run", "--overwrite"]
    own = {"XDG_CACHE_HOME": home, "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor"}
    called = subprocess.run(
        [sys.executable, "-m", "purestep.runtime.cli.main", *map(str, words)],
        env={**os.environ, **own},
        check=True,
        capture_output=True,
        text=True,
    )
    told = called.stdout + called.stderr
    seconds, chosen = TRAINED.search(told), CHOSEN.search(told)
    if not seconds or (threads == "auto") != bool(chosen):
        raise RuntimeError(f"no seconds of training, or no number of threads, in: {told[-500:]}")
    return float(seconds[1]), int(chosen[1]) if chosen else int(threads)


def main() -> None:
    """Prints a row for each setting."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    given, start = parser.parse_args(), time.perf_counter()
    before, rows = os.getloadavg(), dict[str, Any]()
    for name, setting in SETTINGS.items():
        with tempfile.TemporaryDirectory() as home:
            threads = {side: trained(setting, side, home)[1] for side in SIDES}
            turns = [{side: trained(setting, side, home)[0] for side in SIDES} for _ in range(given.repetitions)]
        ratios = [turn["1"] / turn["auto"] for turn in turns]
        seconds = {side: statistics.median(turn[side] for turn in turns) for side in SIDES}
        gain = {"median": round(statistics.median(ratios), 3), "all": [round(ratio, 3) for ratio in ratios]}
        rows[name] = {"threads": threads["auto"], "seconds": seconds, "1 / auto": gain}
        print(f"{name:20} auto: {threads['auto']} threads, {gain['median']:.2f} x of one ({gain['all']})", flush=True)
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load before": before}
    evidence.write("threads", seconds=time.perf_counter() - start, figures={"machine": machine, "settings": rows})


if __name__ == "__main__":
    main()

"""PPO on CartPole on a GPU: steps a second of whole iterations, a run and a sweep by the command line, beside rejax.

Each program is compiled, run once, and timed over the next chunks of five iterations, with products in float32 and in TF32, as
rejax computes them. The sweep trains learning rates x seeds from a fresh process to its pictures, on both sides in one part.
rejax is measured on the same card where this python has it. `--device cpu` tries the benchmark without a GPU. `--parts` runs
some of it; rows of other parts stay in results/gpu.json. In a copy without its history, PURESTEP_COMMIT names its commit.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from purestep.core import keys
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.recipes.algorithm_flags import settings_class
from purestep.runtime.recipes.classic import Classic
from purestep.runtime.recipes.pipeline import actor_critic_pipeline
from purestep.runtime.recipes.shared_settings import ExperienceOptions, Process
from purestep.runtime.train import folded

from . import evidence

SHAPES = ("4096x128", "64x128")
PARTS = ("iterations", "sweep", "train", "uncompiled")
CHUNK, CHUNKS = 5, 20
EPISODES = 100
RATES, SEEDS, STEPS = 100, 5, 50_000  # of the sweep


def wait(device: str) -> None:
    """Waits for the work that was given to the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def measured(shape: str, device: str, backend: Literal["inductor", "none"]) -> dict[str, float]:
    """Seconds until the first chunk is done, and steps a second of the next ones."""
    envs, horizon = map(int, shape.split("x"))
    experience = ExperienceOptions(
        env="cartpole", envs=envs, horizon=horizon, steps=CHUNK * (CHUNKS + 1) * envs * horizon
    )
    process, algorithm = Process(device=device, backend=backend), settings_class("purestep.algorithms.ppo:ppo")()
    made = actor_critic_pipeline(Classic(experience=experience, algorithm=algorithm, process=process))
    state = made.trainer.init(keys.key(0, device=device))
    chunk: Any = folded(made.trainer, CHUNK)
    chunks = CHUNKS if backend == "inductor" else 1  # uncompiled, a chunk takes seconds
    run = chunk if backend == "none" else program(chunk, name=shape)
    begin = time.perf_counter()
    state, metrics = run(state)
    wait(device)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(chunks):
        state, metrics = run(state)
    wait(device)
    spent = time.perf_counter() - begin
    assert all(bool(leaf.isfinite().all()) for leaf in leaves(state.learner.params))
    return {
        "first chunk, seconds": round(first, 1),
        "milliseconds an iteration": round(spent / chunks / CHUNK * 1e3, 3),
        "steps a second": round(chunks * CHUNK * envs * horizon / spent),
        "training return": round(float(metrics["return_sum"].sum() / metrics["episodes"].sum()), 1),
    }


def rejax(words: dict[str, float]) -> dict[str, Any]:
    """The report of rejax's script: one program of all iterations, compiled apart; nothing where this python has no rejax."""
    words = {**words, "--threads": os.cpu_count() or 1}
    command = [sys.executable, str(evidence.ROOT / "benchmarks" / "peers" / "rejax_ppo.py")]
    command += [str(word) for pair in words.items() for word in pair]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if importlib.util.find_spec("rejax") is None:
        return {}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def rejax_iterations(shape: str) -> dict[str, float]:
    """The iterations of a shape by rejax."""
    envs, horizon = map(int, shape.split("x"))
    if not (report := rejax({"--envs": envs, "--horizon": horizon, "--steps": CHUNK * CHUNKS * envs * horizon})):
        return {}
    return {
        "compile seconds": round(report["compile_seconds"], 1),
        "milliseconds an iteration": round(report["run_seconds"] / CHUNK / CHUNKS * 1e3, 3),
        "steps a second": round(report["steps_per_second"]),
    }


def sweeps(device: str) -> dict[str, Any]:
    """The same sweep by the command line and by rejax: seconds from the start of each process to its end."""
    rates = f"log:1e-4:1e-2:{RATES}"
    flags = ["--env", "cartpole", "--no-anneal", "--steps", str(STEPS), "--learning-rate", rates, "--episodes", "16"]
    numbers = ["--gamma", "0.99", "--gae-lambda", "0.95", "--value-coefficient", "0.5"]
    found: dict[str, Any] = {"members": RATES * SEEDS, "steps of each": STEPS}
    with TemporaryDirectory() as folder:
        begin, run = time.perf_counter(), Path(folder) / "run"
        more = ["--seeds", str(SEEDS), "--members", str(RATES * SEEDS), "--run", str(run), "--device", device]
        subprocess.run([sys.executable, "-m", "purestep", "sweep", "ppo", *flags, *numbers, *more], check=True)
        found["seconds"] = round(time.perf_counter() - begin, 1)
        rows = [json.loads(line) for line in (run / "sweep.jsonl").read_text().splitlines()]
    means: dict[str, float] = {}
    for row in rows:
        point = json.dumps(row["point"])
        means[point] = means.get(point, 0.0) + (row["score"] or 0.0) / SEEDS
    found["best mean return"] = max(means.values())
    begin = time.perf_counter()
    if report := rejax({"--envs": 4, "--horizon": 128, "--steps": STEPS, "--rates": RATES, "--seeds": SEEDS}):
        found["rejax"] = {
            "seconds": round(time.perf_counter() - begin, 1),
            **{f"{name} seconds": round(report[f"{name}_seconds"], 1) for name in ("import", "compile", "run")},
            "best mean return": report["final_return"],
        }
    return found


def command_line(device: str) -> dict[str, float]:
    """`purestep train` on the device: seconds with compilation, and the greedy return, which is evaluated on the CPU."""
    flags = ["--env", "cartpole", "--envs", "1024", "--horizon", "32", "--steps", "3000000", "--minibatches", "8"]
    with TemporaryDirectory() as folder:
        begin, run = time.perf_counter(), ["--run", f"{folder}/run", "--device", device, "--episodes", str(EPISODES)]
        subprocess.run([sys.executable, "-m", "purestep", "train", "ppo", *flags, *run], check=True)
        spent = time.perf_counter() - begin
        found = json.loads((Path(folder) / "run" / "evaluation.json").read_text())
    return {"seconds": round(spent, 1), "greedy return": found["mean_return"], "episodes": EPISODES}


def main() -> None:
    """Measures, prints and writes benchmarks/results/gpu.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="default: cuda")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), metavar="ENVSxHORIZON")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, help="default: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start, device = time.perf_counter(), arguments.device
    card = torch.cuda.get_device_name() if device != "cpu" else "cpu"
    path = evidence.RESULTS / "gpu.json"
    figures: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    word = torch.equal(keys.bits(keys.key(1), (1000,)), keys.bits(keys.key(1, device=device), (1000,)).cpu())
    figures["random bits as on the CPU"] = bool(word)
    print(card, torch.__version__, flush=True)

    def write(name: str, found: dict[str, Any]) -> None:
        origin = {"commit": evidence.origin("gpu", 0.0)["commit"], "card": card, "torch": torch.__version__}
        figures[name] = {**origin, **found}
        print(name, json.dumps(found), flush=True)
        evidence.write("gpu", seconds=time.perf_counter() - start, figures=figures)

    for shape in arguments.shapes if "iterations" in arguments.parts else ():
        own = {"purestep": measured(shape, device, "inductor")}
        torch.backends.cuda.matmul.allow_tf32 = True
        own["purestep, TF32"] = measured(shape, device, "inductor")
        torch.backends.cuda.matmul.allow_tf32 = False
        write(shape, {**own, "rejax": rejax_iterations(shape)})
    if "sweep" in arguments.parts:
        write("sweep", sweeps(device))
    if "train" in arguments.parts:
        write("train ppo", command_line(device))
    if "uncompiled" in arguments.parts:
        write("64x128, uncompiled", measured("64x128", device, "none"))


if __name__ == "__main__":
    main()

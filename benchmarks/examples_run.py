"""The examples at full length: what each reaches, and how long it takes.

`python -m benchmarks.examples_run` prints the figures and writes benchmarks/results/examples.json. `trl_grpo` runs with the
python of TRL's own environment. `recipe_package` is built and installed by pip into a folder outside the repository; commands
train, stop, resume, evaluate and draw its recipe: the resumed run must end with the bits of the other, and seeds 0 to 2 must
learn. `--only NAME ...` runs some of them, and writes these alone.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from examples import embed, gymnasium_ppo, stranger_env, text_world
from purestep.properties import env_laws, text_env_laws, verify
from purestep.properties.framework.law import Suite

from . import evidence
from .environments import environment

EXAMPLES = evidence.ROOT / "examples"


def timed(run: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    """What `run` gives, and the seconds it took: on the clock, and of this process on the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    figures = run()
    spent = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}
    return {name: float(f"{value:.4g}") for name, value in {**figures, **spent}.items()}


def laws(suite: Suite | Callable[..., Suite], subject: object) -> dict[str, float]:
    """How many of the laws an example's world keeps, of those that the quick profile tries."""
    outcomes = [result.outcome for result in verify(suite, subject).results]
    return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}


def text() -> dict[str, float]:
    """The world of text: how many lines of code it and its training have, and the rewards."""
    tree = ast.parse((EXAMPLES / "text_world.py").read_text())
    code = ast.unparse(ast.Module([node for node in tree.body if not isinstance(node, ast.Expr)], []))
    before, after = text_world.main()
    return {"lines": sum(map(bool, code.splitlines())), "before": before, "after": after}


def trl() -> dict[str, float]:
    """Our loss in TRL's trainer: what it prints."""
    command = [str(environment("trl")), str(EXAMPLES / "trl_grpo.py")]
    paths = {**os.environ, "PYTHONPATH": str(evidence.ROOT / ".links")}
    said = subprocess.run(command, env=paths, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    return {name: float(value) for name, value in (part.rsplit(" ", 1) for part in said.split(", "))}


def recipe_package(folder: Path) -> dict[str, float]:
    """Return what the commands of a recipe of an installed package came to. Raises: CalledProcessError; AssertionError."""
    source, installed = folder / "source", folder / "installed"
    shutil.copytree(EXAMPLES / "recipe_package", source)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "--target", str(installed), str(source)], check=True)

    def command(*words: str) -> str:
        line, paths = (sys.executable, "-m", "purestep", *words), {**os.environ, "PYTHONPATH": str(installed)}
        return subprocess.run(line, cwd=folder, env=paths, capture_output=True, text=True, check=True).stdout

    assert "\n  hill         of hill_climbing\n" in command("train", "--help")
    for run, seed in {"whole": "0", "stopped": "0", "seed 1": "1", "seed 2": "2"}.items():
        command("train", "hill", "--seed", seed, "--episodes", "1", "--run", run)
    for late in sorted((folder / "stopped" / "checkpoints").glob("step_*"))[1:]:
        shutil.rmtree(late)
    resumed = command("resume", "stopped")
    evaluated = [command("evaluate", run, "--episodes", "50") for run in ("whole", "seed 1", "seed 2")]
    command("plot", "whole", "--out", "curve.png")
    states = [
        sorted((folder / run / "checkpoints").glob("step_*"))[-1] / "state.safetensors" for run in ("whole", "stopped")
    ]
    assert states[0].read_bytes() == states[1].read_bytes()
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (folder / "whole" / "metrics.jsonl").read_text().splitlines()]
    print(resumed, *evaluated, sep="", end="")
    trained = {"first return": rows[0]["episode_return"], "last return": rows[-1]["episode_return"]}
    seeds = {f"return, seed {seed}": returned(line) for seed, line in enumerate(evaluated)}
    assert min(seeds.values()) >= 400.0, seeds
    return {"updates": len(rows), **trained, **seeds}


def returned(line: str) -> float:
    """Return the mean return of the line that an evaluation prints.

    >>> returned("evaluation: 50 episodes: return 489.50 +- 1.50, length 489.5")
    489.5
    """
    return float(line.partition("return ")[2].split()[0].rstrip(","))


def main() -> None:
    """Runs them one after the other, on one thread."""
    torch.set_num_threads(1)
    start, safe = time.perf_counter(), text_env_laws(text_world.parser, "7", "I try 3.", classes=(text_world.Safe,))
    with TemporaryDirectory() as folder:
        examples: dict[str, Callable[[], Mapping[str, float]]] = {
            "stranger_env, laws": lambda: laws(env_laws, stranger_env.lander()),
            "stranger_env": lambda: stranger_env.main(Path(folder) / "stranger_env.png"),
            "embed": embed.main,
            "gymnasium_ppo": gymnasium_ppo.main,
            "text_world, laws": lambda: laws(safe, text_world.world),
            "text_world": text,
            "trl_grpo": trl,
            "recipe_package": lambda: recipe_package(Path(folder)),
        }
        parser = argparse.ArgumentParser(prog="python -m benchmarks.examples_run", description=__doc__)
        parser.add_argument("--only", nargs="+", choices=[*examples], default=[*examples], help="some of them")
        figures = {name: timed(examples[name]) for name in parser.parse_args().only}
    for name, row in figures.items():
        print(name, *(f"{key}={value:g}" for key, value in row.items()), sep="  ")
    evidence.write("examples", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()

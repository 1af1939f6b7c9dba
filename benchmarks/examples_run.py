"""The examples at full length: what each reaches, and how long it takes.

`python -m benchmarks.examples_run` prints the figures and writes benchmarks/results/examples.json. `trl_grpo` runs with the
python of TRL's own environment.
"""

import ast
import os
import subprocess
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


def main() -> None:
    """Runs them one after the other, on one thread."""
    torch.set_num_threads(1)
    start, safe = time.perf_counter(), text_env_laws(text_world.parser, "7", "I try 3.", classes=(text_world.Safe,))
    with TemporaryDirectory() as folder:
        figures = {
            "stranger_env, laws": timed(lambda: laws(env_laws, stranger_env.lander())),
            "stranger_env": timed(lambda: stranger_env.main(Path(folder) / "stranger_env.png")),
            "embed": timed(embed.main),
            "gymnasium_ppo": timed(gymnasium_ppo.main),
            "text_world, laws": timed(lambda: laws(safe, text_world.world)),
            "text_world": timed(text),
            "trl_grpo": timed(trl),
        }
    for name, row in figures.items():
        print(name, *(f"{key}={value:g}" for key, value in row.items()), sep="  ")
    evidence.write("examples", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()

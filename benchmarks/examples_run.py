"""The examples at full length: what each reaches, and how long it takes.

`python -m benchmarks.examples_run` prints the figures and writes benchmarks/results/examples.json.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from examples import embed, gymnasium_ppo, stranger_env
from purestep.properties import env_laws, verify

from . import evidence


def timed(run: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    """What `run` gives, and the seconds it took: on the clock, and of this process on the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    figures = run()
    spent = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}
    return {name: round(value, 1) for name, value in {**figures, **spent}.items()}


def laws() -> dict[str, float]:
    """How many of the laws of envs the example's world keeps, of those that the quick profile tries."""
    outcomes = [result.outcome for result in verify(env_laws, stranger_env.lander()).results]
    return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}


def main() -> None:
    """Runs them one after the other, on one thread."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    with TemporaryDirectory() as folder:
        figures = {
            "stranger_env, laws": timed(laws),
            "stranger_env": timed(lambda: stranger_env.main(Path(folder) / "stranger_env.png")),
            "embed": timed(embed.main),
            "gymnasium_ppo": timed(gymnasium_ppo.main),
        }
    for name, row in figures.items():
        print(name, *(f"{key}={value:g}" for key, value in row.items()), sep="  ")
    print(evidence.write("examples", seconds=time.perf_counter() - start, figures=figures))


if __name__ == "__main__":
    main()

"""The matrix-product limit: how fast PPO would be if it did its matrix products and nothing else. Prints one line of JSON.

One iteration of `python -m benchmarks.parts.purestep_ppo` multiplies matrices of the shapes listed by `products`, for all
seeds at once; here `torch.bmm` does all of them, as often, in the same order of sizes, with outputs that exist already.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator, Sequence

import torch
from attrs import frozen

DEFAULTS = {"envs": 4, "horizon": 128, "seeds": 32, "threads": 1, "repetitions": 5}
SIZES = (4, 64, 64)  # of the observation and the hidden layers
EPOCHS, MINIBATCHES = 4, 4


@frozen
class Product:
    """`count` times [S, rows, inner] x [S, inner, columns] in one iteration."""

    rows: int
    inner: int
    columns: int
    count: int


def forward(rows: int, outputs: int, count: int) -> list[Product]:
    """The products of a perceptron's forward pass.

    >>> forward(8, 2, 1)[-1]
    Product(rows=8, inner=64, columns=2, count=1)
    """
    sizes = (*SIZES, outputs)
    return [Product(rows, inner, columns, count) for inner, columns in itertools.pairwise(sizes)]


def backward(rows: int, outputs: int, count: int) -> Iterator[Product]:
    """Those of its backward pass: x^T g for each layer's weight, and g W^T for each layer's input but the first.

    >>> sum(product.count for product in backward(8, 2, 3))
    15
    """
    for layer, product in enumerate(forward(rows, outputs, count)):
        yield Product(product.inner, rows, product.columns, count)
        if layer:
            yield Product(rows, product.columns, product.inner, count)


def products(envs: int, horizon: int) -> list[Product]:
    """All of one iteration: acting, the values of two batches of observations, the updates of policy and value network.

    >>> sum(product.count for product in products(4, 128))
    646
    """
    batch, updates = envs * horizon, EPOCHS * MINIBATCHES
    rows = batch // MINIBATCHES
    every = [*forward(envs, 2, horizon), *forward(batch, 1, 2)]
    for outputs in (2, 1):
        every += [*forward(rows, outputs, updates), *backward(rows, outputs, updates)]
    return every


def iteration(every: Sequence[Product], seeds: int) -> tuple[float, float]:
    """Wall and processor seconds of all the products, each shape's in a row."""
    wall = cpu = 0.0
    for product in every:
        left = torch.randn(seeds, product.rows, product.inner)
        right = torch.randn(seeds, product.inner, product.columns)
        out = torch.bmm(left, right)
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(product.count):
            torch.bmm(left, right, out=out)
        wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu
    return wall, cpu


def main() -> None:
    about = {
        "envs": "worlds of each seed",
        "horizon": "steps in each from one update to the next",
        "seeds": "runs side by side",
        "threads": "of PyTorch",
        "repetitions": "iterations that are timed; the median counts",
    }
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parts.products",
        description="Time the matrix products of one iteration of PPO; prints one line of JSON",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=about[name])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    every = products(given.envs, given.horizon)
    iteration(every, given.seeds)
    times = [iteration(every, given.seeds) for _ in range(given.repetitions)]
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    steps = given.envs * given.horizon * given.seeds
    report = {"run_seconds": wall, "cpu_seconds": cpu, "steps": steps, "steps_per_second": steps / wall}
    print(json.dumps({"peer": "torch.bmm", **vars(given), **report}))


if __name__ == "__main__":
    main()

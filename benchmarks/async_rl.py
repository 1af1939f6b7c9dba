"""Asynchronous learning against taking turns, in simulated time: throughput, staleness, waste, and decisions a second.

    ideal = (t_g + t_t) / max(t_g, t_t)

t_g is the mean time of a batch with all generators busy, t_t that of an update; who takes turns needs their sum, who does
not the larger one. Where many generators share a batch, taking turns also waits for its longest sample, which the ideal
knows nothing of. Sample lengths are log-normal, and a prompt's are the same when it is begun anew; what is too old and
dropped is long rather than short, as the tokens of samples learned from show. Writes benchmarks/results/async_rl.json and a
picture; exit code 1 where async is below 0.9 of the ideal, or a sample was older than its bound. With fewer updates the
files are async_rl_small.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from purestep.runtime.async_rl.scheduler.state import Rules
from purestep.runtime.async_rl.simulation.workers import BARRIER, INTERRUPT, NEXT

from . import evidence
from .parts.async_picture import picture
from .parts.generators import Setup, figures, ran

Figures = dict[str, float]
BALANCES = (0.5, 1.0, 2.0)  # t_t / t_g
GENERATORS = (1, 2, 4, 8, 16, 32, 64)
STALENESS = (0, 1, 2, 4, 8)
FLOOR = 0.9
AIM = 100_000  # decisions a second
UPDATES = 100
BATCH, GROUP = 64, 8
SKIP = 10  # updates that fill the queue


def measured(generators: int, staleness: int, balance: float, *, updates: int, **changes: Any) -> Figures:
    """One run. `balance` is t_t / t_g; `changes` are of the rules or of the setup."""
    how = {"group": GROUP, **{name: changes.pop(name) for name in ("stale", "group") if name in changes}}
    rules = Rules(batch=BATCH, concurrency=generators, staleness=staleness, updates=updates + SKIP, **how)
    setup = Setup(generators=generators, rules=rules, **changes)
    batch = BATCH * setup.mean / setup.speed / generators
    how_long = {"t_g": batch, "t_t": balance * batch, "staleness": staleness}
    return how_long | figures(ran(evolve(setup, train=balance * batch)), SKIP)


def throughput(updates: int) -> dict[str, dict[str, Figures]]:
    """Async beside taking turns, for few and many generators, and for trainers that are faster and slower than they."""
    table: dict[str, dict[str, Figures]] = {}
    for balance in BALANCES:
        for generators in GENERATORS:
            sync = measured(generators, 0, balance, updates=updates)
            free = measured(generators, 4, balance, updates=updates)
            ratio = free["samples a second"] / sync["samples a second"]
            ideal = (free["t_g"] + free["t_t"]) / max(free["t_g"], free["t_t"])
            own = max(free["t_g"], free["t_t"]) / free["seconds an update"]  # taking turns waits for its longest sample
            row = {"ratio": ratio, "ideal": ideal, "of the ideal": ratio / ideal, "of its own bound": own}
            table[f"{generators} generators, t_t = {balance} t_g"] = {"sync": sync, "async": free, "compared": row}
            print(
                f"{generators:3} generators, t_t = {balance} t_g: {ratio:5.2f} of {ideal:5.2f}: {ratio / ideal:5.2f}; "
                f"{own:.3f} of what the slower side could do",
                flush=True,
            )
    return table


def bounds(updates: int) -> dict[str, Figures]:
    """What a bound on staleness costs, with long tails."""
    return told("staleness", {str(n): measured(16, n, 1.0, updates=updates, sigma=1.0) for n in STALENESS})


def weights(updates: int) -> dict[str, Figures]:
    """How generators get new weights, with long tails, under a tight bound and a loose one."""
    ways = [(way, bound) for bound in (1, 4) for way in (INTERRUPT, NEXT, BARRIER)]
    rows = {f"{way}, {bound}": measured(16, bound, 1.0, updates=updates, weights=way, sigma=1.0) for way, bound in ways}
    return told("weights", rows)


def waste(updates: int) -> dict[str, Figures]:
    """What becomes of samples that are too old, with long tails and single samples."""
    ways = ("drop", "requeue", "pace")
    return told("stale", {way: measured(32, 1, 1.0, updates=updates, stale=way, sigma=1.0, group=1) for way in ways})


def told(name: str, rows: Mapping[str, Figures]) -> dict[str, Figures]:
    """Prints a table."""
    columns = (
        "samples a second",
        "largest staleness",
        "mean head staleness",
        "mean tail staleness",
        "tokens of a sample learned from",
        "share of tokens wasted",
    )
    print(f"\n{name:12}" + "".join(f"{column:>33}" for column in columns))
    for row, values in rows.items():
        print(f"{row:12}" + "".join(f"{values[column]:33.3f}" for column in columns), flush=True)
    return dict(rows)


def faults(compared: Mapping[str, Mapping[str, Figures]], runs: Mapping[str, Figures]) -> list[str]:
    """What is not as it should be: too slow by either measure, or a sample older than its run allowed."""
    slow = [
        f"{name}: {row['compared'][measure]:.2f} {measure}"
        for name, row in compared.items()
        for measure in ("of the ideal", "of its own bound")
        if row["compared"][measure] < FLOOR
    ]
    return slow + [f"{name}: too old" for name, row in runs.items() if row["largest staleness"] > row["staleness"]]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.async_rl", description=__doc__)
    parser.add_argument("--updates", type=int, default=UPDATES, help=f"of a run that are timed (default: {UPDATES})")
    return parser.parse_args(words)


def main() -> int:
    given, began = parse(), time.perf_counter()
    compared = throughput(given.updates)
    bounded, ways, wasted = bounds(given.updates), weights(given.updates), waste(given.updates)
    sides = {f"{name}, {side}": row[side] for name, row in compared.items() for side in ("sync", "async")}
    others = {"staleness": bounded, "weights": ways, "stale": wasted}
    runs = sides | {f"{table} {name}": row for table, rows in others.items() for name, row in rows.items()}
    wrong = faults(compared, runs)
    rates = sorted(row["decisions a second"] for row in runs.values())
    middle = statistics.median(rates)
    met = f"{'met' if middle >= AIM else 'missed'} by the median"
    print(f"\ndecisions a second of the processor: {rates[0]:,.0f} to {rates[-1]:,.0f}, median {middle:,.0f}")
    print(f"the aim of {AIM:,} is {met}")
    table = {
        "kept": not wrong,
        "faults": wrong,
        "least of the ideal": min(row["compared"]["of the ideal"] for row in compared.values()),
        "least of its own bound": min(row["compared"]["of its own bound"] for row in compared.values()),
        "decisions a second": {
            "least": rates[0],
            "median": middle,
            "most": rates[-1],
            "aim": AIM,
            "aim met": middle >= AIM,
        },
        "throughput": compared,
        "staleness": bounded,
        "weights": ways,
        "stale": wasted,
        "settings": {"batch": BATCH, "group": GROUP, "updates": given.updates, "skipped": SKIP},
    }
    name = "async_rl" if given.updates >= UPDATES else "async_rl_small"
    path = evidence.write(name, seconds=time.perf_counter() - began, figures=table)
    picture(table, path.with_suffix(".png"))
    print("kept" if not wrong else f"FAILED: {wrong}")
    return 0 if not wrong else 1


if __name__ == "__main__":
    sys.exit(main())

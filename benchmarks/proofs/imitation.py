"""A policy's own proofs after PPO, after imitation of a search, and after PPO that begins with imitation.

Each data set, see `cases`, is trained for a quarter of the usual moves with three seeds, and the test facts are ranked by the
policy's greedy proof among 100 filtered negatives, as in `proofs.table`. "imitating thrice" is expert iteration: the second and
third search follow the policy so far. Writes results/prove_imitation.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from purestep.core import keys
from purestep.runtime.logic.rank import candidates_of, ranking_result, scorer
from purestep.runtime.recipes.prove import model_of, prove_pipeline
from purestep.runtime.recipes.prove_settings import prove_defaults
from purestep.runtime.runs.arguments import changed

from .. import evidence
from .cases import prepared, trainings

NAME = "prove_imitation"
STEPS = 200_000
SETS = ("countries_S2", "nations", "kinship", "umls", "lineage", "family:200", "family:200:1", "family:200:2")
ARMS: Mapping[str, Mapping[str, Any]] = {
    "PPO": {},
    "imitating": {"imitated_facts": 2000, "steps": 0},
    "imitating thrice": {"imitated_facts": 2000, "imitation_rounds": 3, "steps": 0},
    "imitating, then PPO": {"imitated_facts": 2000},
    "imitating thrice, then PPO": {"imitated_facts": 2000, "imitation_rounds": 3},
}


def measured(name: str, data: Path, home: Path, seeds: int) -> dict[str, Any]:
    """All arms on a data set."""
    given = prove_defaults(name) if name.startswith("family") else prepared(name, data, home)
    arguments = changed(given, {"steps": STEPS})
    pipeline = prove_pipeline(arguments)
    made = pipeline.opened
    every = candidates_of(made, made.dataset.test, 100, keys.key(0))
    score, trained = scorer(made, model_of(arguments, made)), trainings(arguments, pipeline)
    rows: dict[str, Any] = {}
    for arm, changes in ARMS.items():
        ranks, proven, seconds = list[float](), list[float](), list[float]()
        for seed in range(seeds):
            params, spent = trained(changed(arguments, changes), made, seed)
            seconds.append(spent)
            with torch.no_grad():
                told = score(params, every)
            ranks.append(float(ranking_result(told).ranking.mean_reciprocal_rank))
            proven.append(float(told.proven[..., 0].to(torch.float64).mean()))
        rows[arm] = {
            "MRR": [round(statistics.fmean(ranks), 4), round(statistics.stdev(ranks) if seeds > 1 else 0.0, 4)],
            "share of test facts proven": round(statistics.fmean(proven), 4),
            "CPU seconds by seed": [round(each, 1) for each in seconds],
        }
        print(name, arm, rows[arm], flush=True)
    return rows


def main() -> None:
    """Goes through the data sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.imitation", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the data sets' folders")
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="of each arm (default: 3)")
    options, start = parser.parse_args(), time.perf_counter()
    torch.set_num_threads(1)
    path = evidence.RESULTS / f"{NAME}.json"
    found: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as home:
            begin = time.perf_counter()
            rows = measured(name, options.data, Path(home), options.seeds)
        found[name] = evidence.origin(NAME, time.perf_counter() - begin) | rows
        evidence.write(NAME, seconds=time.perf_counter() - start, figures=found)


if __name__ == "__main__":
    main()

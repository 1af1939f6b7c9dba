"""`purestep train prove` with no arguments: seconds, and how near its ranking comes to that of the shortest proofs.

Trains in a folder of its own, as a user would, then ranks the same candidates by the breadth-first prover: a candidate with a
shorter proof is better, one without is worst. The recipe's defaults were chosen on the usual world, so the same is done in
worlds that nothing was chosen by. Writes results/prove_family.json, the learning curve and the proof's picture.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from purestep.core import keys
from purestep.runtime.compile import program
from purestep.runtime.logic.breadth import deriver, shortest_proofs
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.logic.rank import candidates_of, ranking_result, scored_by_length
from purestep.runtime.recipes.prove import load_proofs
from purestep.runtime.recipes.prove_settings import MOVES, USUAL, prove_defaults

from .. import evidence

MINUTES, SHARE = 5.0, 0.95  # what training may take, and what part of the prover's MRR it should reach
OTHERS = ("family:200:1", "family:200:2")  # worlds of other seeds
PICTURES = {"learning_curve.png": "prove_family_curve.png", "proof.png": "prove_family_proof.png"}


def trained(folder: Path, data: str, seed: int) -> dict[str, float]:
    """The command, timed as a whole, in caches of its own; and what its evaluation says."""
    asked = [] if data == USUAL else ["--data", data]
    words = [sys.executable, "-m", "purestep.runtime.cli.main", "train", "prove", *asked, "--run", str(folder)]
    words += ["--steps", str(MOVES), *(["--seed", str(seed)] if seed else [])]
    caches = {"XDG_CACHE_HOME": str(folder.parent / "home"), "TORCHINDUCTOR_CACHE_DIR": str(folder.parent / "compiler")}
    start = time.perf_counter()
    text = subprocess.run(words, env={**os.environ, **caches}, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - start
    print(text, end="", flush=True)
    told = json.loads((folder / "evaluation.json").read_text())
    numbers = {name: told[name] for name in ("mean_reciprocal_rank", "hits_at_1", "hits_at_3", "hits_at_10")}
    numbers |= {"average_precision": told["average_precision"]}
    return {"seconds": round(seconds, 1), **{name: round(value, 4) for name, value in numbers.items()}}


def proven(made: Proofs, depth: int) -> dict[str, object]:
    """The same of the shortest proofs of up to `depth` steps, for the candidates that the command ranks."""
    every = candidates_of(made, made.dataset.test, 100, keys.key(0))
    names, widths = made.game.names, made.game.widths
    engine = program(deriver(names, widths), name="derive")
    start = time.perf_counter()
    found = shortest_proofs(names, made.world.base, widths, every.reshape(-1, 3), depth=depth, engine=engine)
    steps = found.depth.reshape(every.shape[:-1])
    present = every[..., 0] != 0
    told = ranking_result(scored_by_length(steps, present))
    return {
        "depth": depth,
        "seconds": round(time.perf_counter() - start, 1),
        "mean_reciprocal_rank": round(float(told.ranking.mean_reciprocal_rank), 4),
        "hits_at_1": round(float(told.ranking.hits_at_1), 4),
        "positives_by_depth": list(told.positives),
        "negatives_by_depth": list(told.negatives),
        "searched_without_loss": round(float(found.exact.float().mean()), 4),
    }


def compared(data: str, seed: int, depth: int, pictures: bool) -> dict[str, object]:
    """Trains, proves, compares."""
    with tempfile.TemporaryDirectory() as home:
        run = Path(home) / "run"
        policy = trained(run, data, seed)
        if pictures:
            evidence.RESULTS.mkdir(parents=True, exist_ok=True)
            for name, kept in PICTURES.items():
                shutil.copy(run / name, evidence.RESULTS / kept)
    prover = proven(load_proofs(prove_defaults(data)), depth)
    share = policy["mean_reciprocal_rank"] / float(str(prover["mean_reciprocal_rank"]))
    reached = share >= SHARE and policy["seconds"] < 60.0 * MINUTES
    return {
        "policy": policy,
        "shortest proofs": prover,
        "share of the prover's MRR": round(share, 4),
        "reached": reached,
    }


def main() -> None:
    """Goes through the worlds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.family", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the runs (default: 0)")
    parser.add_argument("--depth", type=int, default=4, help="of the longest proofs searched for (default: 4)")
    parser.add_argument("--others", nargs="*", default=list(OTHERS), help=f"other worlds (default: {' '.join(OTHERS)})")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, figures = time.perf_counter(), dict[str, object]()
    for data in (USUAL, *options.others):
        figures[data] = compared(data, options.seed, options.depth, pictures=data == USUAL)
        print(data, json.dumps(figures[data], indent=1), flush=True)
    figures = {"cores": os.cpu_count(), **figures}
    evidence.write("prove_family", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()

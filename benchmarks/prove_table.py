"""Ranking by proofs on real graphs: untrained and trained policies, shortest proofs and RotatE, on the same candidates.

Each data set, see `prove_cases`, writes a file of its own, results/prove_table_NAME.json; results/prove_table.png shows all
those that are there. "warmed up" is the policy that has learnt embeddings from the facts and has tried no proof yet.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.logic.derive import Widths
from purestep.core.logic.ranking import NOTHING
from purestep.core.logic.terms import Names
from purestep.runtime.compile import program
from purestep.runtime.logic.breadth import deriver, shortest_proofs
from purestep.runtime.logic.rank import Scored, Standing, asked, scored_by_length, scorer, standing
from purestep.runtime.logic.world import Proofs
from purestep.runtime.recipes.prove import Prove, model_of, prove_pipeline
from purestep.runtime.train import train

from . import evidence
from .prove_cases import CASES, Case, chosen, prepared
from .sides import Side
from .sides import run as run_side

mpl.use("Agg")
UNKNOWN = -1e5  # the score of a candidate with a name that no fact has
ROTATE = Side("pykeen", "pykeen_rotate")
PER_CALL = 10  # iterations of one call of the compiled training
POLICIES = ("untrained", "warmed up", "trained")
Row = dict[str, Any]


def figures(told: Standing, seconds: float) -> Row:
    """A row of the table."""
    means = told.ranking
    return {
        "MRR": round(float(means.mean_reciprocal_rank), 4),
        "Hits@1": round(float(means.hits_at_1), 4),
        "Hits@3": round(float(means.hits_at_3), 4),
        "Hits@10": round(float(means.hits_at_10), 4),
        "AUC-PR": round(told.average_precision, 4),
        "proven positives by depth": list(told.positives),
        "proven negatives by depth": list(told.negatives),
        "candidates with states left out": told.left_out,
        "seconds": round(seconds, 1),
    }


def policies(arguments: Prove, every: Tensor, seeds: int) -> Iterator[tuple[str, Row]]:
    """The policy before and after training, with as many seeds. Seconds are those of ranking, and of training before it."""
    pipeline = prove_pipeline(arguments)
    score = scorer(pipeline.opened, model_of(arguments, pipeline.opened))
    learn = program(train(pipeline.trainer, PER_CALL), name="train prove")
    calls = max(1, round(arguments.experience.steps / (PER_CALL * pipeline.trainer.steps)))

    def row(params: Any, start: float) -> Row:
        with torch.no_grad():
            return figures(standing(score(params, every)), time.perf_counter() - start)

    for seed in range(seeds):
        start = time.perf_counter()
        state = pipeline.trainer.init(keys.key(seed))
        yield f"untrained {seed}", row(state.learner.params, start)
        start = time.perf_counter()
        state = pipeline.prepare(state)
        yield f"warmed up {seed}", row(state.learner.params, start)
        for _ in range(calls):
            state, _ = learn(state)
        yield f"trained {seed}", row(state.learner.params, start)


def shortest(made: Proofs, every: Tensor, case: Case) -> Row:
    """Candidates by the length of their shortest proofs, with more room than the policy has."""
    names, own = made.game.names, made.game.widths
    widths = Widths(own.atoms, 4 * own.successors, 4 * own.facts, own.rules)
    start = time.perf_counter()
    engine = program(deriver(names, widths), name="derive")
    flat = every.reshape(-1, 3)
    found = shortest_proofs(
        names, made.world.base, widths, flat, depth=case.depth, batch=256, most=case.most, engine=engine
    )
    told = standing(scored_by_length(found.depth.reshape(every.shape[:-1]), every[..., 0] != 0))
    exact = found.exact[flat[:, 0] != 0].to(torch.float32)
    row = figures(told, time.perf_counter() - start) | {"candidates with states left out": int((1 - exact).sum())}
    proven = sum(told.positives) / told.queries
    return {**row, "longest proofs": case.depth, "share of queries with a proof": round(proven, 4)}


def rotate(made: Proofs, every: Tensor, epochs: int, home: Path) -> Row:
    """Candidates by RotatE, trained by PyKEEN on the same facts."""
    start = time.perf_counter()
    files = {name: home / f"rotate.{name}" for name in ("candidates", "out")} | {"facts": home / "rotate.tsv"}
    files["facts"].write_text("".join(f"{head}\t{name}\t{tail}\n" for name, head, tail in made.dataset.train))
    names = made.game.names
    present = (every[..., 0] != 0).flatten()
    rows = [_named(names.predicates, names.constants, row) for row in every.reshape(-1, 3)[present].tolist()]
    files["candidates"].write_text(json.dumps([[head, name, tail] for name, head, tail in rows]))
    run_side(ROTATE, {**files, "epochs": epochs})
    told = [UNKNOWN if score is None else score for score in json.loads(files["out"].read_text())]
    score = torch.full((every[..., 0].numel(),), NOTHING).masked_scatter(present, torch.tensor(told))
    shape = every.shape[:-1]
    nothing = torch.zeros(shape, dtype=torch.int64)
    scored = Scored(score.reshape(shape), present.reshape(shape), nothing > 0, nothing, nothing)
    return {**figures(standing(scored), time.perf_counter() - start), "epochs": epochs}


def _named(predicates: tuple[str, ...], constants: tuple[str, ...], row: list[int]) -> Names:
    return predicates[row[0] - 1], constants[row[1] - 1], constants[row[2] - 1]


def spread(rows: Mapping[str, Row], kind: str) -> dict[str, list[float]]:
    """Mean and standard deviation over seeds."""
    own = [row for name, row in rows.items() if name.startswith(f"{kind} ")]
    columns = {name: [row[name] for row in own] for name in ("MRR", "Hits@1", "Hits@3", "Hits@10", "AUC-PR", "seconds")}
    return {name: [round(statistics.fmean(of), 4), round(statistics.pstdev(of), 4)] for name, of in columns.items()}


def table(name: str, data: Path, seeds: int) -> dict[str, Any]:
    """All rows of a data set."""
    with tempfile.TemporaryDirectory() as home:
        case, arguments = CASES[name], prepared(name, data, Path(home))
        made = chosen(prove_pipeline(arguments).opened, case.queries)
        every = asked(made, made.dataset.test, 100, keys.key(0))
        rows = {"shortest proofs": shortest(made, every, case)}
        print("  shortest proofs", rows["shortest proofs"], flush=True)
        for kind, row in policies(arguments, every, seeds):
            rows[kind] = row
            print(" ", kind, row, flush=True)
        rows["RotatE"] = rotate(made, every, case.epochs, Path(home))
        print("  RotatE", rows["RotatE"], flush=True)
    sizes = {"facts": len(made.dataset.train), "rules": len(made.dataset.rules), "test": len(made.dataset.test)}
    asked_for = {"queries": every[..., 0, 0].numel(), "negatives": int((every[..., 1:, 0] != 0).sum())}
    means = {kind: spread(rows, kind) for kind in POLICIES}
    return {**sizes, **asked_for, "steps": arguments.experience.steps, **means, "rows": rows}


def picture() -> Path:
    """MRR by data set and row, of all that was measured."""
    from matplotlib import pyplot as plt

    told = {name: evidence.RESULTS / f"prove_table_{name}.json" for name in CASES}
    found = {name: json.loads(path.read_text())["figures"] for name, path in told.items() if path.exists()}
    kinds = (*POLICIES, "shortest proofs", "RotatE")
    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    for number, kind in enumerate(kinds):
        pairs = [row[kind]["MRR"] if kind in POLICIES else [row["rows"][kind]["MRR"], 0.0] for row in found.values()]
        places = [place + 0.17 * (number - 2) for place in range(len(found))]
        axes.bar(places, [mean for mean, _ in pairs], 0.16, yerr=[wide for _, wide in pairs], label=kind)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylabel("MRR among filtered candidates")
    axes.legend(ncols=len(kinds), fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.12))
    path = evidence.RESULTS / "prove_table.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def main() -> None:
    """Goes through the data sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prove_table", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the data sets' folders")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="trained policies of each (default: 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.only:
        start = time.perf_counter()
        print(name, flush=True)
        told = table(name, options.data, options.seeds)
        print(evidence.write(f"prove_table_{name}", seconds=time.perf_counter() - start, figures=told))
    print(picture())


if __name__ == "__main__":
    main()

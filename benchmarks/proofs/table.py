"""Ranking by proofs on real graphs: untrained and trained policies, shortest proofs and RotatE, on the same candidates.

Each data set, see `cases`, writes a file of its own, results/prove_table_NAME.json; results/prove_table.png shows all
those that are there. "warmed up" is the policy that has learnt embeddings from the facts and has tried no proof yet. Seconds
are without compilation, which has its own. The shortest proofs are those of up to so many steps, which a row names; a policy
has more moves. A policy orders by their log-probs also what it has not proven, which "MRR, unproven tied" does not.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve
from torch import Tensor

from purestep.core import keys
from purestep.core.logic.derive import Widths
from purestep.core.logic.ranking import NOTHING
from purestep.core.logic.terms import Names
from purestep.runtime.compile import program
from purestep.runtime.logic.breadth import deriver, shortest_proofs
from purestep.runtime.logic.proofs import Proofs
from purestep.runtime.logic.rank import Scored, candidates_of, ranking_result, scored_by_length, scorer
from purestep.runtime.recipes.prove import model_of, prove_pipeline
from purestep.runtime.recipes.prove_settings import Prove
from purestep.runtime.recipes.shared_settings import loop_of
from purestep.runtime.train import train

from .. import evidence
from ..parts.pictures import page, saved
from ..parts.sides import Side
from ..parts.sides import run as run_side
from .cases import CASES, Case, chosen, prepared

UNKNOWN, TIED = -1e5, -1e6  # scores: of a candidate with a name that no fact has, of all without a proof
ROTATE = Side("pykeen", "pykeen_rotate")
ROTATE_STEPS, ROTATE_BATCH = 3000, 512  # as many steps as a policy's embeddings are warmed up with
SHORTEST = "shortest proofs"
RANKED = ("MRR", "Hits@1", "Hits@3", "Hits@10", "AUC-PR")
POLICIES = ("untrained", "warmed up", "trained")
Row = dict[str, Any]


def figures(scored: Scored) -> Row:
    """A row of the table."""
    told = ranking_result(scored)
    unproven = torch.where(scored.present, TIED, NOTHING)
    tied = ranking_result(evolve(scored, score=torch.where(scored.proven, scored.score, unproven)))
    means = told.ranking
    return {
        "MRR": round(float(means.mean_reciprocal_rank), 4),
        "MRR, unproven tied": round(float(tied.ranking.mean_reciprocal_rank), 4),
        "Hits@1": round(float(means.hits_at_1), 4),
        "Hits@3": round(float(means.hits_at_3), 4),
        "Hits@10": round(float(means.hits_at_10), 4),
        "AUC-PR": round(told.average_precision, 4),
        "proven positives by depth": list(told.positives),
        "proven negatives by depth": list(told.negatives),
        "candidates that met states of too many goals": told.too_long,
        "candidates that met too many states": told.too_many,
    }


def policies(arguments: Prove, every: Tensor, seeds: int) -> Iterator[tuple[str, Row]]:
    """The policy before and after training, with as many seeds."""
    pipeline = prove_pipeline(arguments)
    score: Any = scorer(pipeline.opened, model_of(arguments, pipeline.opened))
    loop = loop_of(arguments.experience, arguments.process)
    learn = program(train(pipeline.trainer, loop.chunk), name="train prove")

    def row(params: Any) -> Row:
        start, before = time.perf_counter(), sum(score.run.seconds)
        with torch.no_grad():
            told = figures(score(params, every))
        compiling = sum(score.run.seconds) - before
        return told | {"seconds of ranking": round(time.perf_counter() - start - compiling, 1)}

    for seed in range(seeds):
        state = pipeline.trainer.init(keys.key(seed))
        yield f"untrained {seed}", row(state.learner.params)
        start = time.perf_counter()
        state = pipeline.prepare(state)
        warm = {"seconds of warming up": round(time.perf_counter() - start, 1)}  # the first seed's with compilation
        yield f"warmed up {seed}", row(state.learner.params) | warm
        start, before = time.perf_counter(), sum(learn.seconds)
        for _ in range(loop.iterations // loop.chunk):
            state, _ = learn(state)
        spent = time.perf_counter() - start - (sum(learn.seconds) - before)
        moves = {"moves": int(state.env_steps), "seconds of training": round(spent, 1)}
        yield f"trained {seed}", row(state.learner.params) | moves


def shortest(made: Proofs, every: Tensor, case: Case) -> Row:
    """Candidates by the length of their shortest proofs, with more room than the policy has."""
    names, own = made.game.names, made.game.widths
    widths = Widths(own.atoms, 4 * own.successors, 4 * own.facts, own.rules)
    engine = program(deriver(names, widths), name="derive")
    flat = every.reshape(-1, 3)
    start = time.perf_counter()
    found = shortest_proofs(
        names, made.world.base, widths, flat, depth=case.depth, batch=256, most=case.most, engine=engine
    )
    spent = time.perf_counter() - start - sum(engine.seconds)
    scored = scored_by_length(found.depth.reshape(every.shape[:-1]), every[..., 0] != 0)
    row = {name: value for name, value in figures(scored).items() if not name.startswith("candidates that")}
    present = flat[:, 0] != 0
    return row | {
        "share of candidates searched without loss": round(float(found.exact[present].to(torch.float64).mean()), 4),
        "share of queries with a proof of so many steps": round(
            float(scored.proven[..., 0].to(torch.float64).mean()), 4
        ),
        "seconds": round(spent, 1),
    }


def rotate(made: Proofs, every: Tensor, home: Path) -> Row:
    """Candidates by RotatE, trained by PyKEEN on the same facts: one seed, settings that nothing was chosen by."""
    start = time.perf_counter()
    files = {name: home / f"rotate.{name}" for name in ("candidates", "out")} | {"facts": home / "rotate.tsv"}
    facts = made.dataset.train
    files["facts"].write_text("".join(f"{head}\t{name}\t{tail}\n" for name, head, tail in facts))
    names = made.game.names
    present = (every[..., 0] != 0).flatten()
    rows = [_named(names.predicates, names.constants, row) for row in every.reshape(-1, 3)[present].tolist()]
    files["candidates"].write_text(json.dumps([[head, name, tail] for name, head, tail in rows]))
    epochs = math.ceil(ROTATE_STEPS / math.ceil(len(facts) / ROTATE_BATCH))
    run_side(ROTATE, {**files, "epochs": epochs, "batch": ROTATE_BATCH})
    told = [UNKNOWN if score is None else score for score in json.loads(files["out"].read_text())]
    score = torch.full((every[..., 0].numel(),), NOTHING).masked_scatter(present, torch.tensor(told))
    shape = every.shape[:-1]
    nothing = torch.zeros(shape, dtype=torch.int64)
    row = figures(Scored(score.reshape(shape), present.reshape(shape), nothing > 0, nothing, nothing, nothing))
    kept = {name: row[name] for name in RANKED}
    return {**kept, "epochs": epochs, "seconds, start and scoring included": round(time.perf_counter() - start, 1)}


def _named(predicates: tuple[str, ...], constants: tuple[str, ...], row: list[int]) -> Names:
    return predicates[row[0] - 1], constants[row[1] - 1], constants[row[2] - 1]


def spread(rows: Mapping[str, Row], kind: str) -> dict[str, list[float]]:
    """Mean and standard deviation (n - 1) over seeds."""
    own = [row for name, row in rows.items() if name.startswith(f"{kind} ")]
    columns = {name: [row[name] for row in own] for name in (*RANKED, "MRR, unproven tied", "seconds of ranking")}
    wide = {name: statistics.stdev(of) if len(of) > 1 else 0.0 for name, of in columns.items()}
    return {name: [round(statistics.fmean(of), 4), round(wide[name], 4)] for name, of in columns.items()}


def table(name: str, data: Path, seeds: int) -> dict[str, Any]:
    """All rows of a data set."""
    with tempfile.TemporaryDirectory() as home:
        case, arguments = CASES[name], prepared(name, data, Path(home))
        made = chosen(prove_pipeline(arguments).opened, case.queries)
        every = candidates_of(made, made.dataset.test, 100, keys.key(0))
        rows = {SHORTEST: shortest(made, every, case) | {"steps": case.depth}}
        print(" ", SHORTEST, rows[SHORTEST], flush=True)
        for kind, row in policies(arguments, every, seeds):
            rows[kind] = row
            print(" ", kind, row, flush=True)
        rows["RotatE"] = rotate(made, every, Path(home))
        print("  RotatE", rows["RotatE"], flush=True)
    sizes = {"facts": len(made.dataset.train), "rules": len(made.dataset.rules), "test": len(made.dataset.test)}
    asked_for = {"queries": every[..., 0, 0].numel(), "negatives": int((every[..., 1:, 0] != 0).sum())}
    means = {kind: spread(rows, kind) for kind in POLICIES}
    return {**sizes, **asked_for, "room of a policy": str(made.game.widths), **means, "rows": rows}


def picture() -> Path:
    """MRR by data set and row, of all that was measured."""
    told = {name: evidence.RESULTS / f"prove_table_{name}.json" for name in CASES}
    found = {name: json.loads(path.read_text())["figures"] for name, path in told.items() if path.exists()}
    kinds = (*POLICIES, SHORTEST, "RotatE")
    figure = page(11, 4)
    axes = figure.subplots()
    for number, kind in enumerate(kinds):
        pairs = [row[kind]["MRR"] if kind in POLICIES else [row["rows"][kind]["MRR"], 0.0] for row in found.values()]
        places = [place + 0.17 * (number - 2) for place in range(len(found))]
        axes.bar(places, [mean for mean, _ in pairs], 0.16, yerr=[wide for _, wide in pairs], label=kind)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylabel("MRR among filtered candidates")
    figure.legend(ncols=len(kinds), loc="outside upper center")
    return saved(figure, evidence.RESULTS / "prove_table.png")


def main() -> None:
    """Goes through the data sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.table", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the data sets' folders")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="trained policies of each (default: 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.only:
        start = time.perf_counter()
        print(name, flush=True)
        told = table(name, options.data, options.seeds)
        evidence.write(f"prove_table_{name}", seconds=time.perf_counter() - start, figures=told)
    print(picture())


if __name__ == "__main__":
    main()

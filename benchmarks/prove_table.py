"""Ranking by proofs on real graphs: untrained and trained policies, shortest proofs and RotatE, on the same candidates.

Countries: the test facts' country is asked for its region, among the five regions, with one rule (S1) or two (S2). nations,
kinship, umls, wn18rr: rules mined from the train facts, 100 filtered negatives for either argument; wn18rr on 300 test facts
drawn by a key. Writes results/prove_table.json after each data set.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen
from torch import Tensor

from purestep.core import keys
from purestep.core.logic.ranking import NOTHING
from purestep.core.logic.terms import Names
from purestep.runtime.compile import program
from purestep.runtime.logic.breadth import deriver, shortest_proofs
from purestep.runtime.logic.rank import Scored, Standing, asked, scored_by_length, scorer, standing
from purestep.runtime.logic.world import Proofs
from purestep.runtime.recipes.arguments import changed
from purestep.runtime.recipes.prove import Prove, model_of, opened, prove_defaults, prove_pipeline
from purestep.runtime.train import train

from . import evidence
from .sides import Side
from .sides import run as run_side

TRANSITIVE = "locatedin(X, Z) :- locatedin(X, Y), locatedin(Y, Z).\n"
NEIGHBOUR = "locatedin(X, Z) :- neighbor(X, Y), locatedin(Y, Z).\n"
REGIONS = ("africa", "americas", "asia", "europe", "oceania")
UNKNOWN = -1e5  # the score of a candidate with a name that no fact has
ROTATE = Side("pykeen", "pykeen_rotate")


@frozen
class Case:
    """A data set of the table."""

    folder: str
    rules: str = ""  # text of the rules; mined where there is none
    depth: int = 3  # of the longest proofs searched for
    queries: int = 0  # test facts that are ranked; 0 means all
    epochs: int = 100  # of RotatE
    changes: Mapping[str, Any] = {}  # to the defaults of learning to prove


MINED: Mapping[str, Any] = {"rules": "mine", "successors": 32, "steps": 400_000}
CASES: Mapping[str, Case] = {
    "countries_S1": Case("countries_S1", TRANSITIVE, depth=4, changes={"argument": "tail", "steps": 200_000}),
    "countries_S2": Case(
        "countries_S2", TRANSITIVE + NEIGHBOUR, depth=8, changes={"argument": "tail", "steps": 400_000}
    ),
    "nations": Case("nations", depth=2, changes=MINED),
    "kinship": Case("kinship", depth=2, changes=MINED),
    "umls": Case("umls", depth=2, changes=MINED),
    "wn18rr": Case("wn18rr", depth=3, queries=300, epochs=20, changes=MINED),
}


def prepared(case: Case, data: Path, home: Path) -> Prove:
    """The arguments for a data set; for countries with a file of rules and one that says which constants are regions."""
    source = data / case.folder
    if not case.rules:
        return changed(prove_defaults(str(source)), case.changes)
    folder = home / case.folder
    shutil.copytree(source, folder)
    (folder / "rules.txt").write_text(case.rules)
    words = {word for line in (folder / "train.txt").read_text().splitlines() for word in line.split("\t")[::2]}
    places = " ".join(sorted(words - set(REGIONS)))
    domains = f"place {places}\nregion {' '.join(REGIONS)}\nlocatedin:place:region\n"
    (folder / "domain2constants.txt").write_text(domains)
    return changed(prove_defaults(str(folder)), case.changes)


def chosen(made: Proofs, queries: int) -> Proofs:
    """The data with so many test facts, drawn by a fixed key; all where that is 0."""
    test = made.dataset.test
    if not queries:
        return made
    order = keys.permutation(keys.key(11), len(test))[:queries].tolist()
    return evolve(made, dataset=evolve(made.dataset, test=tuple(test[place] for place in order)))


def figures(told: Standing, seconds: float) -> dict[str, Any]:
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
        "queries": told.queries,
        "negatives": told.candidates,
        "seconds": round(seconds, 1),
    }


def policies(arguments: Prove, made: Proofs, every: Tensor, seeds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The policy before and after training, with as many seeds."""
    model = model_of(arguments, made)
    score = scorer(made, model)
    pipeline = prove_pipeline(arguments)
    per_call = 10
    learn = program(train(pipeline.trainer, per_call), name="train prove")
    calls = max(1, round(arguments.experience.steps / (per_call * pipeline.trainer.steps)))
    for seed in range(seeds):
        start = time.perf_counter()
        state = pipeline.trainer.init(keys.key(seed))
        with torch.no_grad():
            yield (
                f"untrained {seed}",
                figures(standing(score(state.learner.params, every)), time.perf_counter() - start),
            )
        start = time.perf_counter()
        state = pipeline.prepare(state)
        for _ in range(calls):
            state, _ = learn(state)
        with torch.no_grad():
            yield f"trained {seed}", figures(standing(score(state.learner.params, every)), time.perf_counter() - start)


def shortest(made: Proofs, every: Tensor, depth: int) -> dict[str, Any]:
    """Candidates by the length of their shortest proofs, up to `depth`."""
    names, widths = made.game.names, made.game.widths
    start = time.perf_counter()
    engine = program(deriver(names, widths), name="derive")
    found = shortest_proofs(names, made.world.base, widths, every.reshape(-1, 3), depth=depth, engine=engine, most=2000)
    steps = found.depth.reshape(every.shape[:-1])
    told = scored_by_length(steps, every[..., 0] != 0)
    row = figures(standing(told), time.perf_counter() - start)
    return {**row, "longest proofs": depth, "searched without loss": round(float(found.exact.float().mean()), 4)}


def rotate(made: Proofs, every: Tensor, epochs: int, home: Path) -> dict[str, Any]:
    """Candidates by RotatE, trained by PyKEEN on the same facts."""
    start = time.perf_counter()
    files = {name: home / f"{made.dataset.name.replace('/', '_')}.{name}" for name in ("facts", "candidates", "out")}
    files["facts"] = files["facts"].with_suffix(".tsv")
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


def spread(rows: Mapping[str, Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """Mean and standard deviation over seeds."""
    own = [row for name, row in rows.items() if name.startswith(f"{kind} ")]
    told: dict[str, Any] = {}
    for name in ("MRR", "Hits@1", "Hits@3", "Hits@10", "AUC-PR", "seconds"):
        values = [row[name] for row in own]
        told[name] = [round(statistics.fmean(values), 4), round(statistics.pstdev(values), 4)]
    return told


def table(case: Case, data: Path, seeds: int) -> dict[str, Any]:
    """All rows of a data set."""
    with tempfile.TemporaryDirectory() as home:
        arguments = prepared(case, data, Path(home))
        made = chosen(opened(arguments), case.queries)
        every = asked(made, made.dataset.test, 100, keys.key(0))
        rows: dict[str, Any] = {"shortest proofs": shortest(made, every, case.depth)}
        print("  shortest proofs", rows["shortest proofs"], flush=True)
        for name, row in policies(arguments, made, every, seeds):
            rows[name] = row
            print(" ", name, row, flush=True)
        rows["RotatE"] = rotate(made, every, case.epochs, Path(home))
        print("  RotatE", rows["RotatE"], flush=True)
    sizes = {"facts": len(made.dataset.train), "rules": len(made.dataset.rules), "test": len(made.dataset.test)}
    return {**sizes, "untrained": spread(rows, "untrained"), "trained": spread(rows, "trained"), "rows": rows}


def main() -> None:
    """Goes through the data sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prove_table", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the data sets' folders")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="trained policies of each (default: 3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start, told = time.perf_counter(), dict[str, Any]()
    for name in options.only:
        print(name, flush=True)
        told[name] = table(CASES[name], options.data, options.seeds)
        evidence.write("prove_table", seconds=time.perf_counter() - start, figures=told)
    print("written: benchmarks/results/prove_table.json")


if __name__ == "__main__":
    main()

"""Search for proofs guided by a policy against breadth first and the rules' confidences, at equal expansions.

On a family whose rules follow from one another proofs may apply four rules, and on maternal lines (see `lineage`) eight: an
exhaustive search is out of reach. The same test queries are searched with the same budget, ordered by breadth, by
confidence, by an untrained policy and by policies trained by PPO, by imitation of a search (once, or in three rounds of
expert iteration), and by both; also by beams of an eighth of the budget. Ranks are among all entities, by noisy-or of the
proofs found. A policy also costs the seconds of its training and of its application: rows with as many CPU seconds compare
at equal seconds.
Writes results/prove_search.json, where other data sets' rows stay.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from purestep.runtime.logic.guide import policy_guide
from purestep.runtime.logic.link_ranking import among_all, ranked_by
from purestep.runtime.logic.proof_scores import Effort, ProofTable, prover, rule_weights
from purestep.runtime.logic.search import SearchLimits
from purestep.runtime.recipes.prove import confident, model_of, prove_pipeline
from purestep.runtime.recipes.prove_settings import prove_defaults
from purestep.runtime.runs.arguments import changed

from .. import evidence
from .cases import prepared, trainings

BUDGETS = (25, 100, 400, 1600)
NAME = "prove_search"


@frozen
class Deep:
    """A data set, and the bounds of proofs on it."""

    rules: int
    steps: int  # of training


IMITATED, MORE = {"imitated_facts": 1000}, {"imitated_facts": 1000, "imitation_rounds": 3}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "untrained": {"steps": 0},
    "trained": {},
    "imitating": {**IMITATED, "steps": 0},
    "imitating thrice": {**MORE, "steps": 0},
    "imitating, then trained": IMITATED,
}

SETS: Mapping[str, Deep] = {"family:200": Deep(4, 800_000), "lineage": Deep(8, 800_000)}


def measured(name: str, home: Path, seeds: int) -> dict[str, Any]:
    """All searches on a data set."""
    deep = SETS[name]
    given = prepared(name, Path(), home) if name == "lineage" else prove_defaults(name)
    arguments = changed(given, {"steps": deep.steps, "imitated_rules": deep.rules})
    pipeline = prove_pipeline(arguments)
    made = confident(arguments, pipeline.opened)
    model, trained = model_of(arguments, made), trainings(arguments, pipeline)
    guides: dict[str, Any] = {"breadth": (), "confidence": ()}
    figures: dict[str, Any] = {"settings": repr(deep)}
    for policy, changes in POLICIES.items():
        for seed in range(seeds):
            params, spent = trained(changed(arguments, changes), made, seed)
            figures[f"CPU seconds of training, {policy} policy, seed {seed}"] = round(spent, 1)
            guides[f"{policy} policy {seed}"] = policy_guide(made.game.names, model, params)
    asked, weights = among_all(made, made.dataset.test, arguments.experience.argument), rule_weights(made)
    for label, guide in guides.items():
        order = "policy" if guide else label
        for budget in BUDGETS:
            for strategy, width in (("exact", 0), ("beam", max(1, budget // 8))):
                bounds = SearchLimits(deep.rules, budget, strategy, width, order)  # type: ignore[arg-type]
                told: list[Effort] = []
                own = evolve(prover(made, weights, bounds), guide=guide or None)
                found = own.open_proofs(asked.queries, 1)[0]
                start = time.process_time()
                (rank,) = ranked_by(made, ProofTable(own, "noisy_or", told.append), asked)
                row = {
                    "MRR, all entities": round(float(rank.means().mean_reciprocal_rank), 4),
                    "states expanded": sum(each.expanded for each in told),
                    "proofs per expansion": round(found.owner.shape[0] / max(int(found.expanded.sum()), 1), 3),
                    "CPU seconds": round(time.process_time() - start, 1),
                }
                figures[f"{label}, {strategy}, {budget} expansions"] = row
                print(name, label, strategy, budget, row, flush=True)
    return figures


def main() -> None:
    """Trains policies, and searches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.search", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS), help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="trained policies (default: 3)")
    options, start = parser.parse_args(), time.perf_counter()
    torch.set_num_threads(1)
    path = evidence.RESULTS / f"{NAME}.json"
    found: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    for name in options.only:
        with tempfile.TemporaryDirectory() as home:
            begin = time.perf_counter()
            figures = measured(name, Path(home), options.seeds)
            found[name] = evidence.origin(NAME, time.perf_counter() - begin) | figures
        evidence.write(NAME, seconds=time.perf_counter() - start, figures=found)


if __name__ == "__main__":
    main()

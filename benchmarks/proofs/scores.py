"""Rankings by proofs with confidences, by embeddings, and by both, among all entities and among 100 negatives.

For each data set: rules as they come or mined; confidence alone (one rule a proof, by noisy-or, by the best proof and by
groundings), search with confidence (proofs of two rules and more, up to `rules`), weights learned from train facts, embeddings,
and the hybrids of both. Every choice (the rules of a proof, how proofs are joined, the decay of learned weights, the form of an
embedding, the weight of a hybrid) is made on the valid split among all entities; test figures are of that choice. "only the
score is swapped" ranks by the same proofs: by their number, by the best proof, by noisy-or of proofs and of groundings, by the
learned weights. Figures of policies are those of `proofs.table`, which ranks the same test facts by the same 100 negatives.
Writes results/prove_scores.json, one set after the other.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from attrs import field, frozen
from torch import Tensor

from purestep.algorithms.logic.rule_weights import learn_rule_weights
from purestep.core import keys
from purestep.core.logic.embedding import Embedding
from purestep.core.logic.terms import Names
from purestep.runtime.effects.datasets import Mining, open_dataset, open_rules
from purestep.runtime.logic.answers import Join, dense, join_scores
from purestep.runtime.logic.confidence import with_confidences
from purestep.runtime.logic.hybrid import WEIGHTS, embeddings, hybrid, plausibilities
from purestep.runtime.logic.link_ranking import RankedQueries, Table, among_all, among_negatives, ranked_by
from purestep.runtime.logic.proof_scores import ProofSearcher, prover, rule_weights
from purestep.runtime.logic.proofs import Proofs, proofs
from purestep.runtime.logic.search import ProofsFound, SearchLimits, reweighed
from purestep.runtime.logic.weigh import weighed_proofs

from .. import evidence
from .cases import CASES, prepared

NAME = "prove_scores"
NEGATIVES = 100
DECAYS = (1e-5, 1e-4)
STEPS = 150
JOINS: tuple[Join, ...] = ("noisy_or", "max", "groundings")
Row = dict[str, Any]


@frozen
class Scored:
    """A data set, and the bounds of what is tried on it."""

    mining: Mining | None = None  # None: the rules that come with it
    rules: int = 2  # of the proofs of "search with confidence", at most
    expansions: int = 2000
    learn: int = 2000  # train facts from which weights are learned
    queries: int = 0  # of test and valid; 0: all
    argument: str = "both"
    steps: int = 2000  # of an embedding
    forms: tuple[str, ...] = ("complex",)
    changes: Mapping[str, Any] = field(factory=dict)


SETS: Mapping[str, Scored] = {
    "countries_S1": Scored(rules=4, argument="tail", learn=500),
    "countries_S2": Scored(rules=4, argument="tail", learn=500),
    "nations": Scored(Mining(most=50, confidence=0.01), rules=1, learn=1000),
    "family:200": Scored(rules=3, learn=1000),
    "umls": Scored(Mining(most=100, confidence=0.01), rules=1, learn=1000),
    "kinship": Scored(Mining(most=100, confidence=0.01), rules=1, learn=1000),
    "lineage": Scored(rules=6, argument="tail", learn=500),
    "wn18rr": Scored(Mining(most=300, length=3, confidence=0.003), rules=1, learn=2000, steps=10_000),
}


@frozen
class Kept:
    """Proofs that were searched for once, by queries and argument; tables of any weights are read from them."""

    own: ProofSearcher
    found: dict[tuple[bytes, int], tuple[ProofsFound, Tensor]] = field(factory=dict)

    def proofs(self, queries: Tensor, side: int) -> tuple[ProofsFound, Tensor]:
        name = queries.numpy().tobytes(), side
        if name not in self.found:
            self.found[name] = self.own.open_proofs(queries, side)
        return self.found[name]

    def table(self, weights: Tensor, join: Join | Literal["number"]) -> Table:
        def scores(queries: Tensor, side: int) -> Tensor:
            found, search_of = self.proofs(queries, side)
            told = reweighed(found, torch.full_like(weights, 0.5) if join == "number" else weights)
            own = join_scores(self.own.names, told, "noisy_or" if join == "number" else join)
            return dense(self.own.names, own, found.expanded.shape[0], side)[search_of]

        return scores

    def effort(self) -> Row:
        every = [found for found, _ in self.found.values()]
        searches = sum(len(found.expanded) for found in every)
        cut = sum(int((found.cut > 0).sum()) for found in every)
        proven = sum(len(found.owner) for found in every)
        return {
            "searches": searches,
            "states expanded": sum(int(found.expanded.sum()) for found in every),
            "distinct proofs": proven,
            "share of searches cut by their bounds": round(cut / max(searches, 1), 4),
        }


def mrr(made: Proofs, table: Table, asked: RankedQueries) -> float:
    return float(ranked_by(made, table, asked)[0].means().mean_reciprocal_rank)


def figures(made: Proofs, table: Table, *asked: RankedQueries) -> Row:
    """The metrics of both protocols."""
    start = time.process_time()
    told = ranked_by(made, table, *asked)
    row: Row = {}
    for each in told:
        means = each.means()
        row[each.protocol] = {
            "MRR": round(float(means.mean_reciprocal_rank), 4),
            "Hits@1": round(float(means.hits_at_1), 4),
            "Hits@3": round(float(means.hits_at_3), 4),
            "Hits@10": round(float(means.hits_at_10), 4),
            "MRR by argument": {
                side: round(float(own.mean_reciprocal_rank), 4) for side, own in each.by_argument().items()
            },
        }
    return row | {"CPU seconds": round(time.process_time() - start, 1)}


def some(facts: tuple[Names, ...], queries: int) -> tuple[Names, ...]:
    if not queries or queries >= len(facts):
        return facts
    return tuple(facts[place] for place in keys.permutation(keys.key(11), len(facts))[:queries].tolist())


def measured(name: str, data: Path, home: Path, seeds: int, embedded: bool, tell: Callable[[Row], None]) -> None:
    """All rows of a data set."""
    case, row = SETS[name], dict[str, Any]()
    start = time.process_time()
    source = prepared(name, data, home).experience.data if name in CASES else name
    dataset = open_dataset(source)
    if case.mining is not None:
        dataset = open_rules("mine", dataset, case.mining)
        row["CPU seconds of mining"] = round(time.process_time() - start, 1)
    made = proofs(dataset, facts=8, successors=8)
    remeasured = case.mining is not None and case.mining.length > 2  # as `train prove` does
    if dataset.rules[0].confidence is None or remeasured:
        made = with_confidences(made)
    own_weights = rule_weights(made)
    row |= {"facts": len(dataset.train), "rules": len(dataset.rules), "settings": repr(case)}
    test, valid = some(dataset.test, case.queries), some(dataset.valid, case.queries)
    asked = (
        among_all(made, test, case.argument),
        among_negatives(made, test, case.argument, NEGATIVES, keys.key(0)),
    )
    chosen_by = among_all(made, valid, case.argument)

    def best(options: Mapping[Any, Table]) -> tuple[Any, Table, dict[str, float]]:
        told = {name: mrr(made, table, chosen_by) for name, table in options.items()}
        taken = max(told, key=lambda name: told[name])
        return taken, options[taken], {str(name): round(value, 4) for name, value in told.items()}

    def say(label: str, told: Row) -> None:
        row[label] = told
        print(name, label, json.dumps(told), flush=True)
        tell(row)

    searches = {1: Kept(prover(made, own_weights, SearchLimits(rules=1, expansions=1 << 40)))}
    for rules in range(2, case.rules + 1):
        searches[rules] = Kept(prover(made, own_weights, SearchLimits(rules=rules, expansions=case.expansions)))
    deep = searches[1]
    for label, depths in {"confidence alone": [1], "search with confidence": list(searches)[1:] or [1]}.items():
        options = {(rules, join): searches[rules].table(own_weights, join) for rules in depths for join in JOINS}
        (rules, join), table, valid_mrr = best(options)
        deep = searches[rules]
        told = {"rules of a proof, at most": rules, "join": join, "valid": valid_mrr, **figures(made, table, *asked)}
        say(label, told | {"effort": deep.effort()})

    learned, order = list[tuple[Tensor, Table]](), made.world.queries
    for seed in range(seeds):
        begin = time.process_time()
        facts = order[keys.permutation(keys.key(seed), len(order))[: case.learn]]
        examples = weighed_proofs(made, deep.own, facts)
        fits = {decay: learn_rule_weights(STEPS, decay=decay)(own_weights, examples)[0] for decay in DECAYS}
        spent = time.process_time() - begin
        decay, table, valid_mrr = best({decay: deep.table(fits[decay], "noisy_or") for decay in DECAYS})
        learned.append((fits[decay], table))
        told = {"decay": decay, "valid": valid_mrr, "CPU seconds of learning": round(spent, 1)}
        say(f"learned weights, seed {seed}", told | figures(made, table, *asked))
    weights = learned[0][0]
    swapped = {
        "number of proofs": deep.table(own_weights, "number"),
        "best proof": deep.table(own_weights, "max"),
        "noisy-or": deep.table(own_weights, "noisy_or"),
        "noisy-or of groundings": deep.table(own_weights, "groundings"),
        "learned weights, best proof": deep.table(weights, "max"),
        "learned weights, noisy-or": deep.table(weights, "noisy_or"),
    }
    say("only the score is swapped", {label: round(mrr(made, table, asked[0]), 4) for label, table in swapped.items()})

    for seed in range(seeds if embedded else 0):
        begin = time.process_time()
        params: dict[str, Embedding] = {
            form: embeddings(made, form, steps=case.steps, key=keys.key(seed), compiled=True) for form in case.forms
        }
        spent = time.process_time() - begin
        tables = {form: plausibilities(made, own, form) for form, own in params.items()}
        form, table, valid_mrr = best(tables)
        told = {"form": form, "valid": valid_mrr, "CPU seconds of training": round(spent, 1)}
        say(f"embedding, seed {seed}", told | figures(made, table, *asked))
        mixed: dict[Any, Table] = {
            (label, weight): hybrid(by_proofs, table, weight)
            for label, by_proofs in (
                ("noisy-or", deep.table(own_weights, "noisy_or")),
                ("groundings", deep.table(own_weights, "groundings")),
                ("learned", learned[seed][1]),
            )
            for weight in WEIGHTS
        }
        choice, hybrids, valid_mrr = best(mixed)
        top = dict(sorted(valid_mrr.items(), key=lambda pair: -pair[1])[:5])
        say(f"hybrid, seed {seed}", {"choice": str(choice), "valid": top, **figures(made, hybrids, *asked)})
    say("means", spread(row))


def spread(row: Row) -> Row:
    """Mean and standard deviation (n - 1) of MRR over seeds, by protocol."""
    told: Row = {}
    for kind in ("learned weights", "embedding", "hybrid"):
        own = [each for label, each in row.items() if label.startswith(f"{kind}, seed")]
        for protocol in ("all entities, filtered", f"{NEGATIVES} filtered negatives"):
            values = [each[protocol]["MRR"] for each in own if protocol in each]
            if values:
                wide = statistics.stdev(values) if len(values) > 1 else math.nan
                wide = 0.0 if math.isnan(wide) else wide
                told[f"{kind}, {protocol}"] = [round(statistics.fmean(values), 4), round(wide, 4), len(values)]
    return told


def policies(name: str) -> Row:
    """The figures of untrained and trained policies among 100 negatives, from `proofs.table`."""
    path = evidence.RESULTS / f"prove_table_{name}.json"
    if not path.exists():
        return {}
    told = json.loads(path.read_text())
    return {
        "commit": told["commit"],
        **{kind: told["figures"][kind]["MRR"] for kind in ("untrained", "trained") if kind in told["figures"]},
    }


def main() -> None:
    """Goes through the data sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.scores", description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the data sets' folders")
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS), help="which (default: all)")
    parser.add_argument("--seeds", type=int, default=3, help="of what is learned (default: 3)")
    parser.add_argument("--proofs-only", action="store_true", help="leave out embeddings and hybrids")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = evidence.RESULTS / f"{NAME}.json"
    told: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    start = time.perf_counter()
    for name in options.only:
        with tempfile.TemporaryDirectory() as home:

            def tell(row: Row, name: str = name) -> None:
                known = {"policies, 100 filtered negatives (prove_table)": policies(name)}
                told[name] = evidence.origin(NAME, time.perf_counter() - start) | known | row

            measured(name, options.data, Path(home), options.seeds, not options.proofs_only, tell)
        evidence.write(NAME, seconds=time.perf_counter() - start, figures=told)


if __name__ == "__main__":
    main()

"""A large knowledge graph from its files to rankings, by phase: seconds of the clock, and the peak of memory.

The graph is drawn by a key: entities of 50 types, a tenth of the relations between two types each; the others are parts of
these, of their inverses and of their compositions, so that rules can be mined and are right some of the time. Phases: read the
files, mine rules, read again and build the game of proofs, train embeddings on the facts, compile and train a policy, rank test
facts by the rules' confidences (all entities, and 100 negatives) and by the policy (100 negatives). One thread. Writes
results/prove_scale.json.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from purestep.core import keys
from purestep.runtime.compile import Program, program
from purestep.runtime.effects.datasets import Mining, open_dataset, open_rules
from purestep.runtime.logic.link_ranking import among_all, among_negatives, ranked_by
from purestep.runtime.logic.proof_scores import Effort, ProofTable, prover, rule_weights
from purestep.runtime.logic.rank import candidates_of, ranking_result, scorer
from purestep.runtime.logic.search import SearchLimits, ranges
from purestep.runtime.recipes.prove import confident, model_of, prove_pipeline
from purestep.runtime.recipes.prove_settings import prove_defaults
from purestep.runtime.recipes.shared_settings import iteration_steps, loop_of
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import train

from .. import evidence
from .speed import mebibytes

TYPES, KEPT = 50, 0.5
HELD_OUT = 1000  # facts of valid and of test


def graph(facts: int, relations: int, entities: int) -> Tensor:
    """About so many facts (subject, relation, object): int64 [N, 3], shuffled."""
    size, base = entities // TYPES, relations // 10
    many, parts = facts // relations, []
    pairs: list[Tensor] = []
    for number in range(base):
        key = keys.fold_in(keys.key(0), number)
        first, second = keys.randint(keys.fold_in(key, 0), (2,), 0, TYPES).tolist()
        one, other = keys.randint(keys.fold_in(key, 1), (2, int(many / KEPT)), 0, size)
        pairs.append(torch.unique(torch.stack([one + first * size, other + second * size], -1), dim=0))
    for number in range(relations):
        key = keys.fold_in(keys.key(1), number)
        own = pairs[number % base]
        if number >= 5 * base:  # five relations from the same composition
            own = composed(own, pairs, keys.fold_in(keys.key(3), number % base))
        elif number // base % 2:
            own = own.flip(-1)
        if number >= base:  # a part of what follows
            own = own[keys.permutation(keys.fold_in(key, 1), len(own))[: min(many, int(KEPT * len(own)) + 1)]]
        parts.append(torch.stack([own[:, 0], torch.full_like(own[:, 0], number), own[:, 1]], -1))
    every = torch.cat(parts)
    return every[keys.permutation(keys.key(2), len(every))]


def composed(own: Tensor, pairs: list[Tensor], key: Tensor) -> Tensor:
    """The pairs that a relation and another one, which begins where it ends, join; of the first drawn that does."""
    for place in keys.permutation(key, len(pairs)).tolist():
        other = pairs[place]
        low = torch.searchsorted(other[:, 0].contiguous(), own[:, 1].contiguous())
        high = torch.searchsorted(other[:, 0].contiguous(), own[:, 1].contiguous(), right=True)
        edge, row = ranges(low, high - low)
        if len(edge):
            return torch.unique(torch.stack([own[row, 0], other[edge, 1]], -1), dim=0)
    return own


def written(folder: Path, facts: Tensor) -> None:
    """Write the graph's files."""
    lines = [f"e{one}\tr{relation}\te{other}\n" for one, relation, other in facts.tolist()]
    splits = {"test": lines[:HELD_OUT], "valid": lines[HELD_OUT : 2 * HELD_OUT], "train": lines[2 * HELD_OUT :]}
    for name, part in splits.items():
        (folder / f"{name}.txt").write_text("".join(part))


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All phases."""
    rows: dict[str, Any] = {}

    @contextmanager
    def phase(name: str) -> Iterator[dict[str, Any]]:
        row: dict[str, Any] = {}
        start, used = time.perf_counter(), time.process_time()
        yield row
        spent = {"seconds": time.perf_counter() - start, "CPU seconds": time.process_time() - used}
        rows[name] = {unit: round(value, 1) for unit, value in spent.items()} | {"peak MiB": mebibytes("VmHWM")} | row
        print(name, rows[name], flush=True)

    with phase("read"):
        dataset = open_dataset(str(folder))
    with phase("mine") as row:
        dataset = open_rules("mine", dataset, Mining(most=given.rules // given.relations, confidence=0.01))
        row["rules"] = len(dataset.rules)
    (folder / "rules.txt").write_text("".join(f"{rule.confidence}::{rule}.\n" for rule in dataset.rules))
    arguments = changed(prove_defaults(str(folder)), {"steps": given.steps, "successors": 32, "facts": 32})
    with phase("read with rules, and build") as row:
        pipeline = prove_pipeline(arguments)
        made = confident(arguments, pipeline.opened)
        row["widths"] = str(made.game.widths)
    state = pipeline.trainer.init(keys.key(0))
    with phase("embeddings by link prediction"):
        state = pipeline.prepare(state)
    loop = loop_of(arguments.experience, arguments.process)
    learn: Program[..., Any] = program(train(pipeline.trainer, loop.chunk), name="train prove")
    with phase("compile, and train a chunk"):
        state, _ = learn(state)
    with phase("train the others") as row:
        start = time.perf_counter()
        for _ in range(loop.iterations // loop.chunk - 1):
            state, _ = learn(state)
        moves = (loop.iterations - loop.chunk) * iteration_steps(arguments.experience)
        row["moves/s"] = round(moves / (time.perf_counter() - start))
    test, key = dataset.test, keys.key(0)
    told: list[Effort] = []
    with phase("rank by confidences") as row:
        table = ProofTable(prover(made, rule_weights(made), SearchLimits()), "noisy_or", told.append)
        each = (among_all(made, test), among_negatives(made, test, "both", 100, key))
        for found in ranked_by(made, table, *each):
            row[f"MRR, {found.protocol}"] = round(float(found.means().mean_reciprocal_rank), 4)
        row["searches"], row["cut by their bounds"] = sum(one.searches for one in told), sum(one.cut for one in told)
    with phase("rank by the policy, of 100 test facts") as row:
        score = scorer(made, model_of(arguments, made))
        with torch.no_grad():
            result = ranking_result(score(state.learner.params, candidates_of(made, test, 100, key, 100)))
        row |= {"MRR, 100 filtered negatives": round(float(result.ranking.mean_reciprocal_rank), 4)}
        row |= {"candidates": result.candidates, "with states left out": result.too_long + result.too_many}
    return rows


def main() -> None:
    """Draws the graph, and goes through the phases."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.scale", description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000, help="about so many (default: 1,000,000)")
    parser.add_argument("--relations", type=int, default=300)
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--rules", type=int, default=3000, help="at most (default: 3,000)")
    parser.add_argument("--steps", type=int, default=200_000, help="of training (default: 200,000)")
    given, start, load = parser.parse_args(), time.perf_counter(), os.getloadavg()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        facts = graph(given.facts, given.relations, given.entities)
        written(Path(folder), facts)
        figures = {
            "given": vars(given),
            "facts": len(facts),
            "load before": load,
            "phases": measured(given, Path(folder)),
        }
    evidence.write("prove_scale", seconds=time.perf_counter() - start, figures=figures)


if __name__ == "__main__":
    main()

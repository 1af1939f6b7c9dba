"""Search for proofs guided by a policy against breadth first and the rules' confidences, at equal expansions.

On a family whose rules follow from one another, proofs may apply four rules, and an exhaustive search is out of reach of the
budgets. The same test queries are searched with the same budget, ordered by breadth, by confidence, by an untrained and by a
trained policy; also by beams of the same width. Ranks are among all entities, by noisy-or of the proofs found. A policy also
costs the seconds of its training and of its application. Writes results/prove_search.json.
"""

import argparse
import time
from typing import Any

import torch
from attrs import evolve

from purestep.core import keys
from purestep.runtime.compile import program
from purestep.runtime.logic.confidence import with_confidences
from purestep.runtime.logic.guide import policy_guide
from purestep.runtime.logic.link_ranking import among_all, ranked_by
from purestep.runtime.logic.proof_scores import Effort, ProofTable, prover, rule_weights
from purestep.runtime.logic.search import SearchLimits
from purestep.runtime.recipes.arguments import loop_of
from purestep.runtime.recipes.prove import model_of, prove_pipeline
from purestep.runtime.recipes.prove_settings import prove_defaults
from purestep.runtime.runs.arguments import changed
from purestep.runtime.train import train

from .. import evidence

BUDGETS = (25, 100, 400)
RULES = 4


def main() -> None:
    """Trains a policy, and searches."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs.search", description=__doc__)
    parser.add_argument("--data", default="family:200", help="the data set (default: family:200)")
    parser.add_argument("--steps", type=int, default=800_000, help="of training (default: 800,000)")
    parser.add_argument("--seeds", type=int, default=3, help="trained policies (default: 3)")
    parser.add_argument("--queries", type=int, default=0, help="test facts (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    arguments = changed(prove_defaults(options.data), {"steps": options.steps})
    pipeline = prove_pipeline(arguments)
    made = with_confidences(pipeline.opened)
    model, loop = model_of(arguments, made), loop_of(arguments.experience, arguments.process)
    learn = program(train(pipeline.trainer, loop.chunk), name="train prove")
    guides: dict[str, Any] = {"breadth": (), "confidence": ()}
    figures: dict[str, Any] = {"data": options.data, "steps": options.steps, "rules of a proof": RULES}
    for seed in range(options.seeds):
        state = pipeline.trainer.init(keys.key(seed))
        guides[f"untrained policy {seed}"] = policy_guide(made.game.names, model, state.learner.params)
        start = time.process_time()
        state = pipeline.prepare(state)
        for _ in range(loop.iterations // loop.chunk):
            state, _ = learn(state)
        figures[f"CPU seconds of training, seed {seed}"] = round(time.process_time() - start, 1)
        guides[f"trained policy {seed}"] = policy_guide(made.game.names, model, state.learner.params)
    facts = made.dataset.test[: options.queries] if options.queries else made.dataset.test
    asked, weights = among_all(made, facts), rule_weights(made)
    for name, guide in guides.items():
        order = "policy" if guide else name
        for budget in BUDGETS:
            for strategy, width in (("exact", 0), ("beam", max(1, budget // 8))):
                bounds = SearchLimits(RULES, budget, strategy, width, order)  # type: ignore[arg-type]
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
                figures[f"{name}, {strategy}, {budget} expansions"] = row
                print(name, strategy, budget, row, flush=True)
    evidence.write("prove_search", seconds=time.perf_counter() - begin, figures=figures)


if __name__ == "__main__":
    main()

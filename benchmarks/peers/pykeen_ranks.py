"""PyKEEN's evaluator on given scores: writes what it makes of them beside this script, for a test to compare with.

    python benchmarks/peers/pykeen_ranks.py       # run by the python of the environment "pykeen", rewrites pykeen_ranks.json

Half of the scores are small whole numbers, so that many are equal.
"""

import json
from importlib.metadata import version
from pathlib import Path

QUERIES, CANDIDATES = 40, 30
METRICS = {"MRR": "inverse_harmonic_mean_rank", "Hits@1": "hits@1", "Hits@3": "hits@3", "Hits@10": "hits@10"}


def main() -> None:
    """Scores, evaluates, writes."""
    import torch
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.evaluation.ranks import Ranks

    torch.manual_seed(7)
    drawn = torch.randn(QUERIES, CANDIDATES, dtype=torch.float64)
    scores = torch.where(torch.arange(QUERIES)[:, None] % 2 == 0, drawn, drawn.round())
    true_scores = scores[:, :1]
    evaluator = RankBasedEvaluator(filtered=False)
    evaluator.process_scores_(
        hrt_batch=torch.zeros(QUERIES, 3, dtype=torch.int64), target="tail", scores=scores, true_scores=true_scores
    )
    results = evaluator.finalize()
    ranks = Ranks.from_scores(true_score=true_scores, all_scores=scores)
    told = {
        "pykeen": version("pykeen"),
        "scores": scores.tolist(),
        "ranks": {kind: getattr(ranks, kind).tolist() for kind in ("optimistic", "pessimistic", "realistic")},
        "metrics": {
            kind: {name: results.get_metric(f"tail.{kind}.{theirs}") for name, theirs in METRICS.items()}
            for kind in ("optimistic", "pessimistic", "realistic")
        },
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()

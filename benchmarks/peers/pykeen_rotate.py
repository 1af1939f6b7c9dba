"""RotatE with PyKEEN: trains on a file of facts, scores given candidates. Prints one line of JSON.

The facts are lines `head<TAB>relation<TAB>tail`; the candidates a JSON list of such triples. Scores go into a JSON list of the
same length, NaN (as null) where a name is none that the facts know.
"""

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description="RotatE with PyKEEN")
    for name in ("facts", "candidates", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name, default in {"epochs": 100, "size": 64, "batch": 512, "negatives": 16, "seed": 0, "threads": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=1e-2)
    return parser.parse_args()


def main() -> None:
    """Trains, scores, writes."""
    arguments = parse()
    import torch
    from pykeen.losses import NSSALoss
    from pykeen.models import RotatE
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import TriplesFactory

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    facts = TriplesFactory.from_path(arguments.facts)
    model = RotatE(
        triples_factory=facts, embedding_dim=arguments.size, loss=NSSALoss(margin=9.0), random_seed=arguments.seed
    )
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=facts,
        optimizer=torch.optim.Adam(model.parameters(), lr=arguments.rate),
        negative_sampler_kwargs={"num_negs_per_pos": arguments.negatives},
    )
    start = time.perf_counter()
    loop.train(facts, num_epochs=arguments.epochs, batch_size=arguments.batch, use_tqdm=False, use_tqdm_batch=False)
    seconds = time.perf_counter() - start
    rows, places = [], []
    every = json.loads(arguments.candidates.read_text())
    for place, (head, relation, tail) in enumerate(every):
        numbers = facts.entity_to_id.get(head), facts.relation_to_id.get(relation), facts.entity_to_id.get(tail)
        if None not in numbers:
            rows.append(numbers)
            places.append(place)
    scores: list[float | None] = [None] * len(every)
    with torch.no_grad():
        for begin in range(0, len(rows), 10_000):
            told = model.score_hrt(torch.tensor(rows[begin : begin + 10_000]))[:, 0].tolist()
            for place, score in zip(places[begin : begin + 10_000], told, strict=True):
                scores[place] = score
    arguments.out.write_text(json.dumps(scores))
    print(json.dumps({"train_seconds": seconds, "scored": len(rows), "pykeen": version("pykeen")}))


if __name__ == "__main__":
    main()

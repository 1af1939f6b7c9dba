"""Learning links obeys its laws, and makes what is true more plausible than what is not."""

import torch

from purestep.algorithms.logic.link_prediction import (
    LinkPrediction,
    link_prediction,
    link_prediction_loss,
    plausibility,
    plausibility_of_all,
)
from purestep.core import keys
from purestep.core.logic.corrupt import TAIL
from purestep.core.logic.embedding import Embedding
from purestep.core.optim.optimizers import adam
from purestep.properties import check
from purestep.runtime.logic.family import family
from purestep.runtime.logic.proofs import proofs
from purestep.runtime.logic.rank import candidates_of

from ...laws.logic.link_prediction import link_prediction_laws, plausibility_of_all_laws

test_loss = check(link_prediction_laws(), link_prediction_loss)
test_all_constants = check(plausibility_of_all_laws(), plausibility_of_all)


def test_facts_never_seen_come_before_their_negatives() -> None:
    made = proofs(family(30))
    names = made.game.names
    start = Embedding(
        predicates=0.2 * keys.normal(keys.key(0), (names.end + 1, 16)),
        terms=0.2 * keys.normal(keys.key(1), (names.base, 16)),
    )
    learn = link_prediction(adam(2e-2), len(names.constants), LinkPrediction(batch=64, negatives=8))
    every = candidates_of(made, made.dataset.test, 8, keys.key(2))[TAIL]

    def before(params: Embedding) -> float:
        """In how many pairs the fact is the more plausible one."""
        score = plausibility(params, every)
        wins = (score[:, :1] > score[:, 1:])[every[:, 1:, 0] != 0]
        return float(wins.to(torch.float32).mean())

    learnt, losses = learn(start, made.world.base.facts[:-1], keys.split(keys.key(3), 150))
    assert losses[-10:].mean() < 0.5 * losses[:10].mean()
    assert before(start) < 0.65
    assert before(learnt) > 0.8

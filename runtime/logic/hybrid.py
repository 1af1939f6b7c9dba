"""Scores of embeddings, alone and joined with those of proofs."""

from typing import Any

import torch
from torch import Tensor

from ...algorithms.logic.link_prediction import LinkPrediction, link_prediction, plausibility_of_all
from ...core import keys
from ...core.keys import Key
from ...core.logic.embedding import Embedding, state_embedding
from ...core.optim.optimizers import adam
from ..compile import program
from .link_ranking import Table
from .proofs import Proofs

SIZE, RATE, NEGATIVES = 128, 1e-2, 64
PIECE = 500  # steps of one call of the program
# weights of proofs to choose from; the embedding's is 1, so that beside the last it only breaks ties
WEIGHTS = (0.0, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 10_000.0)


def embeddings(made: Proofs, form: str, *, steps: int, key: Key, compiled: bool = True) -> Embedding:
    """Return embeddings trained on the train facts by link prediction, for `steps` steps rounded up to hundreds."""
    names, facts = made.game.names, made.world.base.facts[:-1]
    count = len(names.constants)
    first, rest = keys.split(key)
    how = LinkPrediction(form=form, negatives=min(NEGATIVES, count))
    run: Any = link_prediction(adam(RATE), count, how)
    if compiled:
        run = program(run, name=f"link prediction {form}")
    each = keys.split(rest, -(-steps // PIECE) * PIECE)
    params: Embedding = state_embedding(names, SIZE, form=form).init(first)
    with torch.no_grad():
        for at in range(0, len(each), PIECE):
            params, _ = run(params, facts, each[at : at + PIECE].clone())
    return params


def plausibilities(made: Proofs, params: Embedding, form: str) -> Table:
    """Return the table of log-softmax plausibilities of all entities, see `plausibility_of_all`.

    >>> from .family import family
    >>> from .proofs import proofs
    >>> made = proofs(family(10), max_depth=5)
    >>> params = state_embedding(made.game.names, 4, form="distmult").init(keys.key(0))
    >>> table = plausibilities(made, params, "distmult")(made.world.queries[:2], 0)
    >>> table.shape, bool(torch.allclose(table[:, 1:].exp().sum(-1), torch.ones(2)))
    (torch.Size([2, 11]), True)
    """
    count = len(made.game.names.constants)

    def table(queries: Tensor, side: int) -> Tensor:
        scores = plausibility_of_all(params, queries, side, count, form)
        return torch.nn.functional.pad(torch.log_softmax(scores, -1), (1, 0))

    return table


def hybrid(by_proofs: Table, by_embedding: Table, weight: float) -> Table:
    """Return the table of weight times the score by proofs, plus that by the embedding.

    >>> both = hybrid(lambda queries, side: torch.ones(1, 2), lambda queries, side: torch.zeros(1, 2), 0.5)
    >>> both(torch.zeros(1, 3, dtype=torch.int64), 0)
    tensor([[0.5000, 0.5000]])
    """
    return lambda queries, side: weight * by_proofs(queries, side) + by_embedding(queries, side)

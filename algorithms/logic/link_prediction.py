"""Knowledge-graph embeddings from facts: training makes facts more plausible than randomly corrupted atoms."""

from collections.abc import Callable, Mapping

import torch
from attrs import frozen
from torch import Tensor

from ...core import keys
from ...core.errors import choose
from ...core.keys import Key
from ...core.logic.corrupt import HEAD, TAIL, replaced
from ...core.logic.embedding import FORMS, Embedding
from ...core.optim.interface import Optimizer
from ...core.optim.optimizers import apply_updates
from ...core.scan import scan


def _distance(joined: Tensor) -> Tensor:
    return -joined.square().sum(-1)


def _product(joined: Tensor) -> Tensor:
    return joined.sum(-1)


def _real_part(joined: Tensor) -> Tensor:
    return joined.chunk(2, -1)[0].sum(-1)


MEASURES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "transe": _distance,
    "distmult": _product,
    "complex": _real_part,
    "rotate": _distance,
}


def plausibility(params: Embedding, atoms: Tensor, form: str = "transe") -> Tensor:
    """Return the plausibility scores of atoms: int64 [*, 3] -> [*], higher is more plausible.

    -|h + r - t|^2 for "transe", -|h exp(i r) - t|^2 for "rotate", sum(h r t) for "distmult" and Re(sum(h r conj(t))) for
    "complex".
    Sources: those of the forms in `core.logic.embedding`. Raises: ChoiceError.

    >>> one = Embedding(predicates=torch.tensor([[0.0], [2.0]]), terms=torch.tensor([[0.0], [1.0], [4.0]]))
    >>> plausibility(one, torch.tensor([1, 1, 2]))  # 1 + 2 - 4
    tensor(-1.)
    """
    join, measure = choose("plausibility: form", form, FORMS), choose("plausibility: form", form, MEASURES)
    predicate, first, second = atoms.unbind(-1)
    return measure(join(params.predicates[predicate], params.terms[first], params.terms[second]))


def plausibility_of_all(params: Embedding, queries: Tensor, side: int, constants: int, form: str = "transe") -> Tensor:
    """Return the plausibility of each query with every constant as argument `side`: int64 [Q, 3] -> [Q, constants].

    A score is s(x) = s(0) + s'(0) x - c |x|^2 for the vector x of a term, with c = 0 for products and 1 for distances (a
    rotation keeps lengths), so that all constants are one matrix product. Raises: ChoiceError.

    >>> one = Embedding(predicates=torch.tensor([[0.0], [2.0]]), terms=torch.tensor([[0.0], [1.0], [4.0]]))
    >>> plausibility_of_all(one, torch.tensor([[1, 1, 1]]), TAIL, constants=2)  # -(1 + 2 - 1)^2, -(1 + 2 - 4)^2
    tensor([[-4., -1.]])
    """
    join, measure = choose("plausibility: form", form, FORMS), choose("plausibility: form", form, MEASURES)
    predicate, fixed = params.predicates[queries[:, 0]], params.terms[queries[:, 2 - side]]

    def score(term: Tensor) -> Tensor:
        return measure(join(predicate, term, fixed) if side == HEAD else join(predicate, fixed, term))

    origin = torch.zeros_like(fixed)
    slope: Tensor = torch.func.grad(lambda term: score(term).sum())(origin)
    every = params.terms[1 : constants + 1]
    linear: Tensor = score(origin)[:, None] + slope @ every.mT
    return linear - every.square().sum(-1) if measure is _distance else linear


@frozen
class LinkPrediction:
    """Settings of link-prediction training."""

    form: str = "transe"
    batch: int = 256  # facts of a step
    negatives: int = 64  # for each of them


def link_prediction_loss(params: Embedding, facts: Tensor, negatives: Tensor, form: str = "transe") -> Tensor:
    """Return -log softmax of a fact's plausibility against its negatives: int64 [B, 3], [B, N, 3] -> [B].

    Source: Ruffinelli et al. 2020, "You CAN teach an old dog new tricks!" (cross-entropy over sampled negatives).

    >>> one = Embedding(predicates=torch.zeros(2, 1), terms=torch.zeros(3, 1))
    >>> link_prediction_loss(one, torch.tensor([[1, 1, 2]]), torch.tensor([[[1, 1, 1]]]))
    tensor([0.6931])
    """
    every = torch.cat([facts[..., None, :], negatives], -2)
    return -torch.log_softmax(plausibility(params, every, form), -1)[..., 0]


def link_prediction(
    optimizer: Optimizer, constants: int, how: LinkPrediction
) -> Callable[[Embedding, Tensor, Key], tuple[Embedding, Tensor]]:
    """Return a function (params, facts [F, 3], keys [n, 2]) -> (params, losses [n]) that makes n steps.

    A step draws facts at random, and for each of them negatives in which its first or its second argument, with equal
    probability, is replaced by a random constant of 1..`constants`.

    >>> from ...core.optim.optimizers import sgd
    >>> run = link_prediction(sgd(0.1), 2, LinkPrediction(batch=4, negatives=2))
    >>> one = Embedding(predicates=torch.zeros(2, 1), terms=torch.zeros(3, 1))
    >>> run(one, torch.tensor([[1, 1, 2]]), keys.split(keys.key(0), 3))[1].shape
    torch.Size([3])
    """

    def loss(params: Embedding, facts: Tensor, negatives: Tensor) -> Tensor:
        return link_prediction_loss(params, facts, negatives, how.form).mean()

    gradient = torch.func.grad_and_value(loss)

    def run(params: Embedding, facts: Tensor, each: Key) -> tuple[Embedding, Tensor]:
        def step(carry: tuple[Embedding, object], key: Key) -> tuple[tuple[Embedding, object], Tensor]:
            params, state = carry
            fact_key, negative_key, side_key = keys.split(key, 3)
            rows = facts[keys.randint(fact_key, (how.batch,), 0, facts.shape[0])]
            drawn = keys.randint(negative_key, (how.batch, how.negatives), 1, constants + 1)
            side = keys.randint(side_key, (how.batch, 1), HEAD, TAIL + 1).expand(drawn.shape)
            negatives = replaced(rows[:, None].expand(*drawn.shape, 3), side, drawn)
            gradients, value = gradient(params, rows, negatives)
            updates, after = optimizer.update(gradients, state, params)
            return (apply_updates(params, updates), after), value

        (params, _), losses = scan(step, (params, optimizer.init(params)), each)
        return params, losses

    return run

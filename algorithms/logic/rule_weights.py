"""Weights of rules learned from queries: a softmax over the candidates of each query, through the noisy-or of their proofs."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from ...core.logic.evidence import doubt
from ...core.optim.optimizers import adam, apply_updates

RATE = 0.05  # of Adam
LEAST = 1e-12  # of a sum that is 0 without any negative


@frozen
class WeighedProofs:
    """Proofs of the candidates of F facts, each asked for by one of its arguments.

    A candidate is a true answer, number f for fact f, or one of the negatives of an open query, which several facts share.
    """

    rules: Tensor  # int64 [N, D]: the rules of each proof, R for none
    candidate: Tensor  # int64 [N]: the proof's candidate, 0 .. F + C - 1
    negative_of: Tensor  # int64 [C]: the open query of each negative
    query_of: Tensor  # int64 [F]: the open query of each fact
    unproven: Tensor  # float64 [F]: number of negatives without a proof


def proof_scores(weights: Tensor, proofs: WeighedProofs) -> Tensor:
    """Return the score of each candidate, -log prod (1 - w), w the product of a proof's weights: float64 [R] -> [F + C].

    >>> one = WeighedProofs(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0]), torch.zeros(0, dtype=torch.int64),
    ...                     torch.tensor([0]), torch.zeros(1, dtype=torch.float64))
    >>> 1 - torch.exp(-proof_scores(torch.tensor([0.5, 0.5], dtype=torch.float64), one))  # 1 - 3/4 1/2
    tensor([0.6250], dtype=torch.float64)
    """
    log_weights = F.pad(torch.log(weights), (0, 1))
    log_weight = log_weights[proofs.rules].sum(-1)
    count = proofs.query_of.shape[0] + proofs.negative_of.shape[0]
    return log_weight.new_zeros(count).index_add(0, proofs.candidate, doubt(log_weight))


def rule_weight_loss(weights: Tensor, proofs: WeighedProofs) -> Tensor:
    """Return -log softmax of each true answer's score among its negatives: float64 [R] -> [F].

    Convex in -log(1 - w) if each proof applies one rule: scores are then linear in them.
    Source: Qu et al. 2021, arXiv:2010.04029, section 3.2 (a softmax over the scores of candidates, sums over their proofs).

    >>> one = WeighedProofs(torch.tensor([[0], [1]]), torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0]),
    ...                     torch.ones(1, dtype=torch.float64))  # of three candidates one has no proof
    >>> torch.exp(rule_weight_loss(torch.tensor([0.5, 0.5], dtype=torch.float64), one))  # (2 + 2 + 1) / 2
    tensor([2.5000], dtype=torch.float64)
    """
    facts = proofs.query_of.shape[0]
    score = proof_scores(weights, proofs)
    queries = int(proofs.query_of.max()) + 1 if facts else 0
    others = score.new_zeros(queries).index_add(0, proofs.negative_of, torch.exp(score[facts:]))[proofs.query_of]
    return torch.logaddexp(score[:facts], torch.log((others + proofs.unproven).clamp_min(LEAST))) - score[:facts]


def learn_rule_weights(steps: int, *, decay: float = 0.0) -> Callable[[Tensor, WeighedProofs], tuple[Tensor, Tensor]]:
    """Return a function (weights [R], proofs) -> (weights [R], losses [steps]) of so many steps of Adam on all proofs at once.

    The mean of the losses is minimised, plus `decay` times the sum of -log(1 - w). Weights stay in (0, 1); those of 0 stay 0.

    >>> one = WeighedProofs(torch.tensor([[0], [1]]), torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0]),
    ...                     torch.ones(1, dtype=torch.float64))  # rule 0 proves the true answer, rule 1 a wrong one
    >>> before = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> after, losses = learn_rule_weights(20)(before, one)
    >>> bool(after[0] > 0.5 > after[1]), bool(losses[-1] < losses[0])
    (True, True)
    """
    optimizer = adam(RATE)

    def loss(raw: Tensor, proofs: WeighedProofs) -> Tensor:
        weights = -torch.expm1(-F.softplus(raw))
        return rule_weight_loss(weights, proofs).mean() + decay * F.softplus(raw).sum()

    gradient = torch.func.grad_and_value(loss)

    def run(weights: Tensor, proofs: WeighedProofs) -> tuple[Tensor, Tensor]:
        raw = torch.log(torch.expm1(-torch.log1p(-weights.clamp(1e-4, 0.999))))
        state, losses = optimizer.init(raw), []
        for _ in range(steps):
            gradients, value = gradient(raw, proofs)
            updates, state = optimizer.update(gradients, state, raw)
            raw = apply_updates(raw, updates)
            losses.append(value)
        learned = -torch.expm1(-F.softplus(raw))
        return torch.where(weights > 0, learned, 0.0), torch.stack(losses) if losses else raw.new_zeros(0)

    return run

"""Supervised fine-tuning of a language model on the tokens of transcripts, used as demonstrations."""

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from ..core.causal import CausalModel
from ..core.language.types import Transcript
from ..core.optim.interface import Optimizer, device_of
from ..core.optim.optimizers import apply_updates, global_norm
from ..core.transcript.log_probs import loss_mask, token_log_probs
from ..core.tree import all_finite
from .aggregate import Denominator, token_mean
from .algorithm import Metrics, TrainState


def cross_entropy(
    model: CausalModel, params: Any, token: Tensor, mask: Tensor, *, denominator: Denominator = ()
) -> Tensor:
    """Return the cross-entropy of the tokens in the mask, each given all previous ones.

    L = - sum_i sum_t m_it log p(token_it | token_i0 .. token_i,t-1) / denominator, by default the number of these tokens

    The first token of a row is not predicted. Losses of parts of a batch add up if each is divided by the whole's count.
    Shapes: token int [N, L], mask bool [N, L] -> []. Raises: ShapeError, DtypeError, ChoiceError.

    >>> from ..core.bigram import bigram
    >>> token, mask = torch.tensor([[0, 1, 1]]), torch.tensor([[False, True, True]])
    >>> cross_entropy(bigram(2), torch.zeros(2, 2), token, mask)
    tensor(0.6931)
    """
    hidden = model.apply(params, token, (), ())
    log_probs = token_log_probs(model.head(params, hidden), token)
    return token_mean(-log_probs, mask, denominator=denominator)


@frozen
class Supervised:
    """A learner of transcripts: `init(params) -> state`, `update(state, transcripts [N]) -> (state, metrics)`."""

    init: Callable[[Any], TrainState]
    update: Callable[[TrainState, Transcript], tuple[TrainState, Metrics]]
    metrics: tuple[str, ...] = ("loss", "gradient_norm", "finite")


def supervised(model: CausalModel, optimizer: Optimizer) -> Supervised:
    """Return a learner that makes one optimiser step for each batch, on `cross_entropy` over the sampled tokens.

    >>> from ..core.bigram import bigram
    >>> from ..core.optim.optimizers import sgd
    >>> learner = supervised(bigram(2), sgd(1.0))
    >>> int(learner.init(torch.zeros(2, 2)).step)
    0
    """

    def init(params: Any) -> TrainState:
        step = torch.zeros((), dtype=torch.int64, device=device_of(params))
        return TrainState(params=params, optimizer=optimizer.init(params), step=step)

    def update(state: TrainState, batch: Transcript) -> tuple[TrainState, Metrics]:
        mask = loss_mask(batch)

        def loss_of(params: Any) -> Tensor:
            return cross_entropy(model, params, batch.token, mask)

        gradients, loss = torch.func.grad_and_value(loss_of)(state.params)
        updates, inner = optimizer.update(gradients, state.optimizer, state.params)
        params = apply_updates(state.params, updates)
        finite = all_finite((params, loss))
        metrics = {"loss": loss, "gradient_norm": global_norm(gradients), "finite": finite.to(loss.dtype)}
        return TrainState(params=params, optimizer=inner, step=state.step + 1), metrics

    return Supervised(init, update)

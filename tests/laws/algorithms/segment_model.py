"""A tiny language model whose log-probs depend only on earlier tokens of the same sequence, and its gradients."""

from collections.abc import Callable, Mapping, Sequence

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.aggregate import (
    constant_length,
    divided,
    sequence_count,
    sequence_mean,
    sequence_sum_mean,
    token_count,
    token_mean,
    token_sum,
)
from purestep.algorithms.language.packing import segment_mask
from purestep.core.transcript.log_probs import token_log_probs
from purestep.core.transcript.record import ABSENT
from purestep.properties.strategies.values import dyadic, flags, integers

VOCABULARY, FEATURES, LONGEST = 4, 3, 6
Params = tuple[Tensor, Tensor]  # of tokens [V, D], of positions [L, D]
Slopes = dict[str, tuple[Tensor, ...]]  # by reduction: the value and its gradient


@attrs.frozen
class Sentences:
    """N sequences in columns [N, L], the mask of tokens that count, and their advantages."""

    lengths: tuple[int, ...]
    token: Tensor
    mask: Tensor
    advantage: Tensor


@st.composite
def sentences(draw: DrawFn) -> Sentences:
    """Up to five sequences of up to LONGEST tokens, a few of them empty; the first token of one is never sampled."""
    lengths = tuple(draw(st.lists(st.integers(0, LONGEST), min_size=1, max_size=5)))
    shape = (len(lengths), LONGEST)
    place = torch.arange(LONGEST)
    mask = (place > 0) & (place < torch.tensor(lengths)[:, None]) & ~draw(flags(shape))
    token = draw(integers(shape, 0, VOCABULARY))
    return Sentences(lengths, token, mask, draw(dyadic(shape, dtype=torch.float64)))


def parameters() -> Params:
    """Return parameters that are all different."""
    size = (VOCABULARY + LONGEST) * FEATURES
    both = torch.linspace(0.0, 20.0, size, dtype=torch.float64).sin().reshape(-1, FEATURES)
    return both[:VOCABULARY].clone().requires_grad_(), both[VOCABULARY:].clone().requires_grad_()


def logits(params: Params, token: Tensor, position: Tensor, allowed: Tensor) -> Tensor:
    """One layer of attention: int [*, K], int [*, K], bool [*, K, K] -> float64 [*, K, V]."""
    words, places = params
    told = words[token] + places[position.clamp_max(LONGEST - 1)]
    scores = (told @ told.mT).masked_fill(~allowed, -torch.inf)
    result: Tensor = (scores.softmax(-1) @ told) @ words.mT
    return result


def padded_log_probs(params: Params, token: Tensor, lengths: Sequence[int]) -> Tensor:
    """The log-prob of each token of sequences that have a row each: int [N, L] -> [N, L]."""
    place = torch.arange(token.shape[1])
    rows = torch.arange(len(lengths))[:, None]
    segment = torch.where(place < torch.tensor(lengths)[:, None], rows, ABSENT)
    found = logits(params, token, place.expand(token.shape), segment_mask(segment))
    return token_log_probs(found, token)


def _count_slots(mask: Tensor) -> float:
    return float(mask.shape[0] * LONGEST)


def _of_slots(loss: Tensor, mask: Tensor, denominator: Tensor | float) -> Tensor:
    return constant_length(loss, mask, length=LONGEST, denominator=denominator)


def _over(loss: Tensor, mask: Tensor, denominator: Tensor | float) -> Tensor:
    return divided(token_sum(loss, mask), denominator)


def _token_mean(loss: Tensor, mask: Tensor, denominator: Tensor | float) -> Tensor:
    return token_mean(loss, mask, denominator=denominator)


def _sequence_mean(loss: Tensor, mask: Tensor, denominator: Tensor | float) -> Tensor:
    return sequence_mean(loss, mask, denominator=denominator)


def _sequence_sum_mean(loss: Tensor, mask: Tensor, denominator: Tensor | float) -> Tensor:
    return sequence_sum_mean(loss, mask, denominator=denominator)


Reduce = Callable[[Tensor, Tensor, Tensor | float], Tensor]
Count = Callable[[Tensor], Tensor | float]
REDUCTIONS: Mapping[str, tuple[Reduce, Count]] = {
    "token_sum": (_over, lambda mask: 1.0),
    "token_mean": (_token_mean, token_count),
    "sequence_mean": (_sequence_mean, sequence_count),
    "sequence_sum_mean": (_sequence_sum_mean, sequence_count),
    "constant_length": (_of_slots, _count_slots),
}


def slopes(params: Params, log_prob: Tensor, advantage: Tensor, mask: Tensor, whole: Tensor) -> Slopes:
    """The loss -A log_prob and its gradient under each reduction, divided by the count of the `whole` batch's mask."""
    found = {}
    for name, (reduce, count) in REDUCTIONS.items():
        value = reduce(-advantage * log_prob, mask, count(whole))
        found[name] = (value.detach(), *torch.autograd.grad(value, params, retain_graph=True))
    return found


def at_once(drawn: Sentences) -> Slopes:
    """The losses and gradients of all sequences in one batch, a row each."""
    params = parameters()
    log_prob = padded_log_probs(params, drawn.token, drawn.lengths)
    return slopes(params, log_prob, drawn.advantage, drawn.mask, drawn.mask)


def in_parts(drawn: Sentences, batches: Sequence[Sequence[int]]) -> Slopes:
    """The sums over micro-batches, each padded to its own longest sequence."""
    params = parameters()
    total = {name: (torch.zeros((), dtype=torch.float64), *map(torch.zeros_like, params)) for name in REDUCTIONS}
    for batch in filter(len, batches):
        lengths = [drawn.lengths[place] for place in batch]
        token, mask, advantage = (
            column[list(batch), : max(1, *lengths)] for column in (drawn.token, drawn.mask, drawn.advantage)
        )
        log_prob = padded_log_probs(params, token, lengths)
        part = slopes(params, log_prob, advantage, mask, drawn.mask)
        total = {name: tuple(a + b for a, b in zip(total[name], part[name], strict=True)) for name in total}
    return total

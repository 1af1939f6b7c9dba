"""The bigram model: the next token depends on the last one only. The smallest causal model, with exact logits."""

import torch
import torch.nn.functional as F
from torch import Tensor

from . import keys
from .causal import Cache, CausalModel
from .errors import ChoiceError, message
from .keys import Key


def bigram(vocabulary: int, *, window: int = 1 << 20) -> CausalModel:
    """Return a model whose params are a table [V, V]: row a holds the logits of the token after token a.

    Its hidden states are one-hot tokens, so logits are rows of the table, bit for bit. `init` draws a normal table.
    Raises: ChoiceError.

    >>> model = bigram(2)
    >>> table = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    >>> model.head(table, model.apply(table, torch.tensor([[1, 0]]), (), ()))
    tensor([[[2., 3.],
             [0., 1.]]])
    """
    if vocabulary < 1:
        raise ChoiceError(message("bigram: vocabulary", got=vocabulary, wanted="at least 1", remedy="count the tokens"))

    def init(key: Key) -> Tensor:
        return keys.normal(key, (vocabulary, vocabulary))

    def apply(table: Tensor, tokens: Tensor, position: Tensor | tuple[()], mask: Tensor | tuple[()]) -> Tensor:
        del position, mask
        return F.one_hot(tokens, vocabulary).to(table.dtype)

    def begin(table: Tensor, rows: int, capacity: int) -> Cache:
        return (torch.zeros(rows, capacity, dtype=torch.int64, device=table.device),)

    def extend(table: Tensor, cache: Cache, tokens: Tensor, position: Tensor) -> tuple[Tensor, Cache]:
        place = position[:, None] + torch.arange(tokens.shape[1], device=position.device)
        return apply(table, tokens, (), ()), (cache[0].scatter(1, place, tokens),)

    return CausalModel(
        init=init,
        apply=apply,
        head=lambda table, hidden: hidden @ table,
        begin=begin,
        extend=extend,
        vocabulary=vocabulary,
        width=vocabulary,
        window=window,
    )

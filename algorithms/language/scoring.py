"""Scoring of existing tokens with a model: log-probs, entropies, and the values of a head on its hidden states.

The model reads whole sequences, padded or packed, and computes logits only at the requested `places`: usually a minority of a
conversation's tokens was sampled, and logits take most of the memory.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.causal import CausalModel
from ...core.errors import ShapeError, message
from ...core.networks import Linear
from ...core.record import record, tensor
from ...core.shapes import same_shape
from ...core.transcript.log_probs import support
from .packing import Packing, SequenceLayout, pack, segment_mask, unpack


@record
class LearnerParams:
    """The trained parameters."""

    policy: Any  # of the CausalModel
    critic: Any = ()  # a Linear from its hidden states, or ()


@record
class Scores:
    """The model's scores, 0 where none were requested; column t is for token t, given the tokens before it."""

    log_prob: Tensor = tensor("* L", "float")
    entropy: Tensor = tensor("* L", "float")  # of the distribution of token t
    outside: Any = ()  # [* L] 1 where the nucleus leaves token t out; () without one
    values: Any = ()  # [* L] value of the prefix before token t; () without a critic
    beyond: Any = ()  # [*] value after the last token


def value_head(model: CausalModel, like: Tensor) -> Linear:
    """Return a value head [H] -> [1] that outputs 0 everywhere, in the dtype and on the device of `like`.

    Its own gradient is not 0, so it learns from the first step; until then the gradient into the model is 0.

    >>> from ...core.causal import CausalModel
    >>> def none(*arguments):
    ...     return torch.zeros(0)
    >>> model = CausalModel(init=none, apply=none, head=none, begin=none, extend=none, vocabulary=2, width=3, window=4)
    >>> value_head(model, torch.zeros(1)).weight.shape
    torch.Size([3, 1])
    """
    return Linear(weight=like.new_zeros(model.width, 1), bias=like.new_zeros(1))


def score_tokens(
    model: CausalModel,
    params: LearnerParams,
    token: Tensor,
    length: Tensor,
    temperature: Tensor,
    *,
    top_p: Tensor | tuple[()] = (),
    layout: SequenceLayout | tuple[()] = (),
) -> Scores:
    """Return log-probs, entropies and values of tokens under a model.

    log p_t = log softmax(logits_t-1 / temperature_t over S_t)[token_t],    H_t = -sum over v in S_t of p_v log p_v

    The same numbers as `token_log_probs`, computed at `layout.places` only. In float32 or better. S_t are all tokens; with
    top_p the nucleus of this model and token t, see `support`, so that a token that the nucleus leaves out has a log-prob too.
    Shapes: token int [N, L], length int [N], temperature [N, L], top_p [N, L] or () -> Scores [N]. Raises: ShapeError.

    >>> from ...core.causal import CausalModel
    >>> counts = CausalModel(init=lambda key: (), apply=lambda params, token, position, mask: F.one_hot(token, 2).float(),
    ...                      head=lambda params, hidden: hidden.log(), begin=lambda *a: (), extend=lambda *a: (),
    ...                      vocabulary=2, width=2, window=8)
    >>> token = torch.tensor([[1, 1, 0]])
    >>> score_tokens(counts, LearnerParams(policy=()), token, torch.tensor([3]), torch.ones(1, 3)).log_prob
    tensor([[0., 0., -inf]])
    """
    same_shape("scored", token=token, temperature=temperature)
    if token.ndim != 2 or length.shape != token.shape[:1]:
        got, wanted = (list(token.shape), list(length.shape)), "[N, L] and [N]"
        raise ShapeError(
            message("scored: token and length", got=got, wanted=wanted, remedy="give sequences a row each")
        )
    layout = SequenceLayout() if isinstance(layout, tuple) else layout
    hidden = _hidden(model, params.policy, token, layout.packing)
    log_prob, entropy, outside = _scores(model, params.policy, hidden, token, (temperature, top_p), layout)
    if not isinstance(params.critic, Linear):
        return Scores(log_prob=log_prob, entropy=entropy, outside=outside)
    after = (hidden @ params.critic.weight)[..., 0] + params.critic.bias
    after = unpack(layout.packing, after) if isinstance(layout.packing, Packing) else after
    beyond = after.gather(-1, (length - 1).clamp(min=0)[:, None])[:, 0]
    values = F.pad(after, (1, 0))[:, :-1]
    return Scores(log_prob=log_prob, entropy=entropy, outside=outside, values=values, beyond=beyond)


def _hidden(model: CausalModel, policy: Any, token: Tensor, packing: Any) -> Tensor:
    """Return the hidden states [N, L, H], or [R, K, H] of rows if sequences are packed."""
    if not isinstance(packing, Packing):
        return model.apply(policy, token, (), ())
    return model.apply(policy, pack(packing, token), packing.position, segment_mask(packing.segment))


def _scores(
    model: CausalModel,
    policy: Any,
    hidden: Tensor,
    token: Tensor,
    sampling: tuple[Tensor, Tensor | tuple[()]],
    layout: SequenceLayout,
) -> tuple[Tensor, Tensor, Tensor | tuple[()]]:
    width = token.shape[1]
    temperature, top_p = sampling
    everywhere = isinstance(layout.places, tuple)
    places = torch.arange(token.numel(), device=token.device) if everywhere else layout.places
    first = places % width == 0  # the first token has no prefix
    before = torch.where(first, places, places - 1)
    if isinstance(layout.packing, Packing):
        before = layout.packing.target.flatten()[before].clamp(min=0)
    logits = model.head(policy, hidden.flatten(0, 1).index_select(0, before))
    heat, asked = temperature.flatten()[places], token.flatten()[places]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / heat[:, None]
    outside: Tensor | tuple[()] = ()
    if isinstance(top_p, Tensor):
        logits, left_out = support(logits, asked, top_p.flatten()[places])
        outside = _back(left_out.to(logits.dtype), places, first, token)
    told = torch.log_softmax(logits, -1)
    found = told.gather(-1, asked[:, None])[:, 0]
    # A logit of -inf contributes 0 to the entropy, and must leave no NaN in its gradient.
    entropy = -(told.exp() * told.clamp(min=torch.finfo(told.dtype).min)).sum(-1)
    return _back(found, places, first, token), _back(entropy, places, first, token), outside


def _back(found: Tensor, places: Tensor, first: Tensor, token: Tensor) -> Tensor:
    """Return a tensor [N, L] with the numbers [P] at their places, and 0 elsewhere."""
    blank = found.new_zeros(token.numel())
    return blank.scatter(0, places, torch.where(first, 0.0, found)).reshape(token.shape)

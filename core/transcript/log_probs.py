"""Loss mask and log-probs of tokens in transcripts; `token_log_probs` is the only place that shifts logits to tokens.

A log-prob is one of the tokens that could be sampled: all of them, or the nucleus.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import ChoiceError, DtypeError, ShapeError, message
from ..language.types import Transcript
from ..record import replace
from ..shapes import boolean, same_shape
from .record import FAILED


def loss_mask(transcript: Transcript) -> Tensor:
    """Return the mask of tokens to train on: bool [*, L], those that were sampled in this transcript itself.

    Inherited tokens of a fork are in the mask of the transcript that sampled them, so that over a transcript and all its forks
    each token is trained on once. The mask of a FAILED episode is empty.

    >>> from .record import empty
    >>> said = replace(empty(3, 1, id=0), is_action=torch.tensor([True, False, True]))
    >>> loss_mask(said), loss_mask(replace(said, inherited=torch.tensor(1)))
    (tensor([ True, False,  True]), tensor([False, False,  True]))
    """
    place = torch.arange(transcript.token.shape[-1], device=transcript.token.device)
    counts = transcript.is_action & (place >= transcript.inherited[..., None])
    return counts & (transcript.reason != FAILED)[..., None]


def with_proximal(transcript: Transcript, log_probs: Tensor, mask: Tensor | None = None) -> Transcript:
    """Return the transcript with these proximal log-probs [*, L] on sampled tokens, or on those of them in `mask` [*, L].

    With `mask = transcript.version == version - 1` only one segment is updated (arXiv:2505.24298, section 5).
    Raises: ShapeError, DtypeError.

    >>> from .record import empty
    >>> said = replace(empty(2, 1, id=0), is_action=torch.tensor([False, True]))
    >>> with_proximal(said, torch.tensor([-1.0, -2.0])).proximal_log_prob
    tensor([ 0., -2.])
    """
    chosen = transcript.is_action
    if mask is not None:
        boolean("with_proximal", mask=mask)
        same_shape("with_proximal", token=transcript.token, mask=mask)
        chosen = chosen & mask
    same_shape("with_proximal", token=transcript.token, log_probs=log_probs)
    old = transcript.proximal_log_prob
    return replace(transcript, proximal_log_prob=torch.where(chosen, log_probs.to(old.dtype), old))


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Return the logits of the smallest set of most probable tokens with probability >= top_p, -inf for all others: [*, V].

    Of equal tokens those with lower ids come first; the most probable one is always kept.
    Source: Holtzman et al. 2020, arXiv:1904.09751.

    >>> nucleus(torch.log(torch.tensor([0.1, 0.6, 0.3])), 0.7)
    tensor([   -inf, -0.5108, -1.2040])
    """
    return torch.where(_kept(logits, top_p), logits, -torch.inf)


def support(logits: Tensor, token: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of the nucleus and of `token`, -inf for all others, and whether the nucleus leaves the token out.

    S_t = nucleus(logits_t, top_p_t) united with {token_t};  all tokens where top_p_t >= 1, with the same bits

    For scoring a token that another policy sampled: its own nucleus held the token, this one need not. The set is a constant
    for the gradient. Shapes: [*, V], int [*], [*] -> [*, V], bool [*].

    >>> logits = torch.log(torch.tensor([[0.1, 0.6, 0.3]])).expand(2, 3)
    >>> support(logits, torch.tensor([0, 2]), torch.tensor([0.7, 0.7]))
    (tensor([[-2.3026, -0.5108, -1.2040],
            [   -inf, -0.5108, -1.2040]]), tensor([ True, False]))
    """
    limit = top_p[..., None]
    kept = _kept(logits.detach(), limit) | (limit >= 1.0)
    own = torch.arange(logits.shape[-1], device=logits.device) == token[..., None]
    return torch.where(kept | own, logits, -torch.inf), ~kept.gather(-1, token[..., None])[..., 0]


def _kept(logits: Tensor, top_p: Tensor | float) -> Tensor:
    """Return whether each token is in the nucleus: bool [*, V]."""
    order = torch.sort(logits, dim=-1, descending=True, stable=True)
    probability = torch.softmax(order.values, -1)
    before = probability.cumsum(-1) - probability
    first = torch.arange(logits.shape[-1], device=logits.device) == 0
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order.indices, first | (before < top_p))


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: Tensor | float = 1.0, top_p: Tensor | float = 1.0
) -> Tensor:
    """Return the log-prob of each token, given those before it.

    out_t = log softmax(logits_t-1 / temperature_t over S_t)[token_t],   out_0 = 0
    S_t   = all tokens, or with top_p_t < 1 their nucleus and token_t: see `support`

    `logits` are those of a causal model: at t they predict the token at t + 1. Only this function makes the shift: out_t,
    like all columns of a transcript, belongs to token t. A temperature, or a top_p, has the index of the token that was
    sampled with it; see `per_token`. Computed in float32 or better.
    Shapes: logits float [*, L, V], tokens int [*, L], temperature and top_p > 0, a number, [*] or [*, L] -> [*, L].
    Raises: ShapeError, DtypeError, ChoiceError (a number that is not positive).

    >>> logits = torch.tensor([[0.0, 0.0], [9.0, 9.0], [0.0, 99.0]])
    >>> token_log_probs(logits, torch.tensor([1, 0, 1]))
    tensor([ 0.0000, -0.6931, -0.6931])
    """
    if not logits.is_floating_point():
        raise DtypeError(message("token_log_probs: logits", got=logits.dtype, wanted="float", remedy="convert them"))
    if not tokens.ndim or logits.shape[:-1] != tokens.shape:
        got, wanted = list(logits.shape), f"[{', '.join([*map(str, tokens.shape), 'V'])}]"
        raise ShapeError(message("token_log_probs: logits", got=got, wanted=wanted, remedy="pass them at all tokens"))
    before = logits[..., :-1, :].to(torch.promote_types(logits.dtype, torch.float32))
    scored = before / _for_logits("temperature", tokens, temperature)
    limit = _for_logits("top_p", tokens, top_p)
    if isinstance(limit, Tensor) or limit < 1.0:
        limits = torch.as_tensor(limit, device=scored.device).expand(*scored.shape[:-1], 1)[..., 0]
        scored, _ = support(scored, tokens[..., 1:], limits)
    log_probs = torch.log_softmax(scored, -1)
    return F.pad(log_probs.gather(-1, tokens[..., 1:, None])[..., 0], (1, 0))


def _for_logits(name: str, tokens: Tensor, value: Tensor | float) -> Tensor | float:
    """Return a number of tokens in a shape that fits the logits [*, L-1, V]."""
    where, remedy = f"token_log_probs: {name}", f"score greedy tokens at the {name} to learn with"
    if not isinstance(value, Tensor):
        if not value > 0:
            raise ChoiceError(message(where, got=value, wanted="more than 0", remedy=remedy))
        return value
    if value.ndim and value.shape not in (tokens.shape, tokens.shape[:-1]):
        wanted = f"{list(tokens.shape)} or {list(tokens.shape[:-1])}"
        raise ShapeError(message(where, got=list(value.shape), wanted=wanted, remedy="use per_token"))
    if value.shape == tokens.shape:
        return value[..., 1:, None]
    return value[..., None, None]

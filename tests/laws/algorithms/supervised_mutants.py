"""Cross-entropies of transcripts as people get them wrong."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Entropy = Callable[..., Tensor]  # (model, params, token, mask, *, denominator) -> []


def _given(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[Entropy], Entropy]:
    """An edit of the tokens and the mask."""

    def make(subject: Entropy) -> Entropy:
        return lambda model, params, token, mask, **given: subject(model, params, *change(token, mask), **given)

    return make


unshifted = _given(lambda token, mask: (token, mask.roll(1, -1)))
counts_context = _given(lambda token, mask: (token, torch.ones_like(mask)))


def own_count(subject: Entropy) -> Entropy:
    """Divides each part by what counts in it."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        return subject(model, params, token, mask)

    return entropy


def by_row(subject: Entropy) -> Entropy:
    """Takes the mean of the rows' means."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        rows = zip(token[:, None], mask[:, None], strict=True)
        means = [subject(model, params, *row) for row in rows]
        return torch.stack(means).mean() if not given else subject(model, params, token, mask, **given)

    return entropy


def unnormalized(subject: Entropy) -> Entropy:
    """Takes logits for log-probs."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        logits = model.head(params, model.apply(params, token, (), ()))
        chosen = torch.nn.functional.pad(logits[:, :-1].gather(-1, token[:, 1:, None])[..., 0], (1, 0))
        count = given.get("denominator", mask.sum().clamp(min=1))
        total: Tensor = -torch.where(mask, chosen, 0.0).sum() / count
        return total

    return entropy


def sees_beyond(subject: Entropy) -> Entropy:
    """Adds a little of what stands behind the last token that counts."""

    def entropy(model: Any, params: Any, token: Tensor, mask: Tensor, **given: Any) -> Tensor:
        behind = mask.flip(-1).cumsum(-1).flip(-1) == 0
        return subject(model, params, token, mask, **given) + 0.25 * (token * behind).sum()

    return entropy


MUTANTS: dict[str, Callable[[Entropy], Entropy]] = {"takes the mean of rows": by_row}

"""Parts of learning on several ranks as people get them wrong: deals, and what puts together; each an edit of what is right."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from purestep.algorithms.token_batch import TokenBatch
from purestep.core.record import replace
from purestep.runtime.language_layout import Part
from purestep.runtime.ranks.dealing import Deal


@attrs.frozen
class Dealing:
    """What the laws of deals judge."""

    by_tokens: Callable[..., Deal]
    by_parts: Callable[..., Deal]
    placed: Callable[[Sequence[int], Sequence[Sequence[Sequence[int]]]], tuple[tuple[Part, ...], ...]]
    piece: Callable[[TokenBatch, Part], tuple[TokenBatch, Any]]


def _deals(
    change: Callable[[tuple[tuple[Part, ...], ...]], tuple[tuple[Part, ...], ...]],
) -> Callable[[Dealing], Dealing]:
    def edit(subject: Dealing) -> Dealing:
        def by_tokens(*given: Any, **named: Any) -> Deal:
            deal = subject.by_tokens(*given, **named)
            return lambda lengths: change(deal(lengths))

        return attrs.evolve(subject, by_tokens=by_tokens)

    return edit


drops_the_last_round = _deals(lambda dealt: tuple(own[:-1] for own in dealt))
leaves_idle_ranks_out = _deals(lambda dealt: tuple(tuple(part for part in own if part.rows) for own in dealt))
same_for_all = _deals(lambda dealt: (dealt[0],) * len(dealt))


def forgets_padding(subject: Dealing) -> Dealing:
    """Fills parts up to twice their budget."""

    def by_tokens(budget: int, **named: Any) -> Deal:
        return subject.by_tokens(2 * budget, **named)

    return attrs.evolve(subject, by_tokens=by_tokens)


def parts_for_ranks(subject: Dealing) -> Dealing:
    """Makes parts that are as many as the ranks, whatever one process would make."""

    def by_parts(budget: int, *, ranks: int) -> Deal:
        return subject.by_tokens(budget, ranks=ranks)

    return attrs.evolve(subject, by_parts=by_parts)


def takes_any_places(subject: Dealing) -> Dealing:
    """Does not look whether every sequence comes once."""

    def placed(lengths: Sequence[int], places: Any) -> Any:
        try:
            return subject.placed(lengths, places)
        except ValueError:
            return ((),) * len(places)

    return attrs.evolve(subject, placed=placed)


def idle_ranks_count(subject: Dealing) -> Dealing:
    """Lets the token of a part without sequences count."""

    def piece(batch: TokenBatch, part: Part) -> tuple[TokenBatch, Any]:
        some, layout = subject.piece(batch, part)
        return (some if part.rows else replace(some, mask=torch.ones_like(some.mask))), layout

    return attrs.evolve(subject, piece=piece)


DEALS: dict[str, Callable[[Dealing], Dealing]] = {"gives every rank everything": same_for_all}

"""Parts of learning on several ranks as people get them wrong: deals, and what puts together; each an edit of what is right."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.algorithms.token_batch import TokenBatch
from purestep.core.optim import Optimizer, clip_by_global_norm
from purestep.core.record import replace
from purestep.core.tree import tree_map
from purestep.runtime.language_layout import Part
from purestep.runtime.ranks.dealing import Deal


@attrs.frozen
class Dealing:
    """What the laws of deals judge."""

    by_tokens: Callable[..., Deal]
    by_parts: Callable[..., Deal]
    placed: Callable[[Sequence[int], Sequence[Sequence[Sequence[int]]]], tuple[tuple[Part, ...], ...]]
    piece: Callable[[TokenBatch, Part], tuple[TokenBatch, Any]]


@attrs.frozen
class Putting:
    """What the laws of putting together judge."""

    united: Callable[[Sequence[Any]], Any]
    as_row: Callable[[Any], Tensor]
    from_row: Callable[[Tensor], Any]
    in_order: Callable[..., Any]
    share_of: Callable[..., tuple[int, int]]
    fingerprint: Callable[[Any], Tensor]
    clip: Callable[[float], Optimizer]


# --- deals ---


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


# --- putting together ---


def adds_differences(subject: Putting) -> Putting:
    """Adds the largest differences of ranks up."""

    def united(found: Sequence[Any]) -> Any:
        return replace(subject.united(found), difference=torch.stack([one.difference for one in found]).sum())

    return attrs.evolve(subject, united=united)


def rest_to_the_last(subject: Putting) -> Putting:
    """Rounds down what each keeps and gives the last one the rest."""

    def share_of(size: int, *, ranks: int, rank: int) -> tuple[int, int]:
        each = size // ranks
        return rank * each, size if rank == ranks - 1 else (rank + 1) * each

    return attrs.evolve(subject, share_of=share_of)


def adds_bits(subject: Putting) -> Putting:
    """Forgets where a number stands."""

    def fingerprint(tree: Any) -> Tensor:
        return subject.fingerprint(tree_map(lambda leaf: leaf.reshape(-1).sort().values, tree))

    return attrs.evolve(subject, fingerprint=fingerprint)


def fills_from_the_front(subject: Putting) -> Putting:
    """Puts what was read into the first rows, whichever it was read of."""

    def in_order(found: Sequence[Any], parts: Sequence[Part], number: int, width: int) -> Any:
        place, moved = 0, []
        for part in parts:
            moved.append(attrs.evolve(part, rows=tuple(range(place, place + len(part.rows)))))
            place += len(part.rows)
        return subject.in_order(found, moved, number, width)

    return attrs.evolve(subject, in_order=in_order)


def swaps_two(subject: Putting) -> Putting:
    """Reads the first two numbers of a row in the wrong order."""

    def from_row(row: Tensor) -> Any:
        return subject.from_row(torch.cat([row[:2].flip(0), row[2:]]))

    return attrs.evolve(subject, from_row=from_row)


def in_the_dtype_of_leaves(subject: Putting) -> Putting:
    """Adds squares in the dtype of the gradient."""
    return attrs.evolve(subject, clip=clip_by_global_norm)

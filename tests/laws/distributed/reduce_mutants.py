"""What puts together as people get it wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.core.optim import Optimizer, clip_by_global_norm
from purestep.core.record import replace
from purestep.core.tree import tree_map
from purestep.runtime.language_layout import Part


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

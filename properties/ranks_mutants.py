"""Learning on several ranks as people get it wrong: each an edit of what is right."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import attrs
import torch
from torch import Tensor

from ..algorithms.language import LanguageAlgorithm
from ..algorithms.token_batch import TokenBatch
from ..algorithms.token_policy import LearnerParams
from ..core.optim import Optimizer, clip_by_global_norm, global_norm
from ..core.record import replace, take
from ..core.tree import tree_map
from ..runtime.language_layout import Part
from ..runtime.ranks.dealing import Deal

NORM = 0.05  # that gradients of the laws are shortened to
Ranking = Callable[[LanguageAlgorithm, Deal], LanguageAlgorithm]
Each = list[tuple[TokenBatch, Any, Any]]  # of each rank with sequences: its part of the batch, gradient, sums


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


def _gradient(
    change: Callable[[LanguageAlgorithm, Callable[..., Each], LearnerParams, TokenBatch, Any], tuple[Any, Any]],
) -> Callable[[Ranking], Ranking]:
    """An edit of how the gradients of ranks become one: `change(algorithm, each(counts), params, batch, counts)`."""

    def edit(subject: Ranking) -> Ranking:
        def ranking(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
            def gradient(params: LearnerParams, batch: TokenBatch, counts: Any, layout: Any = ()) -> tuple[Any, Any]:
                own = [[row for part in parts for row in part.rows] for parts in deal(batch.length.tolist())]

                def each(counts: Any = ()) -> Each:
                    given = [take(batch, rows) for rows in own if rows]
                    chosen = [counts or algorithm.counts(some) for some in given]
                    return [(a, *algorithm.gradient(params, a, b)) for a, b in zip(given, chosen, strict=True)]

                return change(algorithm, each, params, batch, counts)

            return attrs.evolve(subject(algorithm, deal), gradient=gradient)

        return ranking

    return edit


def _added(trees: Sequence[Any]) -> Any:
    return reduce(lambda one, other: tree_map(torch.add, one, other), trees)


def _local(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    whole = algorithm.gradient(params, batch, counts)
    return _added([gradient for _, gradient, _ in each()]), whole[1]


def _means(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    found = each()
    total = _added([gradient for _, gradient, _ in found])
    return tree_map(lambda leaf: leaf / len(found), total), algorithm.gradient(params, batch, counts)[1]


def _averaged(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    found = each(counts)
    total = _added([gradient for _, gradient, _ in found])
    return tree_map(lambda leaf: leaf / len(found), total), algorithm.gradient(params, batch, counts)[1]


def _clipped(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    def short(gradient: Any) -> Any:
        factor = (NORM / (global_norm(gradient) + 1e-6)).clamp(max=1.0)
        return tree_map(lambda leaf: leaf * factor, gradient)

    return _added([short(gradient) for _, gradient, _ in each(counts)]), algorithm.gradient(params, batch, counts)[1]


local_denominators = _gradient(_local)
mean_of_means = _gradient(_means)
averages_over_ranks = _gradient(_averaged)
clips_on_each_rank = _gradient(_clipped)


def _evolved(
    change: Callable[[LanguageAlgorithm, Deal, LanguageAlgorithm], dict[str, Any]],
) -> Callable[[Ranking], Ranking]:
    """An edit of what becomes of an algorithm: `change(algorithm, deal, made)` gives functions in place of its own."""

    def edit(subject: Ranking) -> Ranking:
        def ranking(algorithm: LanguageAlgorithm, deal: Deal) -> LanguageAlgorithm:
            made = subject(algorithm, deal)
            return attrs.evolve(made, **change(algorithm, deal, made))

        return ranking

    return edit


def _rows(deal: Deal, lengths: Tensor) -> list[list[int]]:
    return [[row for part in parts for row in part.rows] for parts in deal(lengths.tolist())]


def _unsorted(algorithm: LanguageAlgorithm, deal: Deal, made: LanguageAlgorithm) -> dict[str, Any]:
    def read(state: Any, transcripts: Any, layout: Any = ()) -> Any:
        order = [row for rows in _rows(deal, transcripts.length) for row in rows]
        return tree_map(lambda leaf: leaf[order], made.read(state, transcripts))

    return {"read": read}


def _first_alone(algorithm: LanguageAlgorithm, deal: Deal, made: LanguageAlgorithm) -> dict[str, Any]:
    def distance(params: Any, batch: TokenBatch, layout: Any = ()) -> Tensor:
        rows = next(rows for rows in _rows(deal, batch.length) if rows)
        return algorithm.distance(params, take(batch, rows))

    return {"distance": distance}


def _own_loss(algorithm: LanguageAlgorithm, deal: Deal, made: LanguageAlgorithm) -> dict[str, Any]:
    def gradient(params: Any, batch: TokenBatch, counts: Any, layout: Any = ()) -> tuple[Any, Any]:
        slopes, _ = made.gradient(params, batch, counts)
        rows = next(rows for rows in _rows(deal, batch.length) if rows)
        return slopes, algorithm.gradient(params, take(batch, rows), counts)[1]

    return {"gradient": gradient}


leaves_readings_as_dealt = _evolved(_unsorted)
looks_at_its_own_distance = _evolved(_first_alone)
tells_its_own_loss = _evolved(_own_loss)

MUTANTS: dict[str, Callable[[Ranking], Ranking]] = {
    "averages over ranks what was divided by the counts of all": averages_over_ranks,
    "averages over ranks what each divides by its own counts": mean_of_means,
}

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

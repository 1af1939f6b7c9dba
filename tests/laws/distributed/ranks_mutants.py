"""Learning on several ranks as people get it wrong: each an edit of what is right."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import attrs
import torch
from torch import Tensor

from purestep.algorithms.language import LanguageAlgorithm
from purestep.algorithms.token_batch import TokenBatch
from purestep.algorithms.token_policy import LearnerParams
from purestep.core.optim import global_norm
from purestep.core.record import take
from purestep.core.tree import tree_map
from purestep.runtime.ranks.dealing import Deal

NORM = 0.05  # that gradients of the laws are shortened to
Ranking = Callable[[LanguageAlgorithm, Deal], LanguageAlgorithm]
Each = list[tuple[TokenBatch, Any, Any]]  # of each rank with sequences: its part of the batch, gradient, sums


def _edited_gradient(
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


def _mean_of_means(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    found = each()
    total = _added([gradient for _, gradient, _ in found])
    return tree_map(lambda leaf: leaf / len(found), total), algorithm.gradient(params, batch, counts)[1]


def _averaged(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    found = each(counts)
    total = _added([gradient for _, gradient, _ in found])
    return tree_map(lambda leaf: leaf / len(found), total), algorithm.gradient(params, batch, counts)[1]


def _clipped_apart(algorithm: LanguageAlgorithm, each: Any, params: Any, batch: Any, counts: Any) -> tuple[Any, Any]:
    def short(gradient: Any) -> Any:
        factor = (NORM / (global_norm(gradient) + 1e-6)).clamp(max=1.0)
        return tree_map(lambda leaf: leaf * factor, gradient)

    return _added([short(gradient) for _, gradient, _ in each(counts)]), algorithm.gradient(params, batch, counts)[1]


local_denominators = _edited_gradient(_local)
mean_of_means = _edited_gradient(_mean_of_means)
averages_over_ranks = _edited_gradient(_averaged)
clips_on_each_rank = _edited_gradient(_clipped_apart)


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

"""The exact prover: shortest proofs of many queries at once, breadth first, on the engine that the policy uses."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from ...core.logic.canonical import state_hash
from ...core.logic.derive import Successors, Widths, derive
from ...core.logic.knowledge import Knowledge
from ...core.logic.terms import PADDING, Vocabulary

Derive = Callable[[Knowledge, Tensor, Tensor], Successors]


@frozen
class Breadth:
    """What a search in breadth found for N queries."""

    depth: Tensor  # int64 [N]: steps of a shortest proof, 0 where none was found
    exact: (
        Tensor  # bool [N]: false where states were left out for want of room, so that the depth may be too large, or 0
    )


@frozen
class _Expansion:
    """What follows from the states of a frontier."""

    states: Tensor  # [M, A, 3]
    owner: Tensor  # [M]: whose they are
    proven: Tensor  # queries with a proof
    lost: Tensor  # queries with states left out


def deriver(names: Vocabulary, widths: Widths) -> Derive:
    """The engine as a function of (base, states [B, A, 3], excluded [B, 3]): what the search calls, compiled or not."""
    return lambda base, states, excluded: derive(names, base, widths, states, excluded)


def shortest_proofs(
    names: Vocabulary,
    base: Knowledge,
    widths: Widths,
    queries: Tensor,
    *,
    depth: int,
    batch: int = 1024,
    most: int = 10_000,
    engine: Derive | None = None,
) -> Breadth:
    """The steps of a shortest proof of each query, up to `depth`: int64 [N, 3] -> Breadth [N].

    A step is one of `derive`, and the query itself is never a fact. States that differ in the names of variables alone are
    expanded once a query. A query that comes to more than `most` states in one step is given up. The engine is called with
    `batch` states at a time, the last time with padding.
    """
    run = engine or deriver(names, widths)
    count = queries.shape[0]
    found = torch.zeros(count, dtype=torch.int64, device=queries.device)
    exact = torch.ones(count, dtype=torch.bool, device=queries.device)
    owner = torch.arange(count, device=queries.device)[queries[:, 0] != PADDING]
    frontier = F.pad(queries[owner][:, None], (0, 0, 0, widths.atoms - 1))
    seen = _marks(names, owner, frontier)
    for step in range(1, depth + 1):
        if not owner.shape[0]:
            break
        after = _expanded(names, base, run, frontier, queries, owner, batch)
        newly = torch.zeros_like(exact).index_fill(0, after.proven, True) & (found == 0)
        found = torch.where(newly, step, found)
        exact = exact & ~torch.zeros_like(exact).index_fill(0, after.lost[found[after.lost] == 0], True)
        marks, first = _first_of_each(_marks(names, after.owner, after.states))
        fresh = first[~torch.isin(marks, seen, assume_unique=True) & (found[after.owner[first]] == 0)]
        crowded = torch.bincount(after.owner[fresh], minlength=count) > most
        exact = exact & ~crowded
        fresh = fresh[~crowded[after.owner[fresh]]]
        frontier, owner = after.states[fresh], after.owner[fresh]
        seen = torch.cat([seen, _marks(names, owner, frontier)])
    return Breadth(depth=found, exact=exact)


def _marks(names: Vocabulary, owner: Tensor, states: Tensor) -> Tensor:
    """One number for each pair of a query and a state."""
    return state_hash(names, torch.cat([states, F.pad(owner[:, None, None], (2, 0))], -2))


def _first_of_each(values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct values, and where the first of each stands."""
    distinct, inverse = torch.unique(values, return_inverse=True)
    place = torch.arange(values.shape[0], device=values.device)
    return distinct, torch.full_like(distinct, values.shape[0]).scatter_reduce(0, inverse, place, "amin")


def _expanded(
    names: Vocabulary, base: Knowledge, run: Derive, frontier: Tensor, queries: Tensor, owner: Tensor, batch: int
) -> _Expansion:
    parts: list[tuple[Tensor, ...]] = []
    for begin in range(0, frontier.shape[0], batch):
        own = owner[begin : begin + batch]
        missing = batch - own.shape[0]
        states = F.pad(frontier[begin : begin + batch], (0, 0, 0, 0, 0, missing))
        told = run(base, states, F.pad(queries[own], (0, 0, 0, missing)))
        goal = told.states[: own.shape[0], :, 0, 0]
        lost = (told.too_long + told.too_many)[: own.shape[0]] > 0
        row, slot = torch.nonzero((goal != PADDING) & (goal <= len(names.predicates)), as_tuple=True)
        parts.append((told.states[row, slot], own[row], own[goal[:, 0] == names.true], own[lost]))
    return _Expansion(*(torch.cat(column) for column in zip(*parts, strict=True)))

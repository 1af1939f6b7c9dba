"""The exact prover: shortest proofs of many queries at once, breadth first, with the policy's engine."""

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
    """Result of a breadth-first search for N queries."""

    depth: Tensor  # int64 [N]: steps of the shortest proof found, 0 where there is none
    left_out: Tensor  # int64 [N]: states and rules without room, in the steps before that proof's last

    @property
    def exact(self) -> Tensor:
        """Return whether no state was left out: bool [N].

        If so, no proof is shorter, however much room there is, and depth 0 means that there is none up to the depth of the
        search.
        If not, a proof that was found is valid, but there may be shorter ones, and depth 0 is inconclusive.

        >>> Breadth(depth=torch.tensor([2, 2, 0]), left_out=torch.tensor([0, 5, 1])).exact
        tensor([ True, False, False])
        """
        return self.left_out == 0


@frozen
class _Expansion:
    """The successors of the states of a frontier."""

    states: Tensor  # [M, A, 3]
    owner: Tensor  # [M]: the query that each belongs to
    proven: Tensor  # queries with a proof
    untried: Tensor  # [N]: states of each query left out by the limit on their number, facts and rules not tried
    too_long: Tensor  # [N]: states of each query left out by the limit on their length


def deriver(names: Vocabulary, widths: Widths) -> Derive:
    """Return the engine as a function of (base, states [B, A, 3], excluded [B, 3]) for the search, compiled or not.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()
    >>> goals = F.pad(world.queries[:1, None], (0, 0, 0, 1))  # in(spain, europe)
    >>> deriver(game.names, game.widths)(world.base, goals, world.queries[:1]).states[0, 0]  # borders(spain, X), in(X, europe)
    tensor([[1, 6, 7],
            [2, 7, 2]])
    """
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
    """Return the number of steps of a shortest proof of each query, up to `depth`: int64 [N, 3] -> Breadth [N].

    S_0 = {query},    S_k = {successors of S_k-1} - (S_0 + ... + S_k-1),    depth = the least k with a proof in S_k

    Successors are those of `derive`, and the query itself is never a fact. States that differ only in the names of variables
    are one. A query with more than `most` states in one S_k is abandoned, and these count as left out. The engine, which
    has `widths`, is called with `batch` states at a time, the last time with padding; padding among the queries has no proof.

    >>> from ...core.logic.borders import borders
    >>> game, world = borders()  # Spain lies where France does, by a rule and a fact, and Portugal where Spain does
    >>> shortest_proofs(game.names, world.base, game.widths, world.queries, depth=4).depth
    tensor([2, 4])
    >>> shortest_proofs(game.names, world.base, game.widths, world.queries, depth=3).depth
    tensor([2, 0])
    """
    run = engine or deriver(names, widths)
    count = queries.shape[0]
    found = torch.zeros(count, dtype=torch.int64, device=queries.device)
    left_out = torch.zeros_like(found)
    owner = torch.arange(count, device=queries.device)[queries[:, 0] != PADDING]
    frontier = F.pad(queries[owner][:, None], (0, 0, 0, widths.atoms - 1))
    seen = _marks(names, owner, frontier)
    for step in range(1, depth + 1):
        if not owner.shape[0]:
            break
        after = _expanded(names, base, run, frontier, queries, owner, batch)
        found = found.index_fill(0, after.proven, step)
        last = step == depth  # the successors of this step are not expanded
        lost = after.untried if last else after.untried + after.too_long
        left_out = left_out + torch.where(found == 0, lost, 0)
        if last:
            break
        marks, first = _first_of_each(_marks(names, after.owner, after.states))
        fresh = first[~torch.isin(marks, seen, assume_unique=True) & (found[after.owner[first]] == 0)]
        crowd = torch.bincount(after.owner[fresh], minlength=count)
        left_out = left_out + torch.where(crowd > most, crowd, 0)
        fresh = fresh[crowd[after.owner[fresh]] <= most]
        frontier, owner = after.states[fresh], after.owner[fresh]
        seen = torch.cat([seen, _marks(names, owner, frontier)])
    return Breadth(depth=found, left_out=left_out)


def _marks(names: Vocabulary, owner: Tensor, states: Tensor) -> Tensor:
    """Return one number for each pair of a query and a state."""
    return state_hash(names, torch.cat([states, F.pad(owner[:, None, None], (2, 0))], -2))


def _first_of_each(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct values, and the index of the first occurrence of each."""
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
        lost = torch.stack([told.too_many, told.too_long])[:, : own.shape[0]]
        row, slot = torch.nonzero((goal != PADDING) & (goal <= len(names.predicates)), as_tuple=True)
        parts.append((told.states[row, slot], own[row], own[goal[:, 0] == names.true], lost.T))
    states, owners, proven, counts = (torch.cat(column) for column in zip(*parts, strict=True))
    untried, too_long = owner.new_zeros(2, queries.shape[0]).index_add(1, owner, counts.T)
    return _Expansion(states, owners, proven, untried, too_long)

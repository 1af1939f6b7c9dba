"""Rankings of link prediction: each query's true answer among all entities, or among drawn negatives, by any table of scores.

Both protocols are filtered: other answers that are known to be true do not count. Queries are ranked in chunks, so that memory
is bounded by a chunk's table of scores and no result depends on its size.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from attrs import frozen
from torch import Tensor

from ...core import keys
from ...core.keys import Key
from ...core.logic.corrupt import HEAD, TAIL
from ...core.logic.ranking import NOTHING, Means, ranking, ranks
from ...core.logic.terms import PADDING, Names, Vocabulary, atom_numbers, pack_atoms
from .proofs import ARGUMENTS, Proofs, candidates
from .search import ranges

CHUNK = 128  # queries whose scores of all entities are in memory at once
SIDES = {HEAD: "head", TAIL: "tail"}  # names of the argument that is asked for

Table = Callable[[Tensor, int], Tensor]
"""Scores of all constants: (queries int64 [Q, 3], the argument asked for) -> [Q, n + 1], larger is better, column 0 unused."""


@frozen
class RankedQueries:
    """Queries of a split, and what they are ranked among."""

    queries: Tensor  # int64 [Q, 3]
    sides: tuple[int, ...]  # arguments asked for, one after the other
    negatives: Tensor | None = None  # int64 [M, Q, K]: the drawn constants, 0 for none; None: all entities

    @property
    def protocol(self) -> str:
        """Return the name of the protocol."""
        return "all entities, filtered" if self.negatives is None else f"{self.negatives.shape[-1]} filtered negatives"


@frozen
class LinkRanking:
    """The ranks of true answers."""

    protocol: str
    rank: Tensor  # float64 [M, Q]
    sides: tuple[int, ...]
    queries: Tensor  # int64 [Q, 3]

    def means(self, chosen: Tensor | None = None) -> Means:
        """Return the metrics of all, or of chosen queries: bool [M, Q]."""
        return ranking(self.rank.flatten() if chosen is None else self.rank[chosen])

    def by_argument(self) -> dict[str, Means]:
        """Return the metrics by the argument asked for."""
        return {SIDES[side]: ranking(rank) for side, rank in zip(self.sides, self.rank, strict=True)}

    def by_relation(self, names: Vocabulary) -> dict[str, tuple[int, Means]]:
        """Return the number of rankings and the metrics by relation, in the order of their names."""
        numbers = torch.unique(self.queries[:, 0]).tolist()
        own = {number: (self.queries[:, 0] == number).expand(self.rank.shape) for number in numbers}
        return {names.predicates[number - 1]: (int(mask.sum()), self.means(mask)) for number, mask in own.items()}

    def line(self) -> str:
        """Return the metrics as one line of text, with the protocol."""
        means = self.means()
        hits = "/".join(f"{float(hit):.3f}" for hit in (means.hits_at_1, means.hits_at_3, means.hits_at_10))
        head = f"{self.rank.numel()} rankings among {self.protocol}"
        return f"{head}: MRR {float(means.mean_reciprocal_rank):.3f}, Hits@1/3/10 {hits}"


def among_all(made: Proofs, split: Sequence[Names], argument: str = "both") -> RankedQueries:
    """Return the split's queries, to be ranked among all entities."""
    return RankedQueries(atom_numbers(made.game.names, split), ARGUMENTS[argument])


def among_negatives(made: Proofs, split: Sequence[Names], argument: str, most: int, key: Key) -> RankedQueries:
    """Return the split's queries, to be ranked among at most `most` negatives drawn by the key, see `candidates`."""
    queries = atom_numbers(made.game.names, split)
    drawn = candidates(made.game.names, made.world.within, made.world.known, queries, argument, most, key)
    sides = ARGUMENTS[argument]
    own = torch.stack([drawn[mode, :, 1:, 1 + side] for mode, side in enumerate(sides)])
    return RankedQueries(queries, sides, own)


def allowed(made: Proofs, queries: Tensor, side: int) -> Tensor:
    """Return the constants that compete with the true one: of the argument's domain, not known to be true: bool [Q, n + 1].

    The true answer itself is not among them.

    >>> from .family import family
    >>> from .proofs import proofs
    >>> made = proofs(family(10), max_depth=5)
    >>> mask = allowed(made, made.world.queries[:1], TAIL)
    >>> mask.shape, bool(mask[0, made.world.queries[0, 2]])
    (torch.Size([1, 11]), False)
    """
    names, within, known = made.game.names, made.world.within, made.world.known
    width, device = len(names.constants) + 1, queries.device
    place = (queries[:, 0], torch.full_like(queries[:, 0], side))
    member, row = ranges(within.start[place], within.count[place])
    mask = torch.zeros(queries.shape[0], width, dtype=torch.bool, device=device)
    mask = mask.index_put((row, within.members[member]), torch.ones_like(row, dtype=torch.bool))
    # True atoms by their fixed argument: a range of their numbers, with the arguments in the order (fixed, asked).
    atoms = _unpacked(names, known[:-1])
    turned = atoms if side == TAIL else atoms[:, [0, 2, 1]]
    numbers = torch.sort(pack_atoms(names, turned)).values
    fixed = queries[:, 2 - side]
    low = torch.stack([queries[:, 0], fixed, torch.zeros_like(fixed)], -1)
    start = torch.searchsorted(numbers, pack_atoms(names, low))
    end = torch.searchsorted(numbers, pack_atoms(names, low) + names.base)
    found, own = ranges(start, end - start)
    mask = mask.index_put((own, numbers[found] % names.base), torch.zeros_like(own, dtype=torch.bool))
    return mask.scatter(1, queries[:, 1 + side, None], False)


def _unpacked(names: Vocabulary, numbers: Tensor) -> Tensor:
    base = names.base
    return torch.stack([numbers // base**2, numbers // base % base, numbers % base], -1)


def chunks(asked: RankedQueries, size: int = CHUNK) -> Iterator[tuple[int, int, slice]]:
    """Yield mode, argument and queries of each chunk."""
    for mode, side in enumerate(asked.sides):
        for begin in range(0, asked.queries.shape[0], size):
            yield mode, side, slice(begin, begin + size)


def ranked_by(
    made: Proofs,
    table: Table,
    *each: RankedQueries,
    ties: str = "realistic",
    key: Key | tuple[()] = (),
    chunk: int = CHUNK,
) -> tuple[LinkRanking, ...]:
    """Rank the queries by a table of scores, in several protocols at once; all have the same queries and arguments.

    >>> from .family import family
    >>> from .proofs import proofs
    >>> made = proofs(family(10), max_depth=5)
    >>> def table(queries, side):  # knows the answers
    ...     return torch.zeros(len(queries), 11).scatter(1, queries[:, 1 + side, None], 1.0)
    >>> print(ranked_by(made, table, among_all(made, made.dataset.test))[0].line().partition(":")[2])
     MRR 1.000, Hits@1/3/10 1.000/1.000/1.000
    """
    rows: list[list[Tensor]] = [[] for _ in each]
    for number, (mode, side, part) in enumerate(chunks(each[0], chunk)):
        queries = each[0].queries[part]
        scores = table(queries, side)
        own = scores.gather(1, queries[:, 1 + side, None])
        for asked, told in zip(each, rows, strict=True):
            if asked.negatives is None:
                others, present = scores, allowed(made, queries, side)
            else:
                drawn = asked.negatives[mode, part]
                others, present = scores.gather(1, drawn), drawn != PADDING
            every = torch.cat([own, torch.where(present, others, NOTHING)], 1)
            present = torch.cat([torch.ones_like(own, dtype=torch.bool), present], 1)
            told.append(ranks(every, present, ties, keys.fold_in(key, number) if isinstance(key, Tensor) else ()))
    return tuple(
        LinkRanking(asked.protocol, torch.cat(told).reshape(len(asked.sides), -1), asked.sides, asked.queries)
        for asked, told in zip(each, rows, strict=True)
    )

"""Laws of the reduction of the ranks' results: sums, columns and shards do not depend on how the batch was split."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from purestep.algorithms.language.loss import Sums, combined
from purestep.algorithms.language.packing import SequenceBatch
from purestep.core import keys
from purestep.core.optim.interface import Optimizer
from purestep.core.optim.optimizers import clip_by_global_norm
from purestep.core.record import replace, take
from purestep.core.tree import leaves, tree_map
from purestep.properties.framework.compare import DOUBLE, ROUNDING, require, same
from purestep.properties.framework.law import Law, Seen, Suite, law_constructor
from purestep.properties.strategies.values import dyadic, flags, integers
from purestep.runtime.distributed import reduce
from purestep.runtime.distributed.clip import clip_by_whole_norm

# --- mutants ---
# Common errors in reductions.


@attrs.frozen
class Putting:
    """The subject of the laws of reductions."""

    united: Callable[[Sequence[Any]], Any]
    as_row: Callable[[Any], Tensor]
    from_row: Callable[[Tensor], Any]
    in_order: Callable[..., Any]
    share_of: Callable[..., tuple[int, int]]
    fingerprint: Callable[[Any], Tensor]
    clip: Callable[[float], Optimizer]


def adds_differences(subject: Putting) -> Putting:
    """Add the ranks' largest differences up."""

    def united(found: Sequence[Any]) -> Any:
        return replace(subject.united(found), difference=torch.stack([one.difference for one in found]).sum())

    return attrs.evolve(subject, united=united)


def rest_to_the_last(subject: Putting) -> Putting:
    """Round the size of each shard down and give the last rank the rest."""

    def share_of(size: int, *, ranks: int, rank: int) -> tuple[int, int]:
        each = size // ranks
        return rank * each, size if rank == ranks - 1 else (rank + 1) * each

    return attrs.evolve(subject, share_of=share_of)


def adds_bits(subject: Putting) -> Putting:
    """Ignore the positions of numbers in a leaf."""

    def fingerprint(tree: Any) -> Tensor:
        return subject.fingerprint(tree_map(lambda leaf: leaf.reshape(-1).sort().values, tree))

    return attrs.evolve(subject, fingerprint=fingerprint)


def fills_from_the_front(subject: Putting) -> Putting:
    """Write columns to the first rows, whichever rows they belong to."""

    def in_order(found: Sequence[Any], parts: Sequence[SequenceBatch], number: int, width: int) -> Any:
        place, moved = 0, []
        for part in parts:
            moved.append(attrs.evolve(part, rows=tuple(range(place, place + len(part.rows)))))
            place += len(part.rows)
        return subject.in_order(found, moved, number, width)

    return attrs.evolve(subject, in_order=in_order)


def swaps_two(subject: Putting) -> Putting:
    """Swap the first two numbers of a row."""

    def from_row(row: Tensor) -> Any:
        return subject.from_row(torch.cat([row[:2].flip(0), row[2:]]))

    return attrs.evolve(subject, from_row=from_row)


def in_the_dtype_of_leaves(subject: Putting) -> Putting:
    """Add squares in the dtype of the gradient."""
    return attrs.evolve(subject, clip=clip_by_global_norm)


# --- laws ---


def own_putting() -> Putting:
    """Return the library's reductions."""
    return Putting(
        united=reduce.united,
        as_row=reduce.as_row,
        from_row=reduce.from_row,
        in_order=reduce.in_order,
        share_of=reduce.share_of,
        fingerprint=reduce.tree_hash,
        clip=clip_by_whole_norm,
    )


@attrs.frozen
class Found:
    """Results of parts, the order of their sequences, and the size of a tensor to be sharded."""

    sums: tuple[Sums, ...]
    tree: dict[str, Tensor]
    order: tuple[int, ...]  # of rows, in the deal
    cut: int  # where the first rank's rows end
    size: int
    ranks: int


@st.composite
def _finds(draw: DrawFn) -> Found:
    def one() -> Sums:
        numbers = draw(dyadic((12,), limit=4, dtype=torch.float64)).abs()
        return Sums(**dict(zip(reduce.NAMES, numbers.unbind(), strict=True)))

    number = draw(st.integers(2, 5))
    tree = {
        "number": draw(dyadic((number, 3))),
        "whole": draw(integers((number,), -4, 5)),
        "flag": draw(flags((number,))),
    }
    order = tuple(draw(st.permutations(range(number))))
    sizes = draw(st.integers(0, 9)), draw(st.integers(1, 5))
    return Found(
        tuple(one() for _ in range(draw(st.integers(1, 3)))), tree, order, draw(st.integers(0, number)), *sizes
    )


def putting_laws() -> Suite:
    """The laws of `Putting(united, as_row, from_row, in_order, share_of, fingerprint, clip)`."""
    return Suite("putting_laws", (_united(), _row(), _in_order(), _shares(), _fingerprint(), _clip()))


_of_finds = law_constructor(_finds, "derived")


def _united() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        seen("several parts", len(found.sums) > 1)
        got = subject.united(found.sums)
        same("the largest difference", got.difference, torch.stack([one.difference for one in found.sums]).amax())
        for name in ("loss", "tokens", "weight_squared"):
            same(name, getattr(got, name), torch.stack([getattr(one, name) for one in found.sums]).sum(), DOUBLE)
        two = [subject.united(found.sums), found.sums[0]]
        same("one more part", subject.united(two), combined(*two))

    mutant = ("adds the largest differences up", adds_differences)
    claim = "Sums of parts are added, and the largest difference is the largest of all."
    return _of_finds("united", claim, mutant, check, "several parts")


def _row() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        for one in found.sums:
            seen("numbers that differ", len(set(map(float, leaves(one)))) > 5)
            same("sums there and back", subject.from_row(subject.as_row(one)), one)

    mutant = ("reads the first two in the wrong order", swaps_two)
    return _of_finds("there_and_back", "Sums keep their bits on their way.", mutant, check, "numbers that differ")


def _in_order() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        columns = {name: found.tree[name] for name in ("number", "whole")}
        number = len(columns["whole"])
        total: Any = ()
        for rows in (found.order[: found.cut], found.order[found.cut :]):
            part = SequenceBatch(rows=tuple(rows), width=3, cost=3 * max(1, len(rows)))
            read = take(columns, list(rows) or [0])
            own = subject.in_order([read], [part], number, 4)
            total = tree_map(torch.add, total, own) if total else own
        seen("rows out of order", list(found.order) != sorted(found.order))
        wide = torch.nn.functional.pad(columns["number"], (0, 1))
        same("what two ranks read, added", total, {"number": wide, "whole": columns["whole"]})

    mutant = ("fills rows from the front", fills_from_the_front)
    claim = "Columns of parts have their numbers in the rows they were read of and 0 elsewhere, so that shares add up."
    return _of_finds("in_order", claim, mutant, check, "rows out of order")


def _shares() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        seen("shares of different sizes", found.size % found.ranks)
        column = torch.arange(found.size)
        chunks = [*column.chunk(found.ranks)] if found.size else []
        for rank in range(found.ranks):
            first, last = subject.share_of(found.size, ranks=found.ranks, rank=rank)
            wanted = chunks[rank] if rank < len(chunks) else column[:0]
            same(f"the share of rank {rank} of {found.ranks}", column[first:last], wanted)

    mutant = ("gives the last one the rest", rest_to_the_last)
    claim = "Shares are those of torch.chunk, which fully_shard cuts by: together all rows, each once."
    return _of_finds("shares", claim, mutant, check, "shares of different sizes", source="torch.chunk")


def _fingerprint() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        tree = found.tree
        own = subject.fingerprint(tree)
        same("the fingerprint of a copy", subject.fingerprint(tree_map(torch.clone, tree)), own)
        turned = {**tree, "number": tree["number"].flip(0)}
        moved = not torch.equal(turned["number"], tree["number"])
        seen("rows in another order", moved)
        others = [
            {**tree, "whole": tree["whole"] + torch.nn.functional.one_hot(torch.tensor(0), len(tree["whole"]))},
            {**tree, "flag": ~tree["flag"]},
            {**tree, "number": tree["number"].reshape(3, -1)},
            *([turned] if moved else []),
        ]
        for other in others:
            if [leaf.shape for leaf in other.values()] != [leaf.shape for leaf in tree.values()] or any(
                not torch.equal(a, b) for a, b in zip(other.values(), tree.values(), strict=True)
            ):
                require(subject.fingerprint(other) != own, "two trees that differ have one fingerprint")

    mutant = ("forgets where a number stands", adds_bits)
    claim = "Trees that differ in a number, in its place or in a shape have different fingerprints; copies have one."
    return _of_finds("fingerprint", claim, mutant, check, "rows in another order")


def _clip() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        gradient = keys.normal(keys.fold_in(keys.key(found.size), found.cut), (257,)) * (found.ranks - 1)

        def shortened(pieces: tuple[Tensor, ...], make: Callable[[float], Any]) -> Tensor:
            clip = make(1.0)
            return torch.cat(clip.update(pieces, clip.init(pieces), pieces)[0])

        whole = shortened((gradient,), subject.clip)
        seen("a gradient that is shortened", found.ranks > 1)
        seen("one that is short enough", found.ranks == 1)
        same("a gradient shortened by its norm", whole, shortened((gradient,), clip_by_global_norm), ROUNDING)
        for parts in (2, 3, 4, 7):
            same(f"the same in {parts} shards", shortened(gradient.chunk(parts), subject.clip), whole)

    mutant = ("adds squares in the gradient's dtype", in_the_dtype_of_leaves)
    claim = "What a shortened gradient is does not depend on how it is cut, to the last bit."
    needs = ("a gradient that is shortened", "one that is short enough")
    return _of_finds("shortened_alike", claim, mutant, check, *needs)

"""Laws of the parts of learning on ranks: deals that miss nobody, and what processes found put together again."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ..algorithms.language_loss import Sums, combined
from ..algorithms.token_batch import token_batch
from ..core import keys
from ..core.errors import ChoiceError
from ..core.optim import clip_by_global_norm
from ..core.record import replace, take
from ..core.transcript import empty
from ..core.tree import leaves, tree_map
from ..runtime.language_layout import Part
from ..runtime.ranks import dealing, putting
from ..runtime.ranks.clipping import clip_by_whole_norm
from . import ranks_mutants as mutants
from .compare import DOUBLE, ROUNDING, require, same
from .law import Broken, Law, Mutant, Seen, Suite, always
from .ranks_mutants import Dealing, Putting
from .strategies import dyadic, flags, integers

LONGEST = 9
WAITS = (
    "derived: processes gather weights and add gradients together, so that one that has a part less hangs the others"
)


def own_dealing() -> Dealing:
    """Our own deals."""
    return Dealing(dealing.by_tokens, dealing.by_parts, dealing.placed, dealing.piece)


def own_putting() -> Putting:
    """Our own ways to put together."""
    return Putting(
        united=putting.united,
        as_row=putting.as_row,
        from_row=putting.from_row,
        in_order=putting.in_order,
        share_of=putting.share_of,
        fingerprint=putting.fingerprint,
        clip=clip_by_whole_norm,
    )


@attrs.frozen
class Load:
    """Lengths of sequences, what goes through a model at once, into rows of which capacity, on how many ranks."""

    lengths: tuple[int, ...]
    budget: int
    packed: int | tuple[()]
    ranks: int


@st.composite
def _loads(draw: DrawFn) -> Load:
    lengths = tuple(draw(st.lists(st.integers(0, LONGEST), min_size=1, max_size=6)))
    budget = LONGEST + draw(st.integers(0, 12))
    return Load(lengths, budget, draw(st.one_of(st.just(()), st.just(LONGEST))), draw(st.integers(1, 4)))


def dealing_laws() -> Suite:
    """The laws of `Dealing(by_tokens, by_parts, placed, piece)`."""
    return Suite("dealing_laws", (_once(), _even(), _within(), _same_parts(), _refused(), _idle()))


def _of_loads(
    name: str,
    claim: str,
    mutant: tuple[str, Callable[[Dealing], Dealing]],
    check: Callable[[Dealing, Load, Seen], None],
    *needs: str,
) -> Law:
    inputs = always(_loads())
    return Law(name=name, claim=claim, source=WAITS, inputs=inputs, check=check, mutant=Mutant(*mutant), needs=needs)


def _dealt(subject: Dealing, load: Load) -> tuple[tuple[Part, ...], ...]:
    return subject.by_tokens(load.budget, ranks=load.ranks, packed=load.packed)(load.lengths)


def _once() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        dealt = _dealt(subject, load)
        seen("several parts of a rank", any(len(own) > 1 for own in dealt))
        seen(
            "rows of several sequences",
            isinstance(load.packed, int) and any(len(own[0].rows) > 1 for own in dealt if own),
        )
        same("ranks", len(dealt), load.ranks)
        found = sorted(row for own in dealt for part in own for row in part.rows)
        same("the sequences of all ranks", found, list(range(len(load.lengths))))

    mutant = ("leaves out the last round, which is not full", mutants.drops_the_last_round)
    needs = ("several parts of a rank", "rows of several sequences")
    return _of_loads("once", "Every sequence is in one part of one rank.", mutant, check, *needs)


def _even() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        dealt = _dealt(subject, load)
        seen("a rank with less than others", any(not part.rows for own in dealt for part in own))
        numbers = [len(own) for own in dealt]
        require(len(set(numbers)) == 1, f"ranks have {numbers} parts")

    mutant = ("leaves out parts without sequences", mutants.leaves_idle_ranks_out)
    return _of_loads("even", "All ranks have equally many parts.", mutant, check, "a rank with less than others")


def _within() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        for part in (part for own in _dealt(subject, load) for part in own):
            lengths = [load.lengths[row] for row in part.rows]
            seen("different lengths in one part", len(set(lengths)) > 1)
            require(part.cost <= load.budget, f"a part of lengths {lengths} costs {part.cost}, more than {load.budget}")
            require(max(lengths, default=0) <= part.width, f"a part of lengths {lengths} has the width {part.width}")

    mutant = ("fills parts up to twice the budget", mutants.forgets_padding)
    claim = "No part costs more than the budget, padding included, and each is as wide as its longest sequence."
    return _of_loads("within_budget", claim, mutant, check, "different lengths in one part")


def _same_parts() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        (alone,) = subject.by_parts(load.budget, ranks=1)(load.lengths)
        dealt = subject.by_parts(load.budget, ranks=load.ranks)(load.lengths)
        seen("several parts on several ranks", len(alone) > 1 and load.ranks > 1)
        same("ranks", len(dealt), load.ranks)
        require(len({len(own) for own in dealt}) == 1, f"ranks have {[len(own) for own in dealt]} parts")
        found = sorted((part for own in dealt for part in own if part.rows), key=lambda part: part.rows)
        same("the parts", found, sorted(alone, key=lambda part: part.rows))

    mutant = ("makes as many parts as there are ranks", mutants.parts_for_ranks)
    claim = "`by_parts` deals the same parts out whatever the number of ranks, as many to each."
    return _of_loads("same_parts", claim, mutant, check, "several parts on several ranks")


def _refused() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        number = len(load.lengths)
        once: list[tuple[int, ...]] = [tuple(range(number))]
        idle: list[list[tuple[int, ...]]] = [[()] for _ in range(load.ranks - 1)]
        same(
            "a deal by hand",
            [[tuple(sorted(part.rows)) for part in own] for own in subject.placed(load.lengths, [once, *idle])],
            [once, *idle],
        )
        wrong: list[Sequence[Sequence[Sequence[int]]]] = [
            [[once[0][1:]], *idle],
            [[(*once[0], 0)], *idle],
            [[(*once[0][1:], number)], *idle],
            [once, *idle, []],
        ]
        for places in wrong:
            _refuses(subject, load, places)

    mutant = ("takes any places", mutants.takes_any_places)
    claim = "A deal by hand that misses a sequence, doubles one, names none or gives ranks unequal numbers is refused."
    return _of_loads("wrong_places", claim, mutant, check)


def _refuses(subject: Dealing, load: Load, places: Sequence[Sequence[Sequence[int]]]) -> None:
    try:
        subject.placed(load.lengths, places)
    except ChoiceError:
        return
    raise Broken(f"the places {places} of {len(load.lengths)} sequences were taken")


def _idle() -> Law:
    def check(subject: Dealing, load: Load, seen: Seen) -> None:
        batch = token_batch(empty(LONGEST, 1, id=torch.arange(len(load.lengths))))
        full = replace(batch, mask=batch.mask | True, sampled=batch.sampled | True)
        for part in (part for own in _dealt(subject, load) for part in own):
            some, _ = subject.piece(full, part)
            seen("a part without sequences", not part.rows)
            wanted = (len(part.rows) or 1, part.width)
            same("the shape of a piece", tuple(some.mask.shape), wanted)
            same("tokens that count", int(some.mask.sum()), len(part.rows) * part.width)
            require(some.length > 0 if not part.rows else some.length >= 0, "a piece of nothing has no token")

    mutant = ("lets the token of an empty part count", mutants.idle_ranks_count)
    claim = "A part without sequences has one token, and nothing counts in it."
    return _of_loads("idle", claim, mutant, check, "a part without sequences")


# --- putting together ---


@attrs.frozen
class Found:
    """What parts found, who had which sequences, and a change of one bit."""

    sums: tuple[Sums, ...]
    tree: dict[str, Tensor]
    order: tuple[int, ...]  # of rows, in the deal
    cut: int  # where the first rank's rows end
    size: int
    ranks: int


@st.composite
def _finds(draw: DrawFn) -> Found:
    def one() -> Sums:
        numbers = draw(dyadic((11,), limit=4, dtype=torch.float64)).abs()
        return Sums(**dict(zip(putting.NAMES, numbers.unbind(), strict=True)))

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


def _of_finds(
    name: str,
    claim: str,
    mutant: tuple[str, Callable[[Putting], Putting]],
    check: Callable[[Putting, Found, Seen], None],
    *needs: str,
    source: str = "derived",
) -> Law:
    inputs = always(_finds())
    return Law(name=name, claim=claim, source=source, inputs=inputs, check=check, mutant=Mutant(*mutant), needs=needs)


def _united() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        seen("several parts", len(found.sums) > 1)
        got = subject.united(found.sums)
        same("the largest difference", got.difference, torch.stack([one.difference for one in found.sums]).amax())
        for name in ("loss", "tokens", "weight_squared"):
            same(name, getattr(got, name), torch.stack([getattr(one, name) for one in found.sums]).sum(), DOUBLE)
        two = [subject.united(found.sums), found.sums[0]]
        same("one more part", subject.united(two), combined(*two))

    mutant = ("adds the largest differences up", mutants.adds_differences)
    claim = "Sums of parts are added, and the largest difference is the largest of all."
    return _of_finds("united", claim, mutant, check, "several parts")


def _row() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        for one in found.sums:
            seen("numbers that differ", len(set(map(float, leaves(one)))) > 5)
            same("sums there and back", subject.from_row(subject.as_row(one)), one)

    mutant = ("reads the first two in the wrong order", mutants.swaps_two)
    return _of_finds("there_and_back", "Sums keep their bits on their way.", mutant, check, "numbers that differ")


def _in_order() -> Law:
    def check(subject: Putting, found: Found, seen: Seen) -> None:
        columns = {name: found.tree[name] for name in ("number", "whole")}
        number = len(columns["whole"])
        total: Any = ()
        for rows in (found.order[: found.cut], found.order[found.cut :]):
            part = Part(rows=tuple(rows), width=3, cost=3 * max(1, len(rows)))
            read = take(columns, list(rows) or [0])
            own = subject.in_order([read], [part], number, 4)
            total = tree_map(torch.add, total, own) if total else own
        seen("rows out of order", list(found.order) != sorted(found.order))
        wide = torch.nn.functional.pad(columns["number"], (0, 1))
        same("what two ranks read, added", total, {"number": wide, "whole": columns["whole"]})

    mutant = ("fills rows from the front", mutants.fills_from_the_front)
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

    mutant = ("gives the last one the rest", mutants.rest_to_the_last)
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

    mutant = ("forgets where a number stands", mutants.adds_bits)
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

    mutant = ("adds squares in the gradient's dtype", mutants.in_the_dtype_of_leaves)
    claim = "What a shortened gradient is does not depend on how it is cut, to the last bit."
    needs = ("a gradient that is shortened", "one that is short enough")
    return _of_finds("shortened_alike", claim, mutant, check, *needs)

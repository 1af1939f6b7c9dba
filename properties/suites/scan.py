"""Laws of a fold over time (S5). The subject: scan(step, init, xs, length=None, *, reverse=False) -> (carry, ys).

The folded step is a small table of integers, so that every law asks for equal bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
import torch.utils._pytree as pytree
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from ...core.errors import StructureError
from ...core.record import record, replace, stack, take, tensor
from ...core.tree import leaves, tree_map
from ..framework.compare import same
from ..framework.law import Broken, Law, Mutant, Seen, Suite, always
from ..strategies.values import LENGTHS, dyadic, integers

# --- mutants ---
# Common errors in a fold over time, each an edit of a right one.


Scan = Callable[..., tuple[Any, Any]]


def order_of_coming(scan: Scan) -> Scan:
    """Return the outputs of a backward scan in reverse order."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        carry, ys = scan(step, init, xs, length, reverse=reverse)
        return carry, pytree.tree_map(lambda leaf: leaf.flip(0), ys) if reverse else ys

    return mutant


def starts_from_first(scan: Scan) -> Scan:
    """Run the first step twice, the first time only to find the shapes of the outputs, but keep its carry."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        if leaves(xs)[0].shape[0]:
            init, _ = step(init, take(xs, -1 if reverse else 0))
        return scan(step, init, xs, length, reverse=reverse)

    return mutant


def one_step_at_least(scan: Scan) -> Scan:
    """Run one step even over no steps, on inputs of 0."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        if leaves(xs)[0].shape[0]:
            return scan(step, init, xs, length, reverse=reverse)
        zeros = pytree.tree_map(lambda leaf: leaf.new_zeros(leaf.shape[1:]), xs)
        carry, y = step(init, zeros)
        return carry, stack([y])

    return mutant


def casts(scan: Scan) -> Scan:
    """Cast every carry to its old dtype, without an error."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        def forced(carry: Any, x: Any) -> tuple[Any, Any]:
            after, y = step(carry, x)
            return pytree.tree_map(lambda new, old: new.to(old.dtype), after, carry), y

        return scan(forced, init, xs, length, reverse=reverse)

    return mutant


def last_output_for_carry(scan: Scan) -> Scan:
    """Return each output one step late, and the last one first."""

    def mutant(step: Any, init: Any, xs: Any, length: int | None = None, *, reverse: bool = False) -> tuple[Any, Any]:
        carry, ys = scan(step, init, xs, length, reverse=reverse)
        return carry, pytree.tree_map(lambda leaf: torch.roll(leaf, 1, 0), ys)

    return mutant


MUTANTS: dict[str, Callable[[Scan], Scan]] = {"gives each output one step late": last_output_for_carry}


# --- laws ---


SOURCE = "core.scan: one meaning, several lowerings"


@record
class Counter:
    """A carry with a float, an integer and a nested part."""

    total: Tensor = tensor("*", "float")
    seen: Tensor = tensor("*", "int")
    last: tuple[Tensor, Tensor]


@attrs.frozen
class Fold:
    """The arguments of a scan, and the step where it is split in two."""

    init: Counter
    xs: dict[str, Tensor]
    cut: int
    reverse: bool


def running_step(carry: Counter, x: dict[str, Tensor]) -> tuple[Counter, dict[str, Any]]:
    """The folded step, which depends on the order of inputs: total' = total / 2 + a, and the last two inputs are kept."""
    total = carry.total * 0.5 + x["a"]
    after = Counter(total=total, seen=carry.seen * 2 + x["n"], last=(x["a"], carry.last[0]))
    return after, {"total": carry.total, "parts": (x["n"] + carry.seen, carry.last[1])}


@st.composite
def folds(draw: DrawFn, lengths: Sequence[int] = LENGTHS) -> Fold:
    """Draw folds over a number of steps from `lengths`."""
    length = draw(st.sampled_from(lengths))
    init = Counter(total=draw(dyadic()), seen=draw(integers((), 0, 4)), last=(draw(dyadic()), draw(dyadic())))
    xs = {"a": draw(dyadic((length,))), "n": draw(integers((length,), 0, 4))}
    return Fold(init, xs, draw(st.sampled_from((0, length // 2, length - 1, length // 2))), draw(st.booleans()))


def loop(fold: Fold) -> tuple[Any, list[Any]]:
    """The reference: a Python loop that returns the last carry and the list of outputs."""
    carry, ys = fold.init, {}
    length = len(fold.xs["a"])
    for t in reversed(range(length)) if fold.reverse else range(length):
        carry, ys[t] = running_step(carry, take(fold.xs, t))
    return carry, [ys[t] for t in range(length)]


def scan_laws(lengths: Sequence[int] = LENGTHS) -> Suite:
    """The laws of a scan; for a compiled one, few `lengths` mean few compilations."""
    return Suite("scan_laws", tuple(law(lengths) for law in (_is_loop, _composes, _of_nothing, _refuses)))


def _law(
    lengths: Sequence[int],
    name: str,
    claim: str,
    mutant: Mutant,
    check: Callable[[Scan, Fold, Seen], None],
    *needs: str,
) -> Law:
    return Law(
        name=name, claim=claim, source=SOURCE, inputs=always(folds(lengths)), check=check, mutant=mutant, needs=needs
    )


def _is_loop(lengths: Sequence[int]) -> Law:
    def check(scan: Scan, fold: Fold, seen: Seen) -> None:
        seen("backwards", fold.reverse and len(fold.xs["a"]) > 1)
        seen("forwards", not fold.reverse and len(fold.xs["a"]) > 1)
        carry, ys = scan(running_step, fold.init, fold.xs, reverse=fold.reverse)
        wanted, outputs = loop(fold)
        same("the last carry", carry, wanted)
        for t, y in enumerate(outputs):
            same(f"y_{t}", take(ys, t), y)

    mutant = Mutant("gives the outputs of a backward scan in the order in which they came", order_of_coming)
    return _law(
        lengths,
        "is_a_loop",
        "A scan is the Python loop, forwards and backwards.",
        mutant,
        check,
        "backwards",
        "forwards",
    )


def _composes(lengths: Sequence[int]) -> Law:
    def check(scan: Scan, fold: Fold, seen: Seen) -> None:
        length = len(fold.xs["a"])
        seen("two parts", 0 < fold.cut < length)
        first, second = take(fold.xs, slice(0, fold.cut)), take(fold.xs, slice(fold.cut, length))
        if fold.reverse:
            carry, after = scan(running_step, fold.init, second, reverse=True)
            carry, before = scan(running_step, carry, first, reverse=True)
        else:
            carry, before = scan(running_step, fold.init, first)
            carry, after = scan(running_step, carry, second)
        whole, ys = scan(running_step, fold.init, fold.xs, reverse=fold.reverse)
        same("the last carry", carry, whole)
        joined = tree_map(lambda a, b: torch.cat([a, b]), before, after)
        same("the outputs", joined, ys)

    mutant = Mutant("begins with the first input as if it were the state", starts_from_first)
    claim = "scan over n + m steps is scan over n, then over m from where that stopped."
    return _law(lengths, "composes", claim, mutant, check, "two parts")


def _of_nothing(lengths: Sequence[int]) -> Law:
    def check(scan: Scan, fold: Fold, seen: Seen) -> None:
        none = take(fold.xs, slice(0, 0))
        carry, ys = scan(running_step, fold.init, none, reverse=fold.reverse)
        same("the carry after no steps", carry, fold.init)
        _, one = scan(running_step, fold.init, take(fold.xs, slice(0, 1)), reverse=fold.reverse)
        same("the outputs of no steps", ys, take(one, slice(0, 0)))

    mutant = Mutant("takes one step at least", one_step_at_least)
    return _law(
        lengths, "of_nothing_is_identity", "Over no steps the carry stays and the outputs are empty.", mutant, check
    )


def _refuses(lengths: Sequence[int]) -> Law:
    def check(scan: Scan, fold: Fold, seen: Seen) -> None:
        def widens(carry: Counter, x: dict[str, Tensor]) -> tuple[Any, Tensor]:
            after, _ = running_step(carry, x)
            return replace(after, total=after.total.double()), x["a"]

        try:
            scan(widens, fold.init, fold.xs, reverse=fold.reverse)
        except StructureError:
            return
        raise Broken("a carry that changed from float32 to float64 was taken")

    mutant = Mutant("lets a carry change its dtype", casts)
    return _law(
        lengths, "refuses_a_changed_carry", "A carry of another structure, shape or dtype is refused.", mutant, check
    )

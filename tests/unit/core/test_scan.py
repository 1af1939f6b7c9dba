"""scan: one meaning, whatever the lowering. All numbers are integers or dyadic, so that equal means the same bits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from purestep.core.errors import ChoiceError, ShapeError, StructureError
from purestep.core.record import record, replace, stack, static, take, tensor
from purestep.core.scan import scan
from purestep.core.tree import clone, leaf_names
from purestep.runtime.compile import program as as_users_do

LENGTH = 7
UNROLLS = (1, 3, LENGTH + 2)


@record
class Tally:
    whole: Tensor = tensor("*", "int")
    half: Tensor = tensor("* 2", "float")
    absent: Any = ()
    label: str = static(default="a")


def tally(lead: tuple[int, ...] = ()) -> Tally:
    return Tally(whole=torch.full(lead, 3), half=torch.full((*lead, 2), 0.5))


def count(carry: Tally, x: dict[str, Tensor]) -> tuple[Tally, dict[str, Any]]:
    """Every step depends on the order of all before it."""
    whole = (carry.whole * 5 + x["n"]) % 1009
    new = replace(carry, whole=whole, half=carry.half.flip(-1) * 0.5 + x["f"][..., None])
    return new, {"seen": new, "before": carry.whole, "none": (), "x": x["n"]}


def inputs(n: int, lead: tuple[int, ...] = ()) -> dict[str, Tensor]:
    size = n * torch.Size(lead).numel()
    numbers = torch.arange(size).reshape(n, *lead)
    return {"n": numbers * 17 % 101, "f": (numbers % 8) * 0.25}


def assert_same(a: Any, b: Any) -> None:
    assert pytree.tree_structure(a) == pytree.tree_structure(b)
    for name, left, right in zip(leaf_names(a), pytree.tree_leaves(a), pytree.tree_leaves(b), strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        assert torch.equal(left, right), name


def by_hand(step: Callable[..., Any], carry: Any, xs: Any, n: int, reverse: bool = False) -> Any:
    outputs: list[Any] = [None] * n
    for t in reversed(range(n)) if reverse else range(n):
        carry, outputs[t] = step(carry, take(xs, t))
    return carry, stack(outputs)


# --- the meaning ---


@given(st.integers(1, 6), st.booleans(), st.sampled_from(["auto", "python"]), st.integers(1, 7))
def test_scan_is_a_loop(n: int, reverse: bool, lowering: str, unroll: int) -> None:
    result = scan(count, tally(), inputs(n), reverse=reverse, lowering=lowering, unroll=unroll)
    assert_same(result, by_hand(count, tally(), inputs(n), n, reverse))


@given(st.integers(0, 4), st.integers(0, 4))
def test_a_scan_cut_in_two_is_the_whole(n: int, m: int) -> None:
    xs = inputs(n + m)
    carry, first = scan(count, tally(), take(xs, slice(n)))
    last, second = scan(count, carry, take(xs, slice(n, None)))
    joined = pytree.tree_map(lambda a, b: torch.cat([a, b]), first, second)
    assert_same((last, joined), scan(count, tally(), xs))


@given(st.integers(0, 4))
def test_reverse_is_the_scan_of_the_reversed(n: int) -> None:
    def flip(tree: Any) -> Any:
        return pytree.tree_map(lambda leaf: leaf.flip(0), tree)

    carry, ys = scan(count, tally(), flip(inputs(n)))
    assert_same((carry, flip(ys)), scan(count, tally(), inputs(n), reverse=True))


def test_no_steps_give_the_carry_back_and_outputs_of_length_zero() -> None:
    init = tally((4,))
    carry, ys = scan(count, init, inputs(0, (4,)))
    assert carry is init
    _, one = scan(count, init, inputs(1, (4,)))
    assert_same(ys, take(one, slice(0)))


def test_without_xs_the_length_decides() -> None:
    def double(carry: Tensor, x: Any) -> tuple[Tensor, Any]:
        return carry * 2, (carry, x)

    assert_same(scan(double, torch.tensor(1), length=4), (torch.tensor(16), (torch.tensor([1, 2, 4, 8]), ())))
    _, (ys, empty) = scan(double, torch.tensor(1), {"nothing": ()}, length=2)
    assert ys.tolist() == [1, 2]
    assert empty == {"nothing": ()}


def test_neither_init_nor_xs_is_written_to() -> None:
    init, xs = tally(), inputs(3)
    before = clone((init, xs))
    scan(count, init, xs)
    assert_same((init, xs), before)
    assert all(leaf._version == 0 for leaf in pytree.tree_leaves(init))


# --- the lowerings ---


def every_lowering(init: Any, xs: Any) -> list[Any]:
    """One scan for each direction and number of steps per iteration, some of which leave a remainder."""
    return [scan(count, init, xs, reverse=reverse, unroll=unroll) for reverse in (False, True) for unroll in UNROLLS]


@pytest.mark.slow
def test_all_lowerings_give_the_same_bits(compiled: Any) -> None:
    results = compiled(every_lowering)(tally((2,)), inputs(LENGTH, (2,)))
    loops = [by_hand(count, tally((2,)), inputs(LENGTH, (2,)), LENGTH, reverse) for reverse in (False, True)]
    for i, result in enumerate(results):
        assert_same(result, loops[i // len(UNROLLS)])


@pytest.mark.slow
def test_the_code_generator_keeps_every_bit() -> None:
    def both(init: Any, xs: Any) -> Any:
        return scan(count, init, xs), scan(count, init, xs, reverse=True, unroll=3)

    assert_same(as_users_do(both)(tally(), inputs(LENGTH)), both(tally(), inputs(LENGTH)))


def test_the_higher_order_scan_outside_a_compiled_function() -> None:
    result = scan(count, tally(), inputs(LENGTH), lowering="higher_order", unroll=2)
    assert_same(result, scan(count, tally(), inputs(LENGTH)))


def test_the_python_lowering_inside_a_compiled_function(compiled: Any) -> None:
    def program(init: Any, xs: Any) -> Any:
        return scan(count, init, xs, lowering="python")

    assert_same(compiled(program, "eager")(tally(), inputs(3)), program(tally(), inputs(3)))


@pytest.mark.slow
def test_shapes_that_are_easily_forgotten(compiled: Any) -> None:
    """Nothing carried, nothing put out, no steps, no xs, xs that do not lie in one piece."""

    def program(xs: dict[str, Tensor]) -> Any:
        return {
            "no carry": scan(lambda carry, x: (carry, x["n"] * 2), (), xs),
            "no carry, unrolled": scan(lambda carry, x: (carry, x["n"] * 2), (), xs, unroll=3, reverse=True),
            "no outputs": scan(lambda carry, x: (carry + x["n"], ()), torch.tensor(1), xs),
            "no steps": scan(count, tally(), take(xs, slice(0))),
            "no xs": scan(lambda carry, _: (carry * 3, carry), torch.tensor(1), length=5),
            "one step": scan(count, tally(), take(xs, slice(1))),
            "strided": scan(count, tally(), take(xs, slice(None, None, 2))),
            "expanded": scan(lambda carry, x: (carry * 2 + x, carry), torch.tensor(1), xs["n"][1].expand(4)),
        }

    results, wanted = compiled(program)(inputs(LENGTH)), program(inputs(LENGTH))
    for name, value in wanted.items():
        assert_same(results[name], value)
    assert wanted["no carry"][1].tolist() == (inputs(LENGTH)["n"] * 2).tolist()


@pytest.mark.slow
def test_a_known_output_structure_changes_nothing(compiled: Any) -> None:
    _, output = count(tally(), take(inputs(1), 0))

    def program(init: Any, xs: Any) -> Any:
        return [scan(count, init, xs, unroll=unroll, reverse=True, output=output) for unroll in (1, 3)]

    loop = by_hand(count, tally(), inputs(LENGTH), LENGTH, reverse=True)
    for result in (*compiled(program)(tally(), inputs(LENGTH)), *program(tally(), inputs(LENGTH))):
        assert_same(result, loop)


def test_values_that_are_passed_on_untouched(compiled: Any) -> None:
    """The operator refuses tensors that share storage: x as carry, one tensor carried twice, the carry put out."""

    def program(init: Tensor, xs: Tensor) -> Any:
        def keep(carry: Any, x: Tensor) -> Any:
            a, b, _ = carry
            return (b, x, x), (carry, x, a)

        return scan(keep, (init, init, init), xs), scan(lambda carry, x: (carry, carry), init, xs)

    arguments = (torch.tensor([1, 2]), torch.arange(8).reshape(4, 2))
    assert_same(compiled(program)(*arguments), program(*arguments))


# --- with other transformations ---


@pytest.mark.slow
def test_scans_nest(compiled: Any) -> None:
    def program(init: Any, xs: Any) -> Any:
        return scan(lambda carry, row: scan(count, carry, row, reverse=True), init, xs, unroll=2)

    assert_same(compiled(program)(tally(), inputs(5, (3,))), program(tally(), inputs(5, (3,))))


@pytest.mark.slow
def test_vmap_of_scan_is_scan_of_vmap_is_the_singles(compiled: Any) -> None:
    init, xs = tally((3,)), inputs(5, (3,))

    def inside(init: Any, xs: Any) -> Any:
        return scan(torch.vmap(count), init, xs)

    def outside(init: Any, xs: Any) -> Any:
        return torch.vmap(lambda a, b: scan(count, a, b), in_dims=(0, 1), out_dims=(0, 1))(init, xs)

    singles = [scan(count, take(init, i), take(xs, (slice(None), i))) for i in range(3)]
    wanted = stack([carry for carry, _ in singles]), stack([ys for _, ys in singles], 1)
    assert_same(inside(init, xs), wanted)
    assert_same(outside(init, xs), wanted)
    assert_same(compiled(inside)(init, xs), wanted)


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop:UserWarning"
)  # while tracing; torch's scan looks at xs[0]
@pytest.mark.slow
def test_vmap_of_scan_in_a_compiled_function(compiled: Any) -> None:
    def program(init: Any, xs: Any) -> Any:
        return torch.vmap(lambda a, b: scan(count, a, b))(init, xs)

    init, xs = tally((3,)), pytree.tree_map(lambda leaf: leaf.movedim(0, 1), inputs(5, (3,)))
    assert_same(compiled(program)(init, xs), program(init, xs))


def test_a_gradient_in_the_body(compiled: Any) -> None:
    def descend(weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        gradient, loss = torch.func.grad_and_value(lambda w: ((w - x) ** 2).sum())(weight)
        return weight - 0.25 * gradient, loss

    def program(weight: Tensor, xs: Tensor) -> Any:
        return scan(descend, weight, xs)

    arguments = (torch.tensor([1.0, -2.0]), torch.tensor([3.0, 0.0, 1.0, 2.0]))
    weight, losses = program(*arguments)
    assert losses[0].item() == 4 + 25
    assert weight.tolist() == [1.5, 1.3125]
    assert_same(compiled(program)(*arguments), (weight, losses))


def polynomial(weight: Tensor, xs: Tensor, **options: Any) -> Tensor:
    """Horner's rule: c w^n + x_1 w^(n-1) + ... + x_n."""
    total: Tensor = scan(lambda total, x: (total * weight + x, total), torch.ones(()), xs, **options)[0]
    return total


def derivative(weight: float, xs: list[float]) -> float:
    coefficients = [1.0, *xs]
    powers = range(len(xs), 0, -1)
    return sum(p * c * weight ** (p - 1) for p, c in zip(powers, coefficients, strict=False))


@given(st.lists(st.integers(-4, 4).map(lambda n: n / 4), min_size=1, max_size=5), st.sampled_from([-2.0, 0.5, 1.0]))
def test_a_gradient_through_scan(xs: list[float], weight: float) -> None:
    gradient = torch.func.grad(polynomial)(torch.tensor(weight), torch.tensor(xs))
    assert gradient.item() == derivative(weight, xs)


COEFFICIENTS = [0.5, -1.0, 2.0, 0.25]


def test_a_gradient_through_a_compiled_scan(compiled: Any) -> None:
    weight = torch.tensor(0.5, requires_grad=True)
    compiled(polynomial)(weight, torch.tensor(COEFFICIENTS)).backward()
    assert weight.grad is not None
    assert weight.grad.item() == derivative(0.5, COEFFICIENTS)


def test_a_functional_gradient_through_a_compiled_loop(compiled: Any) -> None:
    """torch.func.grad enters the loop alone, not the operator."""

    def program(weight: Tensor, xs: Tensor) -> Tensor:
        gradient: Tensor = torch.func.grad(lambda w: polynomial(w, xs, lowering="python"))(weight)
        return gradient

    gradient = compiled(program)(torch.tensor(0.5), torch.tensor(COEFFICIENTS))
    assert gradient.item() == derivative(0.5, COEFFICIENTS)


# --- errors ---

X = torch.ones(3)
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "dtype of the carry": (
        lambda: scan(lambda c, x: (c.double(), c), torch.ones(()), X),
        StructureError,
        "scan: carry is [] torch.float64, wanted [] torch.float32; keep shape and dtype",
    ),
    "shape of the carry": (
        lambda: scan(lambda c, x: ({"a": c["a"] + X}, x), {"a": torch.ones(())}, X),
        StructureError,
        "scan: carry.a is [3] torch.float32, wanted [] torch.float32; keep shape and dtype",
    ),
    "structure of the carry": (
        lambda: scan(lambda c, x: ({**c, "b": x}, x), {"a": torch.ones(())}, X),
        StructureError,
        "scan: carry is another structure, wanted the one it had; leaves ['b'] differ",
    ),
    "static field of the carry": (
        lambda: scan(lambda c, x: (replace(c, label="b"), x), tally(), X),
        StructureError,
        "scan: carry is another structure, wanted the one it had; containers, the order of keys or static fields differ",
    ),
    "a number as carry": (
        lambda: scan(lambda c, x: (c + 1, x), 0, X),
        StructureError,
        "scan: carry is int, wanted a tensor; make it a tensor",
    ),
    "two lengths": (
        lambda: scan(count, tally(), {"n": X, "f": torch.ones(4)}),
        ShapeError,
        "scan: length is [3, 4], wanted one number; give xs one leading axis, or pass `length` when there are none",
    ),
    "a length that is not that of xs": (
        lambda: scan(count, tally(), inputs(3), length=2),
        ShapeError,
        "scan: length is [2, 3], wanted one number; give xs one leading axis, or pass `length` when there are none",
    ),
    "no length": (
        lambda: scan(lambda c, x: (c, x), tally()),
        ShapeError,
        "scan: length is unknown, wanted one number; give xs one leading axis, or pass `length` when there are none",
    ),
    "xs without an axis": (
        lambda: scan(lambda c, x: (c, x), tally(), torch.ones(())),
        ShapeError,
        "scan: length is [-1], wanted one number; give xs one leading axis, or pass `length` when there are none",
    ),
    "less than no steps": (
        lambda: scan(lambda c, x: (c, x), tally(), length=-1),
        ShapeError,
        "scan: length is [-1], wanted one number; give xs one leading axis, or pass `length` when there are none",
    ),
    "less than one step at a time": (
        lambda: scan(count, tally(), inputs(3), unroll=0),
        ChoiceError,
        "scan: unroll is 0, wanted at least 1; pass 1 for a plain loop",
    ),
    "another lowering": (
        lambda: scan(count, tally(), inputs(3), lowering="higherorder"),
        ChoiceError,
        "scan: lowering is 'higherorder', wanted one of ['auto', 'higher_order', 'python']; did you mean 'higher_order'?",
    ),
}


@pytest.mark.parametrize(("act", "error", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named(act: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        act()
    assert str(caught.value) == text


def test_a_mistake_in_a_compiled_function_is_named_too(compiled: Any) -> None:
    text = r"scan: carry is \[\] torch.float64, wanted \[\] torch.float32"
    with pytest.raises(Exception, match=text):
        compiled(lambda c, xs: scan(lambda c, x: (c.double(), c), c, xs))(torch.ones(()), X)

"""Compiled loops: the C++ that is written for them gives what a loop in Python gives, whatever is carried where."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from purestep.core import keys
from purestep.core.scan import scan
from purestep.core.tree import leaves
from purestep.runtime.compile import program
from purestep.runtime.inductor.hoist_buffers import hoisted

KEY = keys.key(3)
XS = keys.normal(KEY, (5, 4, 4))
SQUARE = keys.normal(keys.fold_in(KEY, 1), (4, 4))


def exchanged(xs: Tensor) -> Any:
    """What one slot gives is what the other takes, one of them as a view."""

    def step(carry: Any, x: Tensor) -> Any:
        matrix, row, still = carry
        return (row.view(4, 4), (matrix + x).flatten(), still), matrix.sum() + still

    return scan(step, (xs[0], xs[1].flatten(), xs[2, 0]), xs)


def kept(xs: Tensor) -> Any:
    """The outer carry is all that the inner loop put out: its memory must not be written again a turn later."""

    def outer(carry: Tensor, x: Tensor) -> Any:
        _, rows = scan(lambda total, row: (total + row, torch.sort(total * row).values), x[0], x)
        return rows + 0.5 * carry, (carry.sum(), rows)

    return scan(outer, torch.zeros(4, 4), xs)


def read_last(xs: Tensor) -> Tensor:
    """The last reader of a loop's outputs could write over them."""
    _, rows = scan(lambda carry, x: (carry * 0.5 + x, carry @ x), torch.zeros(4, 4), xs)
    told: Tensor = ((rows - 0.25) * rows.mean()).clamp(-2.0, 2.0)
    return told


def temporaries(xs: Tensor) -> Any:
    """Products and sorts that pass memory on to one another; two of the results outlive the turn."""

    def step(carry: Any, x: Tensor) -> Any:
        total, last = carry
        product = x @ SQUARE
        order = torch.sort(product, 1)
        hidden = torch.tanh(order.values @ SQUARE)
        again = hidden @ product
        return (total + again, order.indices), (hidden.sum(0), last)

    return scan(step, (torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.int64)), xs)


def whole_input(xs: Tensor) -> Any:
    """A loop reads what another computed, whole and in another shape."""
    flat = torch.cat([xs.flatten(), xs.flatten()]).view(10, 16)
    _, first = scan(lambda c, x: (c + x, c * x), torch.zeros(16), flat)
    return scan(
        lambda c, x: (c + (first.view(-1)[:16] * x).sum(), c), torch.zeros(()), first.reshape(10, 16).view(10, 16)
    )


def constants(xs: Tensor) -> Any:
    """Two parts of the carry become the same constant, which the compiler computes once."""

    def step(carry: Any, x: Tensor) -> Any:
        first, second, total = carry
        nothing = torch.zeros_like(first)
        return (nothing, nothing.clone(), total + first + second + x), total

    return scan(step, (xs[0], xs[1], torch.zeros(4, 4)), xs)


CASES: tuple[Callable[[Tensor], Any], ...] = (exchanged, kept, read_last, temporaries, whole_input, constants)


def every_case(xs: Tensor) -> list[Any]:
    return [case(xs) for case in CASES]


@pytest.mark.slow
def test_compiled_loops_are_the_loops() -> None:
    compiled = program(every_case)
    for xs in (XS, XS.flip(0)):
        got, again = compiled(xs), compiled(xs)
        for case, one, two in zip(CASES, got, again, strict=True):
            for a, b, wanted in zip(leaves(one), leaves(two), leaves(case(xs)), strict=True):
                assert torch.allclose(a, wanted, rtol=1e-5, atol=1e-5), case
                assert torch.equal(a, b)


# --- what moves out of a loop, by the line ---

EMPTY = "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, int_array_1, int_array_1, t, d, 0, &{0}_handle));"


def allocation(name: str) -> list[str]:
    return [f"AtenTensorHandle {name}_handle;", EMPTY.format(name), f"RAIIAtenTensorHandle {name}({name}_handle);"]


def loop(*body: str) -> str:
    return "\n".join(["while (1) {", *(f"    {line}" for line in body), "}"])


def moved(*body: str) -> tuple[str, str]:
    """What stands before the loop, and what in it."""
    before, inside = hoisted(loop(*body)).split("while (1) {", 1)
    return before, inside


def test_a_temporary_keeps_its_memory() -> None:
    before, inside = moved(*allocation("buf3"), "cpp_fused_add_0((float*)(buf3.data_ptr()));", "buf3.reset();")
    assert all(line in before for line in allocation("buf3"))
    assert "cpp_fused_add_0" in inside
    assert "reset" not in inside


@pytest.mark.parametrize(
    "leaves_it",
    [
        "buf9 = std::move(buf3);",
        "buf9 = std::move(wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf3, 1, int_array_1, int_array_1, 0L)));",
        "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(buf3, &buf9_handle));",
        "something_new(buf3, buf9);",
    ],
)
def test_what_outlives_a_turn_gets_memory_in_every_turn(leaves_it: str) -> None:
    before, inside = moved(*allocation("buf3"), "cpp_fused_add_0((float*)(buf3.data_ptr()));", leaves_it)
    assert "buf3" not in before
    assert all(line in inside for line in [*allocation("buf3"), leaves_it])


def test_memory_that_is_passed_on_counts_with_what_it_becomes() -> None:
    reuse = "auto buf4 = std::move(buf3);  // reuse"
    before, _ = moved(*allocation("buf3"), reuse, "buf9 = std::move(buf4);")
    assert "buf3" not in before
    before, inside = moved(*allocation("buf3"), reuse, "cpp_fused_add_0((float*)(buf4.data_ptr()));", "buf4.reset();")
    assert "auto& buf4 = buf3;" in before
    assert "reset" not in inside


def test_an_inner_loop_allocates_what_it_hands_on() -> None:
    inner = ["while (1) {", *(f"    {line}" for line in allocation("buf5")), "    buf8 = std::move(buf5);", "}"]
    slot = ["AtenTensorHandle buf8_handle;", "RAIIAtenTensorHandle buf8(buf8_handle);"]
    before, _ = moved(*slot, *inner, "cpp_fused_add_0((float*)(buf8.data_ptr()));")
    assert "buf5" not in before

"""Laws of matrix products in float32: within rounding of float64, whatever the strides, and nothing else is written.

The subject is a `Multiply`: (A, B, bias or None, C) -> None, which writes A B + bias to C.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from purestep.properties.framework.compare import require
from purestep.properties.framework.law import Law, Mutant, Seen, Suite, always
from purestep.properties.strategies.values import seeds
from purestep.runtime.inductor.products import HEADER

Multiply = Callable[[Tensor, Tensor, Tensor | None, Tensor], None]
BOUND = 1.01 * 2.0**-24  # of |A| |B| + |bias|, times K + 2: float32 sums in any order are within it
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 100, 130, 300)
LAYOUTS = ("rows", "columns", "spaced", "one row", "one column")
BIASES = ("none", "of columns", "of both", "of rows", "transposed", "one number")
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, 3.5: the error of an inner product"
BLOCK, FEW, UNTOUCHED = 64, 4, 7.0
CALLED = 'extern "C" void called(%s) { purestep_product(%s); }'
TYPES = (
    *["int64_t"] * 4,
    *["const float*", "const int64_t*"] * 2,
    *["float*", "const int64_t*", "const float*", "const int64_t*"],
)


def kernel(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """The kernel that compiled programs use."""
    _library().called(*kernel_arguments(a, b, bias, out))


@cache
def _library() -> ctypes.CDLL:
    from torch._inductor.codecache import CppCodeCache

    names = [f"x{number}" for number in range(len(TYPES))]
    taken = ", ".join(f"{kind} {name}" for kind, name in zip(TYPES, names, strict=True))
    library: ctypes.CDLL = CppCodeCache.load(HEADER.read_text() + CALLED % (taken, ", ".join(names)))
    return library


def kernel_arguments(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> list[Any]:
    """Return the arguments of `purestep_product` for two or three axes; the bias is broadcast to the output."""
    wide = None if bias is None else bias.expand(out.shape)
    sizes = (out.shape[0] if out.ndim == 3 else 1, a.shape[-2], b.shape[-1], a.shape[-1])
    arguments: list[Any] = [ctypes.c_int64(size) for size in sizes]
    for tensor in (a, b, out, wide):
        strides = () if tensor is None else tuple(tensor.stride())
        filled = (0,) * (3 - len(strides)) + strides
        arguments += [None if tensor is None else ctypes.c_void_p(tensor.data_ptr()), (ctypes.c_int64 * 3)(*filled)]
    return arguments


def reference(a: Tensor, b: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the product in float64, and the measure of an error: (K + 2) (|A| |B| + |bias|)."""
    added = torch.zeros((), dtype=torch.float64) if bias is None else bias.double()
    exact, scale = a.double() @ b.double() + added, a.double().abs() @ b.double().abs() + added.abs()
    return exact, (a.shape[-1] + 2) * scale


def error(got: Tensor, exact: Tensor, scale: Tensor) -> float:
    """Return the largest error relative to its measure; infinite where something is no number, or where nothing may differ.

    >>> error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    0.25
    """
    if got.numel() == 0:
        return 0.0
    far = torch.where(got == exact, 0.0, (got - exact).abs() / scale)
    return float(torch.nan_to_num(far, nan=float("inf")).max())


# --- mutants ---


def without_bias(multiply: Multiply) -> Multiply:
    """Forget the bias."""
    return lambda a, b, bias, out: multiply(a, b, None, out)


def first_row_of_bias(multiply: Multiply) -> Multiply:
    """Add the first row of the bias to each row."""
    return lambda a, b, bias, out: multiply(a, b, bias[..., :1, :] if bias is not None and bias.ndim > 1 else bias, out)


def first_block_lost(multiply: Multiply) -> Multiply:
    """Start anew at the second block of the sum."""
    return lambda a, b, bias, out: multiply(a[..., BLOCK:], b[..., BLOCK:, :], bias, out)


def first_member(multiply: Multiply) -> Multiply:
    """Give every member of a batch the first one's product."""

    def changed(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> None:
        multiply(a, b, bias, out)
        if out.ndim == 3:
            out.copy_(out[:1].clone().expand_as(out))

    return changed


def last_column_not_written(multiply: Multiply) -> Multiply:
    """Leave the last column as it is."""

    def changed(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> None:
        wide = None if bias is None else bias.expand(out.shape)[..., :-1]
        multiply(a, b[..., :-1], wide, out[..., :-1])

    return changed


def edges_overwritten(multiply: Multiply) -> Multiply:
    """Write one number past the end of each row."""

    def changed(a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor) -> None:
        multiply(a, b, bias, out)
        if out.numel():
            past = out.as_strided(
                (*out.shape[:-1], 1), out.stride(), out.storage_offset() + out.shape[-1] * out.stride(-1)
            )
            past.zero_()

    return changed


MUTANTS = {
    "forgets the bias": without_bias,
    "adds the first row of the bias to each": first_row_of_bias,
    "loses the first block of a sum": first_block_lost,
    "gives every member the first one's product": first_member,
    "does not write the last column": last_column_not_written,
}

# --- products ---


@st.composite
def products(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Draw A, B, a bias and an output of random shapes, strides and batches; the output is in memory that is larger."""
    rows, columns, inner = (draw(st.sampled_from(SIZES)) for _ in range(3))
    members, place = draw(st.sampled_from((1, 1, 2, 3))), torch.Generator().manual_seed(draw(seeds()))
    a = _laid_out(place, draw(st.sampled_from(LAYOUTS)), members, rows, inner)
    b = _laid_out(place, draw(st.sampled_from(LAYOUTS)), members, inner, columns)
    bias = _biased(place, draw(st.sampled_from(BIASES)), rows, columns)
    layout = draw(st.sampled_from(LAYOUTS[:3]))
    high, wide = (columns, rows) if layout == "columns" else (rows, columns)
    step = 3 if layout == "spaced" else 1
    held = torch.full((members, high + 2, step * (wide + 3)), UNTOUCHED)[:, :high, : step * wide : step]
    inside = (held.mT if layout == "columns" else held).fill_(torch.nan)
    return a, b, bias, inside if members > 1 else inside[0]


def _random(place: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=place)


def _laid_out(place: torch.Generator, layout: str, members: int, rows: int, columns: int) -> Tensor:
    """Return a random matrix, or one for each member, with strides of this kind."""
    batch = (members,) if members > 1 else ()
    if layout == "columns":
        return _random(place, *batch, columns, rows).mT
    if layout == "spaced":
        return _random(place, *batch, 2 * rows, 3 * columns)[..., ::2, ::3]
    shape = (1 if layout == "one row" else rows, 1 if layout == "one column" else columns)
    return _random(place, *batch, *shape).expand(*batch, rows, columns)


def _biased(place: torch.Generator, kind: str, rows: int, columns: int) -> Tensor | None:
    shapes = {"of columns": (columns,), "of both": (rows, columns), "of rows": (rows, 1), "one number": (1, 1)}
    if kind == "transposed":
        return _random(place, columns, rows).T
    return _random(place, *shapes[kind]) if kind in shapes else None


# --- laws ---


def product_laws() -> Suite:
    """The laws of matrix products."""
    return Suite("product_laws", (_exact(), _alone()))


def _exact() -> Law:
    needs = (
        *("a batch", "a sum of several blocks", "few rows", "few columns", "an output in columns"),
        *("a bias of two dimensions", "no bias", "nothing to sum"),
    )

    def check(multiply: Multiply, drawn: Any, seen: Seen) -> None:
        for a, b, bias, out in drawn:
            inner, holds = a.shape[-1], out.numel() > 0
            seen("a batch", out.ndim == 3 and holds)
            seen("a sum of several blocks", inner > BLOCK and holds)
            seen("few rows", 0 < a.shape[-2] <= FEW < b.shape[-1])
            seen("few columns", 0 < b.shape[-1] <= FEW < a.shape[-2])
            seen("an output in columns", out.stride(-1) > out.stride(-2))
            seen("a bias of two dimensions", bias is not None and bias.ndim == 2 and bias.numel() > 1)
            seen("no bias", bias is None)
            seen("nothing to sum", inner == 0 and holds)
            multiply(a, b, bias, out)
            far = error(out, *reference(a, b, bias))
            require(far <= BOUND, f"the error is {far / BOUND:.3g} times the bound")

    return Law(
        name="a_product_is_within_rounding_of_float64",
        claim="|C - (A B + bias)| <= 1.01 2^-24 (K + 2) (|A| |B| + |bias|), for any strides.",
        source=SOURCE,
        inputs=always(st.lists(products(), min_size=8, max_size=8)),
        check=check,
        mutant=Mutant("forgets the bias", without_bias),
        needs=needs,
        most=200,
    )


def _alone() -> Law:
    def check(multiply: Multiply, drawn: Any, seen: Seen) -> None:
        a, b, bias, out = drawn
        seen("a ragged edge", out.numel() > 0 and out.shape[-1] % 16 > 0)
        whole = torch.empty(0).set_(out.untyped_storage())
        around = whole.isfinite()
        before = [one.clone() for one in (a, b)]
        multiply(a, b, bias, out)
        require((whole == UNTOUCHED)[around], "memory beside the output has changed")
        require(all(torch.equal(one, was) for one, was in zip((a, b), before, strict=True)), "an operand has changed")

    return Law(
        name="a_product_writes_its_output_alone",
        claim="Numbers beside those of C, and A and B, are as before.",
        source="runtime.inductor.products: C may be a part of a tensor",
        inputs=always(products()),
        check=check,
        mutant=Mutant("writes one number past the end of each row", edges_overwritten),
        needs=("a ragged edge",),
    )

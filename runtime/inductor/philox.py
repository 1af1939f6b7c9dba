"""Philox as one operation of a graph and one function of C++: a block of random words is traced, fused and built as a whole.

Its ten rounds are 130 operations, of which a program for PPO has 1,300: most of what a compiler would see. The words are those
of `core.keys.philox`, which runs in their place wherever a graph is not compiled by `direct_trace`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core import keys
from .replace_attributes import replace_attributes

LIBRARY: Any = torch.library.Library("purestep", "FRAGMENT")  # type: ignore[no-untyped-call]
LIBRARY.define("philox(Tensor k0, Tensor k1, Tensor c0, Tensor c1, int use) -> (Tensor, Tensor, Tensor, Tensor)")
WORDS = range(4)
USES = (keys.DRAW, keys.SPLIT, keys.FOLD)
PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"
FUNCTION = f"""
#ifndef PURESTEP_PHILOX
#define PURESTEP_PHILOX
template <class V> struct PurestepWords {{ V w0, w1, w2, w3; }};
template <int64_t use, class V>
inline PurestepWords<V> purestep_philox(const V& k0, const V& k1, const V& count, const V& high_count) {{
    const V word({keys.WORD}LL), half(32), m0({keys.MULTIPLIERS[0]}LL), m1({keys.MULTIPLIERS[1]}LL);
    V c0 = count, c1 = high_count, c2(use), c3(0);
#pragma GCC unroll {keys.ROUNDS}
    for (int64_t turn = 0; turn < {keys.ROUNDS}; turn++) {{
        V low = c0 * m0, high = c2 * m1;
        c0 = ((high >> half) ^ c1 ^ (k0 + V(turn * {keys.WEYL[0]}LL))) & word;
        c2 = ((low >> half) ^ c3 ^ (k1 + V(turn * {keys.WEYL[1]}LL))) & word;
        c1 = high;
        c3 = low;
    }}
    return {{c0, c1 & word, c2, c3 & word}};
}}
#endif"""


def words(k0: Tensor, k1: Tensor, c0: Tensor, c1: Tensor, use: int) -> tuple[Tensor, ...]:
    """Return the four words of a block, each in memory of its own: the operation without a compiler.

    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [hex(int(word)) for word in torch.ops.purestep.philox(zero, zero, zero, zero, 0)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    blocks = torch.broadcast_tensors(*keys.philox((k0, k1), (c0, c1, use, 0)))  # type: ignore[no-untyped-call]
    return tuple(word.clone(memory_format=torch.contiguous_format) for word in blocks)


def _stand_ins(k0: Tensor, k1: Tensor, c0: Tensor, c1: Tensor, use: int) -> tuple[Tensor, ...]:
    shape = torch.broadcast_shapes(*(one.shape for one in (k0, k1, c0, c1)))  # type: ignore[no-untyped-call]
    return tuple(k0.new_empty(shape) for _ in WORDS)


def _batched(info: Any, axes: Sequence[Any], *arguments: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Put the axis of the batch first, and as many axes after it in each argument."""
    *tensors, use = arguments
    pairs = list(zip(tensors, axes, strict=False))
    rank = max(tensor.ndim - (axis is not None) for tensor, axis in pairs)
    fitted = []
    for tensor, axis in pairs:
        if axis is not None:
            first = tensor.movedim(axis, 0)
            tensor = first.reshape(first.shape[:1] + (1,) * (rank - first.ndim + 1) + first.shape[1:])
        fitted.append(tensor)
    return torch.ops.purestep.philox(*fitted, use), tuple(0 for _ in WORDS)


LIBRARY.impl("philox", words, "CompositeExplicitAutograd")
torch.library.register_fake("purestep::philox", _stand_ins, lib=LIBRARY)
torch.library.register_vmap("purestep::philox", _batched, lib=LIBRARY)


def _operation(key: tuple[Tensor, Tensor], counter: tuple[Any, Any, Any, Any]) -> tuple[Tensor, ...]:
    """Stand for `core.keys.philox` in a trace."""
    first, second, use, zero = counter
    if not isinstance(use, int) or use not in USES or zero != 0:
        return ROUNDS(key, counter)
    counts = (one if isinstance(one, Tensor) else key[0].new_full((), one) for one in (first, second))
    return tuple(torch.ops.purestep.philox(*key, *counts, use))


ROUNDS = keys.philox


@contextlib.contextmanager
def trace_blocks_whole() -> Iterator[None]:
    """Trace each block of random words as one operation, in the block."""
    with replace_attributes(keys, {"philox": _operation}):
        yield


@contextlib.contextmanager
def generated() -> Iterator[None]:
    """Generate C++ for the operation, in the block."""
    import torch._inductor.codegen.cpp as kernels
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
    from torch._inductor.lowering import broadcast_tensors, lowerings, make_pointwise, register_lowering
    from torch._inductor.virtualized import ops

    for name, text in _texts().items():
        for overrides in (kernels.CppOverrides, kernels.CppVecOverrides):
            setattr(overrides, name, staticmethod(text))
        setattr(DtypePropagationOpsHandler, name, staticmethod(lambda *_: torch.int64))

    def lowered(k0: Any, k1: Any, c0: Any, c1: Any, use: int) -> tuple[Any, ...]:
        inputs, results = broadcast_tensors(k0, k1, c0, c1), []
        for word in WORDS:

            def element(*elements: Any, word: int = word) -> Any:
                return getattr(ops, f"purestep_word_{word}")(getattr(ops, f"purestep_philox_{use}")(*elements))

            results.append(make_pointwise(element)(*inputs))
            results[-1].realize()
        return tuple(results)

    if torch.ops.purestep.philox.default not in lowerings:
        register_lowering(torch.ops.purestep.philox.default, type_promotion_kind=None)(lowered)
    stock = kernels.KernelGroup.codegen_group

    def codegen_group(self: Any, *arguments: Any, **named: Any) -> str:
        source: str = stock(self, *arguments, **named)
        return source.replace(PREFIX, PREFIX + FUNCTION, 1) if "purestep_philox<" in source else source

    with replace_attributes(kernels.KernelGroup, {"codegen_group": codegen_group}):
        yield


def _texts() -> dict[str, Callable[..., str]]:
    """Return the C++ of each element-wise operation."""
    blocks = {
        f"purestep_philox_{use}": lambda *values, use=use: f"purestep_philox<{use}>({', '.join(map(str, values))})"
        for use in USES
    }
    parts = {f"purestep_word_{word}": lambda block, word=word: f"{block}.w{word}" for word in WORDS}
    return {**blocks, **parts}

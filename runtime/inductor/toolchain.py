"""What makes a compilation shorter without changing what it gives: nothing is waited for, searched or looked up in vain."""

import contextlib
import contextvars
import functools
import gc
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

import torch
import torch._inductor.codecache as codecache
from torch._inductor.cpu_vec_isa import pick_vec_isa

VERSIONS = ("2.13.",)  # those whose own code this was written beside


@contextlib.contextmanager
def replaced(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """While this holds, these attributes of `owner` have these values; names it lacks are left out.

    >>> with replaced(gc, {"collect": lambda: "nothing", "not there": 0}):
    ...     gc.collect(), hasattr(gc, "not there")
    ('nothing', False)
    """
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, values[name])
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """While this holds, a program compiles in half of the time: its Python and its C++ side by side, and less of both.

    What the processor can do is found out, and headers are precompiled, while Python still traces; a program's loop and its
    kernels are built side by side. The compiler makes millions of objects that live until it ends, so Python keeps its
    garbage. What it does thousands of times with the result of the first is done once (measured: a PPO program takes 28
    instead of 38 seconds, a population of 32 takes 38 instead of 54).
    """
    context = contextvars.copy_context()  # the compiler's options are of the context
    threading.Thread(target=lambda: context.run(_foresee), daemon=True).start()
    collects = gc.isenabled()
    gc.disable()
    try:
        with contextlib.ExitStack() as stack:
            for owner, values in _shortcuts():
                stack.enter_context(replaced(owner, values))
            yield
    finally:
        if collects:
            gc.enable()


def _shortcuts() -> list[tuple[Any, dict[str, Any]]]:
    builds = (codecache, {"_worker_compile_cpp": _side_by_side})
    if not torch.__version__.startswith(VERSIONS):
        return [builds]
    import torch._higher_order_ops.utils as operators
    import torch._inductor.codegen.cpp as kernels
    import torch._inductor.sizevars as sizes
    from torch._dynamo.package import SourceInfo
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler as Dtypes

    return [
        builds,
        (SourceInfo, {"add_code": _once_each(SourceInfo.add_code)}),  # the sources of a function, at each of its calls
        (Dtypes, {"__init__": _once(Dtypes.__init__)}),  # one object, filled at each operation of a kernel
        (kernels, {"stride_at_vec_range": _stride(sizes.stride_at_vec_range, vars(sizes)["sympy"])}),
        # Dynamo itself refuses a step that changes or hands on its inputs; this traces every step again to look.
        (operators, {"_check_alias_and_mutation": lambda *_: None}),
    ]


def _once_each(add: Callable[[Any, CodeType], None]) -> Callable[[Any, CodeType], None]:
    known = set[tuple[int, CodeType]]()

    def add_new(self: Any, code: CodeType) -> None:
        if (id(self), code) not in known:
            known.add((id(self), code))
            add(self, code)

    return add_new


def _once(fill: Callable[[Any], None]) -> Callable[[Any], None]:
    filled = set[int]()

    def fill_new(self: Any) -> None:
        if id(self) not in filled:
            filled.add(id(self))
            fill(self)

    return fill_new


def _stride(stock: Callable[..., Any], sympy: Any) -> Callable[..., Any]:
    """How far apart in memory neighbours in a loop are: for sums and products no question for a general simplification."""
    plain = (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Integer)

    @functools.cache
    def stride(index: Any, variable: Any, vector_length: int | None = None) -> Any:
        if all(isinstance(part, plain) for part in sympy.preorder_traversal(index)):
            return sympy.expand(index.xreplace({variable: variable + 1}) - index)
        return stock(index, variable, vector_length)

    return stride


def _foresee() -> None:
    """What the processor can do, by some C++ of its own; and on a machine where nothing was compiled yet, the headers."""
    pick_vec_isa()
    folder = getattr(codecache, "_HEADER_DIR", None)
    if folder is not None and not any(Path(folder).glob("*.gch")):
        never: Future[None] = Future()
        with contextlib.suppress(Exception):  # the compilation itself meets what went wrong, and says it
            codecache.CppWrapperCodeCache.load_async(
                "", submit_fn=lambda _: never, optimized_code="//", needs_vec_isa=False, kernel_needs_vec_isa=True
            )


def _side_by_side(lock_path: str, builders: Sequence[Any]) -> None:
    """The last builder links what the others make."""
    from torch.utils._filelock import FileLock

    def build(builder: Any) -> None:
        if not Path(builder.get_target_file_path()).exists():
            builder.build()

    *parts, last = builders
    with FileLock(lock_path, timeout=codecache.LOCK_TIMEOUT):
        if not Path(last.get_target_file_path()).exists():
            with ThreadPoolExecutor() as pool:
                list(pool.map(build, parts))
            build(last)

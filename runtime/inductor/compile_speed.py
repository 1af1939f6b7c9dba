"""Shorter compilation with the same result: no waiting, searching or recomputing that is not needed."""

import contextlib
import contextvars
import functools
import gc
import itertools
import math
import os
import shlex
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

import torch
import torch._inductor.codecache as codecache
import torch._inductor.config as inductor
import torch._inductor.cpu_vec_isa as features

from .in_place import lowered, mutated, with_true_memory
from .replace_attributes import replace_attributes
from .scan_loops import copying

STOCK_FEATURES = features.valid_vec_isa_list
STOCK_HEADER = getattr(codecache, "_precompile_header", None)
# Tests of instruction sets for which any compiler of C++20 is enough.
TESTS = {"_avx_code", "_avx512_bf16_code", "_avx512_vnni_code"}
PRECOMPILED = (".gch", ".pch")  # endings of precompiled headers
MORE_HEADERS = "-D TORCH_INDUCTOR_PRECOMPILE_HEADERS "  # includes more, which pays in a precompiled header alone
VERSIONS = ("2.13.", "2.14.")  # versions of torch for whose code this was written
SMALL = 1 << 16  # bytes of a tensor that stays in the processor's nearest caches


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """Compile programs in half of the time, in the block: their Python and their C++ concurrently, and less of both.

    While Python still traces, the kernel of matrix products is compiled, and headers, which no program waits for; a program's
    loop and its kernels are built in parallel. The compiler makes millions of objects that live until it ends, so
    garbage collection is off.
    Work that it repeats thousands of times with the same result is done once (measured: a PPO program takes 28 instead of 38
    seconds, a population of 32 takes 38 instead of 54).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with contextlib.ExitStack() as stack:
            for owner, values in _shortcuts():
                stack.enter_context(replace_attributes(owner, values))
            context = contextvars.copy_context()  # the compiler's options are context variables
            threading.Thread(target=lambda: context.run(_foresee), daemon=True).start()
            yield
    finally:
        if collects:
            gc.enable()


def _shortcuts() -> list[tuple[Any, dict[str, Any]]]:
    builds: list[tuple[Any, dict[str, Any]]] = [
        (codecache, {"_worker_compile_cpp": _side_by_side, "_precompile_header": _header_once}),
        (features, {"valid_vec_isa_list": _first_features}),
        (features.VecISA, {"check_build": _trusting(features.VecISA.check_build)}),
    ]
    if not torch.__version__.startswith(VERSIONS):
        return builds
    import torch._higher_order_ops.utils as operators
    import torch._inductor.bounds as ranges
    import torch._inductor.codegen.cpp as kernels
    import torch._inductor.dependencies as dependencies
    import torch._inductor.fx_passes.post_grad as passes
    import torch._inductor.graph as graphs
    import torch._inductor.ir as ir
    import torch._inductor.loop_body as loops
    import torch._inductor.sizevars as sizes
    import torch._inductor.virtualized as virtualized
    from torch._dynamo.package import SourceInfo
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler as Dtypes
    from torch._inductor.fx_utils import FakeTensorUpdater

    loops_of = {"decompose_scan_to_while_loop": copying(passes.decompose_scan_to_while_loop)}
    substitution = {"sympy_subs": _substitution(vars(ir)["sympy_subs"])}
    return [
        *builds,
        (passes, loops_of),  # a body inside two others was traced three times
        (ir.Pointwise, {"make_loader": _once_a_reader(ir.Pointwise.make_loader, virtualized.V.get_ops_handler)}),
        (ir.StorageBox, {"should_realize_on_reuse": _stored_if_small(ir)}),
        (FakeTensorUpdater, {"incremental_update": _update_if_changed(FakeTensorUpdater.incremental_update)}),
        # of 79,000 substitutions and 5,800 bounds in the engine of proofs, 900 and 116 differ
        *((module, substitution) for module in (ir, loops, dependencies)),
        (ranges, {"bound_sympy": _bounds(vars(ranges)["bound_sympy"])}),
        (SourceInfo, {"add_code": _once_each(SourceInfo.add_code)}),  # called at each call of a function
        (Dtypes, {"__init__": _once(Dtypes.__init__)}),  # a singleton, refilled at each operation of a kernel
        (kernels.CppKernelProxy, {"codegen_nodes": _written_once(kernels.CppKernelProxy.codegen_nodes, virtualized.V)}),
        (kernels, {"stride_at_vec_range": _stride(sizes.stride_at_vec_range, vars(sizes)["sympy"])}),
        # Dynamo itself refuses a step that mutates or aliases its inputs; this check traces every step again.
        (operators, {"_check_alias_and_mutation": lambda *_: None}),
        (operators, {"check_input_alias_and_mutation": mutated(operators.check_input_alias_and_mutation)}),
        (passes, {"reinplace_inplaceable_ops": with_true_memory(vars(passes)["reinplace_inplaceable_ops"])}),
        (graphs.GraphLowering, {"call_function": lowered(graphs.GraphLowering.call_function)}),
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


def _written_once(stock: Callable[[Any, list[Any]], None], now: Any) -> Callable[[Any, list[Any]], None]:
    """Return a function that writes a kernel, and takes it as it is if loops around it and others could not be merged.

    The compiler writes the kernels of such loops for an attempt to merge these, and again where that fails.
    """
    attempts = dict[tuple[int, ...], tuple[list[Any], dict[str, Any]]]()

    def codegen_nodes(kernel: Any, nodes: list[Any]) -> None:
        key = tuple(map(id, nodes))
        if key in attempts:
            vars(kernel).update(attempts.pop(key)[1])
            return
        stock(kernel, nodes)
        if getattr(now.local_buffer_context, "local_buffers", True) == {}:  # an attempt, without buffers of its own
            attempts[key] = nodes, vars(kernel)

    return codegen_nodes


def _stride(stock: Callable[..., Any], sympy: Any) -> Callable[..., Any]:
    """Return a function for the stride of an index in a loop: sums and products need no general simplification."""
    plain = (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Integer)

    @functools.cache
    def stride(index: Any, variable: Any, vector_length: int | None = None) -> Any:
        if all(isinstance(part, plain) for part in sympy.preorder_traversal(index)):
            return sympy.expand(index.xreplace({variable: variable + 1}) - index)
        return stock(index, variable, vector_length)

    return stride


def _once_a_reader(stock: Callable[[Any], Callable[..., Any]], reader: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return a function for the value of an elementwise operation at an index, computed once by each reader of its loop.

    A value used twice is computed twice otherwise, and so are those that it is computed of, which takes exponential time where
    each of a chain is used twice. The generated code has each once in any case.
    """

    def make_loader(operation: Any) -> Callable[..., Any]:
        load = stock(operation)

        def loader(index: Sequence[Any]) -> Any:
            known = vars(reader()).setdefault("_known", {})
            key = load, tuple(index)
            if key not in known:
                known[key] = load(index)
            return known[key]

        return loader

    return make_loader


def _stored_if_small(ir: Any) -> Callable[..., bool]:
    """Return a test for storing an elementwise result that is used again: also one of three tensors, if it is small.

    The compiler computes results of up to four tensors again at each use, which makes the code longer. Loads of small tensors
    cost less than that (measured: PPO programs compile in 7.5 instead of 8.4 seconds and run 2 % faster, proving likewise); of
    large ones they cost more.
    """
    stock: Callable[..., bool] = ir.StorageBox.should_realize_on_reuse

    def stored(box: Any, users: int, *, graph_reuse: bool = True) -> bool:
        if stock(box, users, graph_reuse=graph_reuse):
            return True
        value = box.data
        if users < 2 or not graph_reuse or not isinstance(value, (ir.Pointwise, ir.Reduction)):
            return False
        size: int = math.prod(map(int, value.get_size())) * value.dtype.itemsize
        return size <= SMALL and bool(value.num_reads() > 2)

    return stored


def _update_if_changed(stock: Callable[[Any], int]) -> Callable[[Any], int]:
    """Return a function that computes the shapes of changed nodes, and of nothing in a graph whose nodes are as they were.

    The compiler's own runs the bodies of all loops after every pass, those inside other loops once for each of these.
    """

    def unchanged(updater: Any) -> bool:
        own = (updater.hash_node(node) in updater.processed_hashes for node in updater.gm.graph.nodes)
        return all(own) and all(map(unchanged, updater.subgraph_updaters.values()))

    return lambda self: 0 if unchanged(self) else stock(self)


def _substitution(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that puts other indices for those of an expression, each pair of arguments once."""
    known = functools.lru_cache(maxsize=None, typed=True)(lambda expression, pairs: stock(expression, dict(pairs)))
    return lambda expression, replacements: known(expression, tuple(replacements.items()))


def _bounds(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for the least and the largest value of an index, by the expression and its symbols' ranges."""
    known = dict[Any, Any]()

    def bounds(index: Any, ranges: Mapping[Any, Any] = types.MappingProxyType({})) -> Any:
        key = index, frozenset((symbol, ranges.get(symbol)) for symbol in index.free_symbols)
        if key not in known:
            known[key] = stock(index, ranges)
        return known[key]

    return bounds


def _trusting(stock: Callable[[Any, str], bool]) -> Callable[[Any, str], bool]:
    """Return a test of C++ for an instruction set that compiles nothing for what is known to work.

    The compiler's tests take two seconds. They show that torch has functions for vectors of that width, which it has where it
    uses them itself, and that the C++ compiler knows the instructions, which one does that knows C++20, as it must.
    """
    known = {
        vars(kind)[name]
        for kind in vars(features).values()
        if isinstance(kind, type)
        for name in TESTS & vars(kind).keys()
    }
    used = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return lambda self, code: (used and code in known) or stock(self, code)


def _first_features() -> list[Any]:
    """Return the first of the processor's instruction sets that the compiler can use, the one it takes.

    It looks at all of them otherwise. Two threads that do so at once would see each other's flags, and no later process would
    find what one compiles with them.
    """
    with _FEATURES_LOCK:
        if inductor.cpp.simdlen is not None or os.getenv("ATEN_CPU_CAPABILITY") or not features.x86_isa_checker():
            return STOCK_FEATURES()
        return _usable_features()


_FEATURES_LOCK = threading.Lock()


@functools.cache
def _usable_features() -> list[Any]:
    named = features.x86_isa_checker()
    known = (one for one in features.supported_vec_isa_list if all(word in named for word in str(one).split()))
    return list(itertools.islice(filter(None, known), 1))


def _foresee() -> None:
    """Verify the precompiled headers, or begin to make them, and compile the kernel of matrix products between the two."""
    from .products import compiled_kernel

    folder = getattr(codecache, "_HEADER_DIR", None)
    if any(known == folder for known, *_ in _HEADERS):
        return
    never: Future[None] = Future()
    with contextlib.suppress(Exception):  # the compilation itself meets the same error, and reports it
        codecache.CppWrapperCodeCache.load_async(
            "", submit_fn=lambda _: never, optimized_code="//", needs_vec_isa=False, kernel_needs_vec_isa=True
        )
        _make_header()
        compiled_kernel()
    while _WANTED:
        _make_header()


_HEADERS: dict[tuple[str, str, str], Future[str]] = {}  # by folder, header and command line
_HEADERS_LOCK = threading.Lock()


def _header_once(header: str, command: str, **options: Any) -> str:
    """Return the path of a header, named once in a process by what it includes, beside which its precompiled form may lie."""
    key = (codecache._HEADER_DIR, header, command)
    with _HEADERS_LOCK:
        known = _HEADERS.get(key)
        own = known is None or (known.done() and not Path(known.result()).exists())
        future: Future[str] = Future() if own or known is None else known
        _HEADERS[key] = future
    if own:
        try:
            future.set_result(STOCK_HEADER(header, command, **options))  # type: ignore[misc]
        except BaseException as error:
            del _HEADERS[key]
            future.set_exception(error)
    return future.result()


_WANTED: dict[str, str] = {}  # precompiled headers that are to be made: the command of each


def _make_header() -> None:
    """Precompile a wanted header at the lowest priority, that of kernels, which comes last, first.

    Until it is there, the compiler reads the header itself: two headers take ten seconds of the processor and save a program
    two, so the first program must not wait for them. A header that is begun is finished also if this process ends.
    """
    from torch._inductor.cpp_builder import run_compile_cmd

    with contextlib.suppress(Exception):  # another thread took the last one; the compiler failed
        target, command = _WANTED.popitem()
        part = shlex.quote(f"{target}.{os.getpid()}")
        command = command.replace(f"-o {target}", f"-o {part}")
        whole = f"nice -n 19 {command} && mv {part} {shlex.quote(target)} || rm -f {part}"
        run_compile_cmd(f"sh -c {shlex.quote(whole)}", cwd=os.path.dirname(target))


def _side_by_side(lock_path: str, builders: Sequence[Any]) -> None:
    """Build all but the last builder in parallel, then the last, which links the others; a header is not waited for."""
    from torch.utils._filelock import FileLock

    from .products import calls_kernel, compiled_kernel

    def build(builder: Any) -> None:
        if Path(builder.get_target_file_path()).exists():
            return
        header = builder._build_option.precompiled_header
        if not any(Path(f"{header}{ending}").exists() for ending in PRECOMPILED):
            builder._definitions_args = builder._definitions_args.replace(MORE_HEADERS, "")
        builder.build()

    *parts, last = builders
    if not parts and (target := last.get_target_file_path()).endswith(PRECOMPILED):
        if not Path(target).exists():
            _WANTED[target] = last.get_command_line()
        return
    with FileLock(lock_path, timeout=codecache.LOCK_TIMEOUT):
        if not Path(last.get_target_file_path()).exists():
            with ThreadPoolExecutor() as pool:
                list(pool.map(build, parts))
            if calls_kernel(builders[0]._sources_args):
                last._sources_args += f" {shlex.quote(compiled_kernel())}"
            build(last)

"""Compilation of a function of flat tensors: directly where that gives the same program, else the compiler's usual way."""

import contextlib
import io
import operator
import os
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._inductor.codecache as codecache
import torch._inductor.config as inductor
from torch import Tensor
from torch._inductor.exc import CppCompileError
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from ...core.errors import CompileError, PurestepError, message
from ..files.cache_folder import cache_directory
from ..files.secret import private_folder
from .compile_speed import VERSIONS, hurried
from .loop_codegen import borrowing_loops
from .untraceable import check_cpp_compiler, quiet, untraceable

OPERATOR = "torch.ops.higher_order.scan"


def compiled(
    name: str,
    flat: Any,
    inputs: list[Any],
    backend: str,
    *,
    on_gpu: bool,
    mark: str,
    donated: frozenset[int] = frozenset(),
) -> tuple[Any, str]:
    """Return the compiled form of a function of flat inputs, and a reason where it was made the compiler's longer way.

    `mark` is a digest of the compiler: what it keeps under another mark is not used. `donated` are positions of inputs whose
    memory results may take, which only programs do that are made directly.
    Raises: CompileError (no C++ compiler, or a function that cannot be compiled), and PurestepErrors of the function.
    """
    if backend == "inductor":
        keep_to_oneself()
        if not on_gpu:
            check_cpp_compiler(name)
    try:
        with settings(cpp_wrapper=not on_gpu, mark=f"{mark} {sorted(donated)}"):
            return _compiled(flat, inputs, backend, on_gpu, donated)
    except PurestepError:
        raise
    except Exception as fault:
        found = None if on_gpu else _fault_of_trace(flat, inputs)
        works = not isinstance(getattr(fault, "inner_exception", None), CppCompileError) or compiles_one_line()
        raise untraceable(name, fault, found=found, function=flat, compiler_works=works) from fault


def _fault_of_trace(flat: Any, inputs: list[Any]) -> Exception | None:
    """Return what a direct trace of the function raises, whose traceback has the function's own lines; None for nothing."""
    try:
        from .direct_trace import traced  # here: other versions of torch may lack what it imports

        with quiet(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            traced(flat, inputs)
    except Exception as error:
        return error
    return None


def compiles_one_line() -> bool:
    """Return whether a program of one line compiles, so that a failure of the C++ compiler is not the machine's."""
    number = time.time_ns() % 10**9  # no cache holds it

    def line(x: Tensor) -> Tensor:
        return torch.sin(x) + number

    try:
        with hurried(), quiet(), warnings.catch_warnings(), settings(cpp_wrapper=True, mark="one line"):
            warnings.simplefilter("ignore")
            run = types.FunctionType(line.__code__.replace(), line.__globals__, "line", None, line.__closure__)
            torch.compile(run, fullgraph=True, dynamic=False)(torch.ones(3))
    except Exception:
        return False
    return True


def _compiled(flat: Any, inputs: list[Any], backend: str, on_gpu: bool, donated: frozenset[int]) -> tuple[Any, str]:
    reason = ""
    own = types.FunctionType(flat.__code__.replace(), flat.__globals__, flat.__name__, None, flat.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": lambda guards: [False for _ in guards]}
    whole: dict[str, Any] = {"fullgraph": True, "dynamic": False, "options": options}
    quick = hurried() if backend == "inductor" and not on_gpu else contextlib.nullcontext()
    with quick, quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own deprecations, which no caller can act on
        if backend == "inductor" and on_gpu:
            from .gpu_segments import segmented  # here: its imports take a second

            return _on_first_call(torch.compile(own, backend=segmented, **whole), inputs), reason
        if backend == "inductor" and torch.__version__.startswith(VERSIONS):
            try:
                from .direct_build import build_directly  # here: other versions of torch may lack what it imports

                return build_directly(flat, inputs, donated), ""
            except Exception as error:  # the usual way raises the error of a function that neither can compile
                reason = f"{type(error).__name__}: {error}"
        compiled = torch.compile(own, backend=backend, **whole)
        return compiled.aot_compile(((inputs,), {})), reason  # type: ignore[attr-defined]


def _on_first_call(compiled: Callable[[list[Any]], Any], inputs: list[Any]) -> Callable[[list[Any]], Any]:
    """Return the function after a call, which compiles it."""
    compiled(inputs)
    return compiled


@contextlib.contextmanager
def settings(cpp_wrapper: bool, mark: str) -> Iterator[None]:
    """Set the compiler's options for scans: a loop in C++ instead of Python, and artefacts of scans that may be cached.

    The loop's own C++ is built apart from the kernels, without the optimiser's passes that only kernels need (measured: 17
    instead of 57 seconds of the C++ compiler for a PPO program; then 2.4 instead of 3.5 with -Og for -O1, at the same speed).
    """
    cacheable = {**inductor.unsafe_marked_cacheable_functions, OPERATOR: mark}
    options = {
        "cpp_wrapper": cpp_wrapper,
        "cpp_wrapper_build_separate": True,
        "unsafe_marked_cacheable_functions": cacheable,
        "aot_inductor.compile_wrapper_opt_level": "Og",
    }
    known = {name: value for name, value in options.items() if _is_option(name)}
    with inductor.patch(known), borrowing_loops():
        yield


def _is_option(name: str) -> bool:
    try:
        operator.attrgetter(name)(inductor)
    except AttributeError:
        return False
    return True


def keep_to_oneself() -> None:
    """Set the compiler's cache folder to one that no other user can write to.

    Its default is below /tmp, under a predictable name: the user who creates that folder first decides what is loaded from it.
    PyTorch calls the C++ compiler with unquoted paths, so a folder with a space in its path is passed over. A folder that
    TORCHINDUCTOR_CACHE_DIR names stays. Raises: CompileError where the path of that one has a space.
    """
    usual = os.path.abspath(default_cache_dir())
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR", usual) == usual:
        cache = cache_directory()
        folder = private_folder(*([cache / "inductor"] if cache and not _spaced(str(cache)) else []))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    named = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    if _spaced(named):
        wanted, remedy = "a path without spaces, which PyTorch does not quote", "name another folder"
        raise CompileError(message("TORCHINDUCTOR_CACHE_DIR", got=repr(named), wanted=wanted, remedy=remedy))
    headers = os.path.join(named, "precompiled_headers")
    for name, value in (("_HEADER_DIR", headers), ("_HEADER_LOCK_DIR", os.path.join(headers, "locks"))):
        if hasattr(codecache, name):
            setattr(codecache, name, value)


def _spaced(path: str) -> bool:
    return any(character.isspace() for character in path)

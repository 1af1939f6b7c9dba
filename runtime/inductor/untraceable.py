"""Errors of one line for code that could not be compiled: the construct, the user's file and line, the remedy."""

import ast
import contextlib
import inspect
import logging
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor
from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

from ...core import errors
from ...core.errors import CompileError, PurestepError, describe_error, message
from .scan_derivative import NoDerivative

OWN = tuple(Path(__file__).parents[2] / name for name in ("core", "algorithms", "runtime", "properties"))
WHERE = "torch.where, scan and vmap in place of Python's own if, while and for on tensors"
NUMBER = "a number in Python that depends on a tensor's value"
NOTHING = "a function that computes nothing"
OUTSIDE = "a call outside torch (NumPy, C) that needs a tensor's memory"
UNROLLED = 'write scan(..., lowering="python") there'
REMEDIES = {
    "a Python branch on a tensor": f"take {WHERE}",
    NUMBER: "keep it a tensor",
    NoDerivative.GRADIENT: UNROLLED,
    NoDerivative.SECOND: UNROLLED,
    NoDerivative.FORWARD: UNROLLED,
    OUTSIDE: "write it with torch, or keep it out of what is compiled",
    NOTHING: 'use it as it is, or with backend="none"',
    "`print`": "return what you want to see as an output, or run it uncompiled",
    "`time.time`": "read the clock outside, and pass the number as an argument",
    "`open`": "read it outside, and pass what it holds as an argument",
}
UNCOMPILED = 'or do without it (slower): --backend none, from Python backend="none"'
RAISED = re.compile(r"raised exception (\w+)\((.*)\)\s*$", re.MULTILINE)
BUILTIN = re.compile(r"builtin operator `(\w+)`")
FUNCTION = re.compile(r"trace the builtin `([\w.]+?)\.?`")
SKIPPED = re.compile(r"the function `([\w.]+)`|qualname: ([\w.]+)")
QUOTED = re.compile(r'File "([^"]+)", line (\d+)')
LIBRARIES = (Path(torch.__file__).parent, Path(sysconfig.get_paths()["stdlib"]))
FAILED = re.compile(r"got (\w+\(.*\))\s*$", re.MULTILINE)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress the compiler's log of an operation that fails, because its error is raised as well."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def check_cpp_compiler(name: str) -> None:
    """Raise CompileError if there is no C++ compiler, before the program of this name is traced, which takes longer."""
    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, OSError):
        named = inductor.cpp.cxx
        got = f"absent: {named if isinstance(named, str) else named[-1]!r} does not run"
        remedy = f"install one, e.g. apt install g++, or name one in CXX, {UNCOMPILED}"
        raise CompileError(message(f"{name}: the C++ compiler", got=got, wanted="one", remedy=remedy)) from None


def untraceable(
    name: str,
    fault: Exception,
    *,
    found: Exception | None = None,
    function: Callable[..., Any] | None = None,
    compiler_works: bool = False,
) -> PurestepError:
    """Return the error to raise in place of the compiler's own: a PurestepError raised in the function, or a CompileError.

    It names the user's line and what in it cannot be compiled. `found` is what a direct trace of the function raised,
    `compiler_works` whether the C++ compiler compiles another program.

    >>> str(untraceable("double", ValueError("first line")))
    'double is ValueError: first line, wanted a function that compiles as one graph; run it uncompiled to see where it fails'
    """
    text = str(fault)
    ours = found if isinstance(found, PurestepError) else _ours(text)
    if ours is not None:
        return ours
    inner = getattr(fault, "inner_exception", None)
    if isinstance(inner, CppCompileError) and not compiler_works:
        got = f"failing: {_first_error(inner.output)}"
        remedy = f"repair it, or name another in CXX, {UNCOMPILED}"
        return CompileError(message(f"{name}: the C++ compiler", got=got, wanted="one that works", remedy=remedy))
    got, place = _construct(fault, text), _place(fault)
    if isinstance(found, NoDerivative):
        got, place = str(found), _place_in_traceback(found)
    if isinstance(inner, CppCompileError):
        got = f"C++ that does not compile ({_first_error(inner.output)})"
    place = place or _operation(fault, text) or _place_in_traceback(found) or _definition(function)
    remedy = REMEDIES.get(got, "use tensor operations only, or keep it out of what is compiled")
    if not isinstance(fault, TorchDynamoException) or isinstance(fault, BackendCompilerFailed):
        remedy = REMEDIES.get(
            got, f"leave it out, {UNCOMPILED}" if place else "run it uncompiled to see where it fails"
        )
    where = f"{name}: {place}" if place else name
    return CompileError(message(where, got=got, wanted="a function that compiles as one graph", remedy=remedy))


def _first_error(output: str) -> str:
    """Return the first line of a compiler's output that reports an error; without one, its last line.

    >>> _first_error("In file a.cpp:\\na.cpp:1:2: fatal error: no b.h\\ncompilation terminated.")
    'a.cpp:1:2: fatal error: no b.h'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    return next((line for line in lines if "error" in line.lower()), lines[-1])[:200]


def _ours(text: str) -> PurestepError | None:
    """Return the PurestepError that the traced function raised, as it would have been raised uncompiled; None if it did not."""
    found = RAISED.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, PurestepError):
        return None
    try:
        return kind(str(ast.literal_eval(found[2])))
    except (ValueError, SyntaxError):
        return None


def _construct(fault: Exception, text: str) -> str:
    if "ata-dependent branching" in text:
        return "a Python branch on a tensor"
    if "Expected FakeTensor" in text:
        return NoDerivative.GRADIENT
    if "data-dependent expression" in text:
        return NUMBER
    if "backend_input must not be None" in text:
        return NOTHING
    if "Cannot access data pointer" in text:
        return OUTSIDE
    for pattern, shown in ((BUILTIN, "`{}`"), (FUNCTION, "`{}`"), (RAISED, "{}"), (FAILED, "{}")):
        found = pattern.search(text)
        if found:
            whole = f"{found[1]}: {found[2]}" if pattern is RAISED else found[1]
            return shown.format(whole)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    skipped = SKIPPED.search(text) if "marked as skipped" in first else None
    if skipped:
        return f"`{skipped[1] or skipped[2]}`, which cannot be traced"
    cause = getattr(fault, "inner_exception", None) or fault
    known = isinstance(fault, TorchDynamoException) and not isinstance(fault, BackendCompilerFailed)
    return first if known else describe_error(cause, limit=200)


def _place(fault: Exception) -> str:
    """Return the innermost line of the user's own code in the stack of the compiler's trace, or of ours if there is none."""
    return _innermost([(frame.filename, frame.lineno) for frame in getattr(fault, "real_stack", None) or ()])


def _place_in_traceback(fault: BaseException | None) -> str:
    """Return the innermost line of the user's own code that an exception passed through."""
    if fault is None:
        return ""
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(fault.__traceback__)]
    return _innermost([frame for frame in frames if Path(frame[0]).parent.name != "inductor"])


def _operation(fault: Exception, text: str) -> str:
    """Return the user's line in the stack that an operation of the graph carries, which the compiler quotes."""
    return _innermost([(file, int(line)) for file, line in QUOTED.findall(text)])


def _innermost(frames: Sequence[tuple[str, int | None]]) -> str:
    known = [(file, line) for file, line in frames if not _foreign(file)]
    theirs = [frame for frame in known if not any(Path(frame[0]).is_relative_to(one) for one in OWN)]
    chosen = (theirs or known)[-1:]
    return f"{chosen[0][0]}:{chosen[0][1]}" if chosen else ""


def _definition(function: Callable[..., Any] | None) -> str:
    """Return the line where the user's function is defined, "" for one of ours."""
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    return _innermost([(code.co_filename, code.co_firstlineno)]) if code else ""


def _foreign(file: str) -> bool:
    path = Path(file)
    return file.startswith("<") or "site-packages" in file or any(path.is_relative_to(one) for one in LIBRARIES)
